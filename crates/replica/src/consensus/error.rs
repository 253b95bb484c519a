//! Why a member does not take an input.

use crate::consensus::proof::Proof;
use crate::consensus::step::Refusal;
use api::raftpb;

/// Why a member cannot start or does not take an input.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// raft-rs refused.
    #[error("raft: {0}")]
    Raft(#[from] raft::Error),
    /// An index or a term that no cluster can reach.
    #[error("{0} is not a possible index or term: the data directory was damaged or made up")]
    Number(u64),
    /// A configuration that no cluster has.
    #[error("the members in the store are not a valid configuration: {0:?}; the data directory was damaged or made up")]
    Configuration(raftpb::ConfState),
    /// The log does not continue where the store ends.
    #[error("the log starts at entry {first}, but the store needs it from {wanted} on")]
    Gap {
        /// First entry in the log.
        first: u64,
        /// First entry needed.
        wanted: u64,
    },
    /// A committed entry is not in the log.
    #[error(
        "entry {commit} was committed, but the log that is to be replayed ends at entry {last}: the Raft log was truncated or lost"
    )]
    Uncommitted {
        /// Last entry that was committed.
        commit: u64,
        /// Last entry in the log.
        last: u64,
    },
    /// A leader has proven that this member's log lost what it acknowledged: the member must end, and must not start again.
    #[error("{0}")]
    LogLost(#[from] Proof),
    /// No leader takes the proposal now.
    #[error("no leader takes proposals")]
    Dropped,
    /// The leader holds as many uncommitted proposals as it may.
    #[error("too many proposals wait for the followers")]
    Full,
    /// Only a leader can do this.
    #[error("this member does not lead")]
    NotLeader,
    /// No voter would be left.
    #[error("the only voter cannot be removed")]
    LastVoter,
    /// Leadership can go to a voter only.
    #[error("member {0:x} is not a voter")]
    NotVoter(u64),
    /// A peer sent a message that no honest peer sends.
    #[error("refused a message: {0}")]
    Message(#[from] Refusal),
}
