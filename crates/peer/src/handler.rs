//! The interface to the member behind the protocol.

use crate::follow::{Feed, Follower, Refused};
use crate::snapshot::{Image, Intake};
use api::raftpb::{Message, SnapshotMetadata};
use http::{Request, Response};

/// What this member knows about another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It belongs to the cluster.
    Member,
    /// It was removed for good.
    Removed,
    /// It is unknown; perhaps this member is behind.
    Unknown,
}

/// How messages came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On a stream of the peer that they name as their sender, or that forwards a request.
    Stream,
    /// In a request, which anyone can make in any member's name.
    Request,
}

/// The member behind the protocol. All methods are called on threads of this crate, and [`Handler::unreachable`] also
/// on the thread that calls [`crate::Peers::send`]. No method may call back into [`crate::Peers`] and wait for it.
pub trait Handler: Send + Sync {
    /// Messages that a peer sent, in its order. Waits while the queue for them is full.
    fn receive(&self, messages: Vec<Message>, origin: Origin);
    /// A message to this peer was lost. Never waits.
    fn unreachable(&self, id: u64);
    /// Reports whether a snapshot of [`crate::Peers::send_snapshot`] has been installed.
    fn snapshot_sent(&self, id: u64, ok: bool);
    /// A peer offers a snapshot, described by `checkpoint`; returns why it is not wanted, or takes it piece by piece.
    fn intake(&self, from: u64, checkpoint: &[u8]) -> Result<Box<dyn Intake>, String>;
    /// A member of etcd sends a snapshot, and can be asked at `urls`; returns why it is not wanted, or takes it.
    fn image(&self, from: u64, urls: Vec<String>, snapshot: &SnapshotMetadata) -> Result<Box<dyn Image>, String>;
    /// An observer wants to follow this process; returns what it is sent, or why it is sent nothing.
    fn follow(&self, follower: &Follower) -> Result<Box<dyn Feed>, Refused> {
        let text = format!("observer {:x} cannot follow this process", follower.id);
        Err(Refused { status: http::StatusCode::NOT_FOUND, text })
    }
    /// The use of the log's memory.
    fn log_usage(&self) -> LogUsage;
    /// The state of a member, as far as this one knows.
    fn knows(&self, id: u64) -> Known;
    /// Called when a peer says that this member was removed from the cluster.
    fn removed(&self);
    /// Called when a peer refuses this member because the peer belongs to another cluster; `theirs` is that cluster's
    /// id.
    fn estranged(&self, peer: u64, theirs: &str);
    /// Serves all other paths of the peer port. The cluster's id is added to the answer.
    fn call(&self, request: Request<Vec<u8>>, caller: Caller<'_>) -> Response<Vec<u8>>;
}

/// The caller of a call.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Whether the caller has named itself as a member of this cluster.
    pub is_member: bool,
    /// Whether the caller still waits for the answer.
    pub waits: &'a dyn Fn() -> bool,
}

/// Memory of the log, which keeps the entries after a snapshot that is being sent.
#[derive(Clone, Copy, Debug)]
pub struct LogUsage {
    /// Memory that the log uses.
    pub used_bytes: u64,
    /// Limit of the log's memory; beyond it, the snapshot can no longer be used.
    pub max_bytes: u64,
}
