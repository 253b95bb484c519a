//! Known mistakes that a member can be told to make, to prove that the simulator finds them.

use replica::Mistake;
use std::fmt;

/// A mistake. Each is one that somebody could make in the code around Raft.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// In the replica: code that ships, with a seam that only a simulator has.
    Replica(Mistake),
    /// At the start: with the read contexts of the last one.
    ReusesReadContext,
    /// In the threads around the replica: a leader's writes are answered when they are in its log.
    AcknowledgesBeforeCommit,
}

impl Mutation {
    /// All of them.
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

/// As `--mutation` names it.
impl fmt::Debug for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mutation::Replica(mistake) => mistake.fmt(f),
            Mutation::ReusesReadContext => f.write_str("ReusesReadContext"),
            Mutation::AcknowledgesBeforeCommit => f.write_str("AcknowledgesBeforeCommit"),
        }
    }
}
