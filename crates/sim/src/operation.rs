//! Operations of clients, and their results.

use api::etcdserverpb::RangeRequest;
use api::mvccpb::KeyValue;
use bytes::Bytes;
use store::Response;

/// A request as it reaches a member.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Goes through the Raft log, as this payload.
    Write(Bytes),
    /// A configuration change, through the Raft log.
    ConfChange(Box<api::raftpb::ConfChange>),
    /// A read, after a read index if it is linearizable.
    Read { range: RangeRequest, linearizable: bool },
    /// A lease is to live for its whole time again. Answered by the leader, after a read index.
    KeepAlive { lease: i64 },
    /// The leader hands over.
    Transfer { to: u64 },
}

/// What came of a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The entry at `index` was applied, with this result.
    Applied { index: u64, result: Result<Box<Response>, api::Error> },
    /// What was read, at which revision of the store.
    Read { revision: i64, count: i64, kvs: Vec<KeyValue> },
    /// The lease lives for so many seconds from the request on.
    Renewed { lease: i64, ttl_seconds: i64 },
    /// Refused before anything was done: the request has no effect, now or later.
    Refused,
    /// Nobody knows what came of it.
    Unknown,
}

/// One operation of a client, from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Of the client; `None` for what the simulator does itself.
    pub(crate) client: Option<usize>,
    /// Names its entry; never 0.
    pub(crate) request_id: u64,
    pub(crate) request: Request,
    pub(crate) invoked_us: u64,
    /// Index of the newest entry whose effect some client knew when this operation began.
    pub(crate) floor: u64,
    /// Where it was applied.
    pub(crate) applied: Option<u64>,
    pub(crate) state: State,
}

/// What the client of an operation knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Done,
    Refused,
    Unknown,
}
