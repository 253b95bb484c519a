//! The configuration and the data from which a member starts.

use api::raftpb;

/// The options of a member.
#[derive(Clone, Debug)]
pub struct Config {
    /// This member's id.
    pub id: u64,
    /// Ticks without a leader before an election (`--election-timeout` / `--heartbeat-interval`).
    pub election_ticks: usize,
    /// Ticks between heartbeats.
    pub heartbeat_ticks: usize,
    /// Ask for votes without raising the term first (`--pre-vote`).
    pub pre_vote: bool,
    /// Seed of the election timeouts.
    pub seed: u64,
    /// A number that no earlier start of this member used, so that read contexts never repeat.
    pub boot_nonce: u64,
    /// A follower that lacks at most this many entries is sent all of them at once.
    /// [`Member::send_lagging`](crate::consensus::Member::send_lagging) sends entries to those that lack more.
    pub near_entries: u64,
    /// Go on although a leader proves that the log has lost what this member acknowledged: acknowledged entries of the cluster may
    /// be lost then.
    pub unsafe_ignore_lost_log: bool,
}

/// The state restored from the log and the store.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// The last hard state in the log.
    pub hard_state: raftpb::HardState,
    /// Entries after `applied`.
    pub entries: Vec<raftpb::Entry>,
    /// The last few entries up to `applied`, without a gap, as far as they are known: an observer shows by them which history it has.
    pub newest_applied: Vec<raftpb::Entry>,
    /// Index of the last entry the store has applied.
    pub applied: u64,
    /// Term of the last applied entry.
    pub applied_term: u64,
    /// Voters and learners as of `applied`.
    pub conf_state: raftpb::ConfState,
    /// Members of the joined cluster, for a member that has no configuration yet.
    pub joined: Vec<u64>,
    /// The state is an observer's: everything in its log is committed.
    pub observes: bool,
}
