//! Removals of two members at once, of which only one may succeed.

use disk::sim::Random;

/// Of so many voters none is removed. Of two voters neither can go for good before it is sure that the other has heard of it, which no
/// fault may prevent: that is the operator's business, and so it is left out here.
pub(crate) const VOTERS_KEPT: usize = 2;

/// Removals that come in pairs. Their choices are kept apart from those of the rest, so that other seeds run as they did.
#[derive(Default)]
pub(crate) struct Removals {
    random: Option<Random>,
}

impl Removals {
    const STREAM: u64 = 0x0dd_ba11_2e55;
    /// Of the runs in which members come and go.
    const PERCENT: u64 = 30;

    pub(crate) fn new(seed: u64) -> Removals {
        let mut random = Random::new(seed ^ Removals::STREAM);
        Removals { random: random.chance(Removals::PERCENT).then_some(random) }
    }

    /// Another voter to be removed together with `first`, and the host that it is asked of.
    pub(crate) fn second(&mut self, first: u64, voters: &[u64], hosts: &[usize]) -> Option<(u64, usize)> {
        let random = self.random.as_mut()?;
        let others: Vec<u64> = voters.iter().copied().filter(|id| *id != first).collect();
        let id = *others.get(random.below(others.len().max(1) as u64) as usize)?;
        let host = *hosts.get(random.below(hosts.len().max(1) as u64) as usize)?;
        Some((id, host))
    }
}
