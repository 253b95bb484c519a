//! Watches: every change of a key range, in order, once.
//!
//! A watcher is a cursor over the revision log plus a filter. A request walks through these files:
//!
//! - [`stream`]: one client stream; takes requests, hands out responses ([`WatchStream::poll`]).
//! - [`spec`], [`watchers`], [`interest`]: what a watcher asked for, the stream's watchers, and those that asked for the same.
//! - [`allowance`]: how many watches a client and a member may have.
//! - [`hub`]: where the applier publishes revisions; matches them ([`matcher`], [`span_tree`], [`items`]) and pushes references.
//! - [`stream_queue`], [`entry_queue`], [`long_queues`]: the bounded queue between the hub and one stream, and the bound for all of them.
//! - [`cohort`], [`catch_up`], [`finds`]: watchers that read the log at their own pace, one bounded read for them, and what it finds.
//! - [`block`], [`chunks`], [`outbox`], [`batch`]: events as bytes, encoded once for all watchers that get them.
//! - [`room`]: memory for events, asked for before they are built.
//! - [`history`]: what watches need from the rest of the store.
//!
//! One number decides who delivers a revision to a watcher. The hub's *level* is the revision up to which it has pushed everything and
//! readers see everything: the applier holds the hub's lock from before it makes a revision visible until it has pushed it. A watcher
//! registers under the hub's lock at level `X`. The hub pushes what comes after `X`; the watcher reads up to `X` from the log first, and
//! its `min_rev` of `X + 1` drops what it might meet twice. A stream whose queue is given up loses it and keeps a revision to
//! resume from, and no event is lost. `docs/design/watch-hub.md` has the whole idea.

mod allowance;
mod batch;
mod block;
mod catch_up;
mod chunks;
mod cohort;
mod entry_queue;
mod event;
mod finds;
mod history;
mod hub;
mod interest;
mod items;
mod long_queues;
mod matcher;
mod metrics;
mod options;
mod outbox;
mod room;
mod span_tree;
mod spec;
mod stream;
mod stream_queue;
mod watchers;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use allowance::{Allowance, Scope};
pub use batch::{Origin, Sink, Wrote};
pub use chunks::Chunks;
pub use event::{Event, Kind};
pub(crate) use history::{History, Record};
pub use hub::{Hub, Publication, Reader, Wake};
pub use metrics::Metrics;
pub use options::Options;
pub use room::Room;
pub use stream::WatchStream;
