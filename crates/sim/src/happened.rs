//! Counts of what only some runs have. A simulator that never gets there proves nothing, so tests look at them.

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Requests whose token named their user.
    pub tokens_used: u64,
    /// Requests whose token the member did not know yet.
    pub tokens_early: u64,
    /// Requests whose token had ended, had been taken away, or had been forgotten with a snapshot.
    pub tokens_void: u64,
    /// Leases that ended because their time had passed.
    pub leases_ended: u64,
    /// Remaining times of leases that leaders have proposed for the log.
    pub lease_checkpoints: u64,
    /// Those taken back before a renewal was answered.
    pub lease_checkpoints_taken_back: u64,
    /// Compactions that took effect.
    pub compactions: u64,
    /// Runs with at least five voters and two learners at once.
    pub full_houses: u64,
}

impl Happened {
    pub(crate) fn add(&mut self, other: &Happened) {
        self.tokens_used += other.tokens_used;
        self.tokens_early += other.tokens_early;
        self.tokens_void += other.tokens_void;
        self.leases_ended += other.leases_ended;
        self.lease_checkpoints += other.lease_checkpoints;
        self.lease_checkpoints_taken_back += other.lease_checkpoints_taken_back;
        self.compactions += other.compactions;
        self.full_houses += other.full_houses;
    }
}
