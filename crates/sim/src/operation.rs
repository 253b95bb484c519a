//! Operations of clients, and their results.

use api::etcdserverpb::RangeRequest;
use api::mvccpb::KeyValue;
use bytes::Bytes;
use store::Response;

/// A request as it reaches a member.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// A request that goes through the Raft log, with its payload.
    Write(Bytes),
    /// A configuration change, through the Raft log.
    ConfChange(Box<api::raftpb::ConfChange>),
    /// A read, after a read index if it is linearizable.
    Read { range: RangeRequest, linearizable: bool },
    /// The renewal of a lease. Answered by the leader, after a read index.
    KeepAlive { lease: i64 },
    /// A leader transfer to member `to`.
    Transfer { to: u64 },
    /// An observer asks for an index that is not before anything that was acknowledged when it asked.
    ReadIndex,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The entry at `index` was applied, with this result.
    Applied { index: u64, result: Result<Box<Response>, api::Error> },
    /// The result of a read, with the store's revision.
    Read { revision: i64, count: i64, kvs: Vec<KeyValue> },
    /// The lease lives for `ttl_seconds` from the request on.
    Renewed { lease: i64, ttl_seconds: i64 },
    /// The index of the last entry applied, after a read index.
    ReadIndex { applied: u64 },
    /// The request was refused and has no effect, now or later.
    Refused,
    /// The outcome is unknown.
    Unknown,
}

/// One operation of a client, from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Operation {
    /// The client; `None` for requests of the simulator itself.
    pub(crate) client: Option<usize>,
    /// The id in the operation's entry; never 0.
    pub(crate) request_id: u64,
    pub(crate) request: Request,
    /// The token that came with it.
    pub(crate) token: Option<String>,
    pub(crate) invoked_us: u64,
    /// Index of the newest entry whose effect some client knew when this operation began.
    pub(crate) floor: u64,
    /// Index of the applied entry.
    pub(crate) applied: Option<u64>,
    pub(crate) state: State,
}

/// What the client knows of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Done,
    Refused,
    Unknown,
}
