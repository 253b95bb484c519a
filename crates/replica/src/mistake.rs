//! Mistakes that a simulator can plant, to prove that it finds them.

/// A mistake that a change of this crate could make. [`Shell::makes`](crate::Shell::makes) switches it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Tells Raft that the log is durable, and sends what waits for that, before the sync.
    AcknowledgesBeforeSync,
    /// Sends votes and other answers that must wait for the log at once.
    VotesBeforeDurable,
    /// Writes entries to the log without the term and the vote.
    ForgetsVote,
    /// Answers linearizable reads from its own state.
    ReadsWithoutIndex,
    /// Answers a read as soon as its index is known, applied or not.
    ReadsBeforeApplied,
    /// Proposes a request again as long as it is not answered.
    AppliesTwice,
    /// Takes a snapshot over although the message that came with it names another configuration.
    SkipsSnapshotMembers,
    /// Proposes a configuration change without a look at what those before it have left.
    SkipsChangeRules,
    /// Forgets a configuration change in Raft when the store has it.
    SkipsConfChange,
    /// Lets the removal of a member take effect before it is durable that it is committed.
    ForgetsRemovals,
    /// A new leader takes leases over with the deadlines they would have without an extension, as of their grant.
    ForgetsRenewals,
}
