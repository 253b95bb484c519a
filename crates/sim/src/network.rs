//! Links between members: which messages arrive, when, and how often.

use disk::sim::Random;
use std::collections::{BTreeMap, BTreeSet};

/// The current state of the network. Faults change it, and their end restores it.
pub(crate) struct Network {
    /// Links that let nothing through, from and to, by host.
    pub(crate) blocked: BTreeSet<(usize, usize)>,
    pub(crate) loss_percent: u64,
    pub(crate) duplicate_percent: u64,
    /// Least and greatest delay of a message.
    pub(crate) delay_us: (u64, u64),
    /// One message in a hundred of these takes up to `late_us`.
    pub(crate) late_percent: u64,
    pub(crate) late_us: u64,
    /// Messages of one link keep their order, as those of one stream do.
    pub(crate) ordered: bool,
    last: BTreeMap<(usize, usize), u64>,
}

impl Network {
    pub(crate) fn new(delay_us: (u64, u64), ordered: bool) -> Network {
        Network {
            blocked: BTreeSet::new(),
            loss_percent: 0,
            duplicate_percent: 0,
            delay_us,
            late_percent: 0,
            late_us: 0,
            ordered,
            last: BTreeMap::new(),
        }
    }

    pub(crate) fn heal(&mut self) {
        self.blocked.clear();
        (self.loss_percent, self.duplicate_percent, self.late_percent) = (0, 0, 0);
    }

    pub(crate) fn passes(&self, from: usize, to: usize) -> bool {
        !self.blocked.contains(&(from, to))
    }

    /// The arrival times of the copies of a message that is sent now; none if it is lost. A message that must arrive
    /// `once` is not duplicated.
    pub(crate) fn arrivals(
        &mut self,
        random: &mut Random,
        now_us: u64,
        (from, to): (usize, usize),
        once: bool,
    ) -> Vec<u64> {
        if !self.passes(from, to) || random.chance(self.loss_percent) {
            return Vec::new();
        }
        let copies = 1 + usize::from(!once && random.chance(self.duplicate_percent));
        (0..copies).map(|_| self.arrival(random, now_us, (from, to))).collect()
    }

    /// How long a piece of a stream takes. What is lost is repeated, and takes longer.
    pub(crate) fn delay(&self, random: &mut Random) -> u64 {
        let lost = if random.chance(self.loss_percent) { 200_000 } else { 0 };
        let late = if random.chance(self.late_percent) { random.below(self.late_us.max(1)) } else { 0 };
        between(random, self.delay_us) + lost + late
    }

    fn arrival(&mut self, random: &mut Random, now_us: u64, link: (usize, usize)) -> u64 {
        let mut time_us = now_us + between(random, self.delay_us);
        if random.chance(self.late_percent) {
            time_us += random.below(self.late_us.max(1));
        }
        if self.ordered {
            let last = self.last.entry(link).or_default();
            time_us = time_us.max(*last);
            *last = time_us;
        }
        time_us
    }
}

/// A random number between two bounds, both included.
pub(crate) fn between(random: &mut Random, (low, high): (u64, u64)) -> u64 {
    low + random.below(high.saturating_sub(low) + 1)
}
