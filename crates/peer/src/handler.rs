//! The interface to the member behind the protocol.

use crate::snapshot::{Image, Intake};
use api::raftpb::Message;
use http::{Request, Response};

/// What this member knows about another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It belongs to the cluster.
    Member,
    /// It was removed, for ever.
    Removed,
    /// It was never heard of; perhaps this member is behind.
    Unknown,
}

/// How messages came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On a stream of the peer that they name as their sender, or pass on a request.
    Stream,
    /// In a request, which anybody can make in any member's name.
    Request,
}

/// The member behind the protocol. Everything is called on threads of this crate, [`Handler::unreachable`] also on the one
/// that calls [`crate::Peers::send`]: nothing here may call back into [`crate::Peers`] and wait for it.
pub trait Handler: Send + Sync {
    /// Messages that a peer sent, in its order. Waits while the queue for them is full.
    fn receive(&self, messages: Vec<Message>, origin: Origin);
    /// A message to this peer was lost. Never waits.
    fn unreachable(&self, id: u64);
    /// A snapshot that [`crate::Peers::send_snapshot`] was given has been installed, or not.
    fn snapshot_sent(&self, id: u64, ok: bool);
    /// A peer offers a snapshot, described by `checkpoint`; says why it is not wanted, or takes it piece by piece.
    fn intake(&self, from: u64, checkpoint: &[u8]) -> Result<Box<dyn Intake>, String>;
    /// A member of etcd sends a snapshot; says why it is not wanted, or takes it.
    fn image(&self, from: u64) -> Result<Box<dyn Image>, String>;
    /// What of the memory that the log may take is in use.
    fn log_usage(&self) -> LogUsage;
    /// What is known about a member.
    fn knows(&self, id: u64) -> Known;
    /// A peer says that this member was removed from the cluster.
    fn removed(&self);
    /// A peer refuses this member because it belongs to another cluster, named by its id.
    fn estranged(&self, peer: u64, theirs: &str);
    /// All other paths of the peer port. The answer is given the cluster's id.
    fn call(&self, request: Request<Vec<u8>>, caller: Caller<'_>) -> Response<Vec<u8>>;
}

/// The caller of a call.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// It has named itself as a member of this cluster.
    pub is_member: bool,
    /// Whether it still waits for the answer.
    pub waits: &'a dyn Fn() -> bool,
}

/// Memory of the log, which keeps the entries after a snapshot that is being sent.
#[derive(Clone, Copy, Debug)]
pub struct LogUsage {
    /// What it takes.
    pub used_bytes: u64,
    /// What it may take; beyond, the snapshot can no longer be used.
    pub max_bytes: u64,
}
