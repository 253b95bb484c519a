//! Removals of two members at once, of which only one may succeed.

use disk::sim::Random;

/// No voter is removed from this number of voters or fewer. One of two voters may only go for good once the other
/// certainly knows of the removal, whatever faults occur. The operator must see to that, so it is left out here.
pub(crate) const VOTERS_KEPT: usize = 2;

/// Removals in pairs. Their random choices are separate from all others, so that other seeds run as before.
#[derive(Default)]
pub(crate) struct Removals {
    random: Option<Random>,
}

impl Removals {
    const STREAM: u64 = 0x0dd_ba11_2e55;
    /// Percentage of the runs with configuration changes.
    const PERCENT: u64 = 30;

    pub(crate) fn new(seed: u64) -> Removals {
        let mut random = Random::new(seed ^ Removals::STREAM);
        Removals { random: random.chance(Removals::PERCENT).then_some(random) }
    }

    /// Another voter to remove together with `first`, and the host that gets the request.
    pub(crate) fn second(&mut self, first: u64, voters: &[u64], hosts: &[usize]) -> Option<(u64, usize)> {
        let random = self.random.as_mut()?;
        let others: Vec<u64> = voters.iter().copied().filter(|id| *id != first).collect();
        let id = *others.get(random.below(others.len().max(1) as u64) as usize)?;
        let host = *hosts.get(random.below(hosts.len().max(1) as u64) as usize)?;
        Some((id, host))
    }
}
