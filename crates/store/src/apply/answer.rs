//! What comes out of applying: answers to entries, where they go, and why applying stops.

use super::counts::Counts;
use crate::log;
use crate::state::auth::AuthEvent;
use api::Error;
use api::etcdserverpb::*;
use api::raftpb;
use std::time::Duration;

/// What an entry is answered with. Headers carry the revision; the server fills in ids and term.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Response {
    Put(PutResponse),
    DeleteRange(DeleteRangeResponse),
    Txn(TxnResponse),
    Range(RangeResponse),
    Compaction(CompactionResponse),
    LeaseGrant(LeaseGrantResponse),
    /// With the lease.
    LeaseRevoke(i64, LeaseRevokeResponse),
    LeaseCheckpoint(LeaseCheckpointResponse),
    Alarm(AlarmResponse),
    /// A change of users or roles, and what follows from it. Every answer to one is a header and, for an authentication, a token.
    Auth(AuthenticateResponse, AuthEvent),
    /// Applied; there is nothing to say about it.
    None,
}

/// Where the results of entries go. Called in entry order, once their effects are visible to readers.
pub trait Sink {
    /// What the entries since the last call did, before their results are told.
    fn counted(&mut self, _counts: &Counts) {}
    /// Applying took this much of the processor, for the request that [`Sink::done`] tells next. Only of deletions and transactions, and
    /// only with [`Options::thread_time`](crate::Options).
    fn worked(&mut self, _time: Duration) {}
    /// Whether anybody waits here for the answer to the request with this id. One that nobody waits for is built without the pairs that it
    /// would show.
    fn is_awaited(&self, _request_id: u64) -> bool {
        true
    }
    /// What was told so far holds much memory, and should be given away.
    fn hand_out(&mut self) {}
    /// The request with this id was applied, by the entry at `index`.
    fn done(&mut self, index: u64, request_id: u64, result: Result<Response, Error>);
    /// A configuration change was recorded, and Raft must be told. One that the cluster refuses comes with node id 0, which
    /// changes nothing.
    fn conf_change(&mut self, index: u64, change: raftpb::ConfChange);
    /// An entry passed this member's quota: it was applied as the response says, and is answered with [`Error::NoSpace`]. The NOSPACE
    /// alarm is due. Told before the entry is done.
    fn over_quota(&mut self, response: &Response);
}

/// Applying stopped for good: the member must end.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// The revision log failed.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// A committed entry is no request.
    #[error("cannot decode the committed entry {index}: {source}")]
    Entry {
        /// Of the entry.
        index: u64,
        /// What is wrong with it.
        source: prost::DecodeError,
    },
    /// Entries are missing.
    #[error("entry {found} follows entry {applied}")]
    Gap {
        /// The last entry applied.
        applied: u64,
        /// The entry that came next.
        found: u64,
    },
    /// A snapshot to be installed is older than what was applied.
    #[error(
        "a snapshot of entry {found}, revision {at}, is to replace a state of entry {applied}, revision {revision}"
    )]
    Backwards {
        /// The last entry applied.
        applied: u64,
        /// The revision it left.
        revision: i64,
        /// The last entry of the snapshot to be installed.
        found: u64,
        /// Its revision.
        at: i64,
    },
    /// An earlier entry failed.
    #[error("an earlier entry could not be applied")]
    Failed,
}

/// What a stride has for its [`Sink`] once it is committed.
pub(super) enum Outcome {
    Done { index: u64, request_id: u64, result: Result<Response, Error>, worked: Option<Duration> },
    ConfChange { index: u64, change: raftpb::ConfChange },
    OverQuota(Response),
}

/// A header that carries a revision.
pub(crate) fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision, ..ResponseHeader::default() })
}
