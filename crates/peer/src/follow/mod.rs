//! Observers: processes outside of the cluster's configuration that follow this member, or that this one is and follows another with.
//!
//! ```text
//! observer ──GET /cairn/follow/<id>?after=<index>&term=<term>&tail=<digest>,...──▶ member or observer
//! observer ◀──200, then Raft messages in the frames of etcd's message stream, until one of the two ends it──
//! ```
//!
//! The messages are appends of applied entries, heartbeats with the leader that the sender knows of, and snapshots: the checkpoint, and in the
//! context the id of an export, whose segments the observer fetches ([`crate::snapshot`]) while this connection stays open. An observer is
//! never dialled, and sends nothing here.

mod feed;
mod followers;
mod take;

pub(crate) use feed::{Feeding, serve};
pub(crate) use followers::Followers;
pub use take::{Follow, Unfollowed};

use crate::identity::OBSERVER;
use crate::snapshot::Export;
use api::raftpb::Message;
use http::{HeaderName, StatusCode};
use std::sync::Arc;

/// The path of the stream, before the observer's id.
pub(crate) const PATH: &str = "/cairn/follow/";
/// The name of an observer, and where clients reach it.
const NAME: HeaderName = HeaderName::from_static("x-cairn-name");
const CLIENT_URLS: HeaderName = HeaderName::from_static("x-cairn-client-urls");
/// The way that entries come to an observer: the ids of a member, and of the observers behind it, up to the sender.
const WAY: HeaderName = HeaderName::from_static("x-cairn-way");
/// Digests of entries that are looked at.
const TAIL_MAX: usize = 64;
/// Ids in a way: observers of observers are few.
const WAY_MAX: usize = 16;
/// Limit of the bytes of one message: a checkpoint has the list of segments and all leases.
const MESSAGE_BYTES_MAX: usize = 128 << 20;

/// Whether a call is an observer's.
pub fn is_of_observer<T>(request: &http::Request<T>) -> bool {
    request.headers().contains_key(OBSERVER)
}

/// An observer that wants to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
    /// Index and term of the last entry it has.
    pub last: (u64, u64),
    /// Digests of that entry and those before, as far as it knows them.
    pub tail: Vec<u64>,
}

/// What an observer is sent next.
pub enum Fed {
    /// This message.
    Message(Message),
    /// A snapshot, of which it fetches the segments that it lacks. The feed ends with it: the observer comes again.
    Snapshot(Message, Arc<dyn Export>),
}

/// What one observer is sent.
pub trait Feed: Send {
    /// The ids of those that the entries come through, from a member to this process.
    fn way(&self) -> Vec<u64>;
    /// The next message; a heartbeat if there is no other for the time of one. An error ends the stream.
    fn next(&mut self) -> Result<Fed, String>;
    /// Called every second while the observer fetches a snapshot; an error ends the stream.
    fn goes_on(&mut self) -> Result<(), String>;
}

/// Why an observer may not follow: a status and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The status of the answer.
    pub status: StatusCode,
    /// Its text.
    pub text: String,
}
