//! How much must happen in a run. A long one draws from its seed what a short one does, and has more of it.

use crate::fault_kind::Kind;
use crate::plan::Plan;
use crate::world::World;

/// Client operations of a long run, at least.
const OPERATIONS_MIN: u64 = 500;
/// Virtual time of a long run, at least.
const VIRTUAL_US_MIN: u64 = 60_000_000;
/// Faults of a long run, and their kinds, at least.
const FAULTS_MIN: u64 = 10;
const KINDS_MIN: usize = 3;

impl Plan {
    /// Makes a run long, and gives it a kind of crash if it has none.
    pub(crate) fn lengthen(&mut self) {
        self.operations += 200;
        self.faults = self.faults.max(FAULTS_MIN);
        self.have_one_of(&[Kind::Kill, Kind::PowerCut, Kind::PowerCutInWrite]);
    }
}

impl World {
    /// Whether enough has happened for a long run: operations, faults, a member that came back after a crash, a compaction.
    pub(crate) fn is_long(&self) -> bool {
        let faults = &self.faults.counts;
        self.env.history.counts.begun >= OPERATIONS_MIN
            && self.env.now_us >= VIRTUAL_US_MIN
            && faults.values().sum::<u64>() >= FAULTS_MIN
            && faults.len() >= KINDS_MIN
            && self.restarts() > 0
            && self.env.history.model().compactions() > 0
    }

    /// Further time until the next fault: a long run that has had its faults would never end if they left no time for an election.
    pub(crate) fn rest_between_faults_us(&self) -> u64 {
        let has_enough = self.env.options.long && self.faults.begun >= self.env.plan.faults;
        if has_enough { 4 * self.env.plan.election_ticks as u64 * self.env.plan.tick_us } else { 0 }
    }

    /// Starts of processes after the first of each.
    pub(crate) fn restarts(&self) -> u64 {
        self.hosts.iter().map(|host| host.boots.saturating_sub(1)).sum()
    }
}
