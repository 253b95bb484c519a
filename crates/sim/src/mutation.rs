//! Known mistakes that the shell can be told to make, to prove that the simulator notices them.

/// A mistake. Each is one that somebody could make in a shell that keeps the contract of `member` by and large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Tells Raft that the log is durable, and sends what waits for that, before the sync.
    AcknowledgesBeforeSync,
    /// Sends votes and other answers that must wait for the log at once.
    VotesBeforeDurable,
    /// Writes entries to the log without the term and the vote.
    ForgetsVote,
    /// Answers linearizable reads from its own state.
    ReadsWithoutIndex,
    /// Starts with the read contexts of its last start.
    ReusesReadContext,
    /// Answers a read as soon as its index is known, applied or not.
    ReadsBeforeApplied,
    /// Proposes a request anew when no answer came.
    AppliesTwice,
    /// Takes a snapshot's state over, but not its members.
    SkipsSnapshotMembers,
    /// A leader answers a write once it has proposed it.
    AcknowledgesBeforeCommit,
    /// Forgets a configuration change in Raft when the store has it.
    SkipsConfChange,
    /// Lets the removal of a member take effect before it is durable that it is committed.
    ForgetsRemovals,
    /// A new leader takes leases over with the deadlines they would have without an extension, as of their grant.
    ForgetsRenewals,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 12] = [
        Mutation::AcknowledgesBeforeSync,
        Mutation::VotesBeforeDurable,
        Mutation::ForgetsVote,
        Mutation::ReadsWithoutIndex,
        Mutation::ReusesReadContext,
        Mutation::ReadsBeforeApplied,
        Mutation::AppliesTwice,
        Mutation::SkipsSnapshotMembers,
        Mutation::AcknowledgesBeforeCommit,
        Mutation::SkipsConfChange,
        Mutation::ForgetsRemovals,
        Mutation::ForgetsRenewals,
    ];
}
