//! Known mistakes that a member can be told to make, to prove that the simulator finds them.

use replica::Mistake;
use std::fmt;

/// A mistake that a programmer could make in the code around Raft.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A mistake in the replica: in the code that ships, behind a method that only the simulator overrides.
    Replica(Mistake),
    /// A mistake at the start: reuses the read contexts of the last start.
    ReusesReadContext,
    /// A mistake in the threads around the replica: a leader's writes are answered as soon as they are in its log.
    AcknowledgesBeforeCommit,
}

impl Mutation {
    /// All mistakes.
    pub const ALL: [Mutation; 13] = [
        Mutation::Replica(Mistake::AcknowledgesBeforeSync),
        Mutation::Replica(Mistake::VotesBeforeDurable),
        Mutation::Replica(Mistake::ForgetsVote),
        Mutation::Replica(Mistake::ReadsWithoutIndex),
        Mutation::ReusesReadContext,
        Mutation::Replica(Mistake::ReadsBeforeApplied),
        Mutation::Replica(Mistake::AppliesTwice),
        Mutation::Replica(Mistake::SkipsSnapshotMembers),
        Mutation::AcknowledgesBeforeCommit,
        Mutation::Replica(Mistake::SkipsChangeRules),
        Mutation::Replica(Mistake::SkipsConfChange),
        Mutation::Replica(Mistake::ForgetsRemovals),
        Mutation::Replica(Mistake::ForgetsRenewals),
    ];
}

/// The name in `--mutation`.
impl fmt::Debug for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mutation::Replica(mistake) => mistake.fmt(f),
            Mutation::ReusesReadContext => f.write_str("ReusesReadContext"),
            Mutation::AcknowledgesBeforeCommit => f.write_str("AcknowledgesBeforeCommit"),
        }
    }
}
