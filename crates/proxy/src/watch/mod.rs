//! Watches of clients that ask the same share one watch at a member.
//!
//! [`Hub`] decides everything and does no I/O: what clients ask, what a member sends, streams that come and go and the time go in; what
//! clients are told and a member is asked comes out ([`Output`]). A hub is for clients with the same credentials: others have hubs, and so
//! watches at members, of their own.
//!
//! Each watch of a client begins as a watch of its own at a member (a [`Feed`](feed::Feed)), which says whether it is permitted, and from
//! which revision it is. When two feeds of the same keys have come so far that the recent events of one begin where the other one is,
//! the watches of the smaller join the larger, get what they lack from those recent events, and the member is told to end the other.
//! Watches of a part of what a feed has join it as well; `audience` has them by what they want.
//! A client that does not take its events has its watches taken off their feeds: they begin anew, from where they were, when it does.
//! What may take long is done a little at a time ([`Hub::work`]): feeds that are joined with others or broken up, and the watches of clients
//! that have stalled, have resumed or have gone.
//!
//! A message of a member is kept once however many watches are told of it: `picked` says which of its events each is sent.
//!
//! `circles` has a hub for each identity. `thread` carries out what they want, `turns` decides whose work is next, `lanes` are the streams
//! to members, `client` those of clients.

mod audience;
mod circles;
mod client;
mod feed;
mod hub;
mod lanes;
mod message;
mod mistake;
mod picked;
#[cfg(test)]
mod tests;
mod thread;
mod turns;

pub(crate) use circles::{CircleId, Circles};
pub(crate) use client::{Mailbox, Watching};
pub(crate) use feed::Live;
pub(crate) use hub::{Hub, Output};
pub(crate) use message::{Telling, encode};
pub(crate) use thread::{Command, Gauges, start};

use bytes::Bytes;

/// A stream of a client.
pub(crate) type ClientId = u64;
/// A watch, as its client calls it.
pub(crate) type WatchId = i64;
/// The watch of an answer that is about no single one: a refused one has no number, and the progress that a client asks for is that of all.
pub(crate) const NO_WATCH: WatchId = -1;
/// A watch, as members call it.
pub(crate) type FeedId = i64;

/// What two watches must have in common to share a feed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    pub(crate) key: Bytes,
    pub(crate) range_end: Bytes,
    /// Events come with what was there before.
    pub(crate) prev_kv: bool,
    /// Neither puts nor deletions are wanted: a member sends none, however old the revision is at which it begins.
    pub(crate) no_events: bool,
}
