//! Mistakes that a simulator can plant, to prove that it finds them.

/// A mistake that a change of this crate could make. [`Shell::makes`](crate::Shell::makes) switches it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Tells Raft before the sync that the log is durable, and sends the messages that wait for it.
    AcknowledgesBeforeSync,
    /// The same, only while it is the only voter.
    AcknowledgesAloneBeforeSync,
    /// Sends votes and other answers that must wait for the log at once.
    VotesBeforeDurable,
    /// Writes entries to the log without the term and the vote.
    ForgetsVote,
    /// Answers linearizable reads from its own state.
    ReadsWithoutIndex,
    /// A leader answers linearizable reads from its own state, without asking whether it still leads.
    LeaderReadsAlone,
    /// Answers a read as soon as its index is known, applied or not.
    ReadsBeforeApplied,
    /// Proposes a request again as long as it is not answered.
    AppliesTwice,
    /// Installs a snapshot although the message that came with it names another configuration.
    SkipsSnapshotMembers,
    /// Proposes a configuration change without checking it against the result of the preceding changes.
    SkipsChangeRules,
    /// Keeps the deadlines of leases when it does not lead any more, and has the next leader end those that are over.
    ExpiresForNextLeader,
    /// Forgets a configuration change in Raft when the store has it.
    SkipsConfChange,
    /// Lets the removal of a member take effect before its commit is durable.
    ForgetsRemovals,
    /// Names a commit index that covers a removal before that is durable.
    TellsRemovalsEarly,
    /// A new leader takes leases over with the deadlines they would have without an extension, as of their grant.
    ForgetsRenewals,
    /// A read that comes while a read index is on its way takes that one's answer.
    ReadsJoinEarlierQuestion,
    /// A proposal that only the leader of an earlier term may make is made in a later one, or by another leader.
    UrgentInAnyTerm,
    /// Ends leases up to a heartbeat before their time is over.
    EndsLeasesEarly,
}
