//! Snapshots between members. The sender announces the parts of a snapshot; the receiver fetches those that it lacks, so that a broken
//! transfer continues where it was.
//!
//! ```text
//! sender ──POST /cairn/snapshot, X-Cairn-Snapshot: <export>──▶ receiver     MsgSnap and the checkpoint
//! sender ◀──GET /cairn/snapshot/<export>/segment/<id>?from=&length=&left=── receiver, as often as it needs
//! sender ◀──102, every second while it works; at last 204────── receiver
//! ```
//!
//! A leader that is etcd sends the message and a database image in one body, and gets one answer ([`Image`]).

mod exports;
mod fetch;
mod image;
mod pace;
mod receive;
mod receiving;
mod send;
mod serve;

pub(crate) use exports::Exports;
pub(crate) use receive::{receive, receive_image, take};
pub(crate) use receiving::Receiving;
pub(crate) use send::send;
pub(crate) use serve::serve;

use api::raftpb::{Message, Snapshot};
use bytes::Bytes;
use http::HeaderName;

/// The path of an announcement. A member of etcd does not know it; it would take an announcement for its database.
pub(crate) const ANNOUNCEMENT: &str = "/cairn/snapshot";
/// The paths of the pieces of an export.
pub(crate) const PATH: &str = "/cairn/snapshot/";
/// The header with the id of the export to fetch. etcd sends a database image instead.
const EXPORT: HeaderName = HeaderName::from_static("x-cairn-snapshot");
/// Bytes read from an export or written to an intake at once: a fraction of a millisecond
/// of work, so that others get the processor in between.
const PIECE_BYTES: usize = 128 << 10;

/// A snapshot that is kept until it is sent.
pub trait Export: Send + Sync {
    /// Identifies this snapshot among those kept at the same time: a second offer of it continues where the first broke off.
    fn identity(&self) -> usize;
    /// The checkpoint of the snapshot, in the store's encoding. The first call may read the whole snapshot.
    fn checkpoint(&self) -> Result<Bytes, String>;
    /// Reads bytes of a segment; fewer than `length` only at the segment's end.
    fn read(&self, segment: u32, offset: u64, length: usize) -> Result<Bytes, String>;
    /// The same as a database of etcd's, for a member that is not known to be Cairn's. It may be newer.
    fn image(&self) -> Result<OutgoingImage, String>;
}

/// A database image to be sent.
pub struct OutgoingImage {
    /// What Raft is told of it.
    pub snapshot: Snapshot,
    /// Bytes of the whole image.
    pub length: u64,
    /// The next bytes, at most so many; none at the end.
    pub next: Box<dyn FnMut(usize) -> Option<Bytes> + Send>,
}

/// Bytes of a segment that the receiver lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The segment.
    pub segment: u32,
    /// The first byte.
    pub from: u64,
    /// The number of bytes.
    pub length: u64,
}

/// A snapshot that is being received. If it is dropped before it is complete, the received bytes are kept for the next
/// attempt.
pub trait Intake: Send {
    /// The pieces that are missing.
    fn needed(&self) -> Vec<Piece>;
    /// Takes a part of a piece; parts of a piece come in order.
    fn write(&mut self, segment: u32, offset: u64, bytes: &[u8]) -> Result<(), String>;
    /// Checks all of it and makes it this member's store; `message` goes to consensus. Returns once that is done.
    fn install(self: Box<Self>, message: Message) -> Result<(), String>;
}

/// The database image of an etcd member that is being received. Dropped half-way, it is gone.
pub trait Image: Send {
    /// Takes the next bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<(), String>;
    /// Checks all of it and makes it this member's store; `message` goes to consensus. Returns once that is done.
    fn install(self: Box<Self>, message: Message) -> Result<(), String>;
}
