//! Mistakes that a simulator can plant, to prove that it finds them.

/// A mistake that a change of this crate could make. [`Shell::makes`](crate::Shell::makes) switches it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Tells Raft before the sync that the log is durable, and sends the messages that wait for it.
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
    /// Installs a snapshot although the message that came with it names another configuration.
    SkipsSnapshotMembers,
    /// Proposes a configuration change without checking it against the result of the preceding changes.
    SkipsChangeRules,
    /// Forgets a configuration change in Raft when the store has it.
    SkipsConfChange,
    /// Lets the removal of a member take effect before its commit is durable.
    ForgetsRemovals,
    /// A new leader takes leases over with the deadlines they would have without an extension, as of their grant.
    ForgetsRenewals,
}
