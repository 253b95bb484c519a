//! Talking to the other members, in etcd's peer protocol: HTTP/1.1 as the handshake, framed Raft messages after it.
//!
//! ```text
//! consensus ──send──▶ outgoing: one write, never waiting ──▶ socket ◀── flusher: what did not fit, heartbeats of links
//!              └────▶ courier: POST /raft while no stream is up, probes
//! handler ◀── reader: dials the peer, one per stream ◀── socket
//! handler ◀── connection ◀── listener: streams to be written, POST /raft, snapshots, all other calls
//! ```
//!
//! Each member dials its peers in order to receive. What it sends goes out on the connections that its peers have dialled.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod address;
mod body;
mod chunks;
pub(crate) mod client;
mod codec;
mod connection;
mod courier;
mod door;
mod encrypted;
mod fault;
mod flusher;
mod gate;
mod head;
mod identity;
mod listener;
mod metrics;
mod outgoing;
mod peer;
mod picker;
mod places;
mod probe;
mod reader;
mod routes;
mod shared;
mod snapshot;
mod stream;
#[cfg(test)]
mod tests;
mod waker;
mod wire;

pub(crate) use address::Address;
#[cfg(feature = "test-support")]
pub(crate) use address::LOOPBACK_ONLY;
pub(crate) use gate::{Gate, Security};
pub(crate) use listener::Listener;
pub(crate) use snapshot::{Export, Intake, Piece};

use api::raftpb::Message;
use http::{Request, Response};
use peer::Peer;
use shared::Shared;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The moment so much later; one that no clock can show is as good as a day away.
fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).or_else(|| now.checked_add(Duration::from_secs(24 * 3600))).unwrap_or(now)
}

/// What a member needs to talk to its peers.
pub(crate) struct Options {
    /// This member.
    pub(crate) member_id: u64,
    /// Its cluster.
    pub(crate) cluster_id: u64,
    /// Its advertised peer URLs, for those who do not know it yet.
    pub(crate) urls: Vec<String>,
    /// How connections are made and taken.
    pub(crate) gate: Gate,
    /// Where peers are listened for.
    pub(crate) listeners: Vec<Listener>,
    /// How long peers are waited for.
    pub(crate) timeouts: Timeouts,
    /// The longest message taken from a peer.
    pub(crate) message_bytes_max: usize,
}

/// How long peers are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// A connection may take this long to be established: a second more than an election, as etcd has it.
    pub(crate) dial: Duration,
    /// A stream that is silent for so long is given up; heartbeats go out three times as often.
    pub(crate) read: Duration,
    /// A stream that takes nothing for so long is given up.
    pub(crate) write: Duration,
}

/// What this member knows about another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It belongs to the cluster.
    Member,
    /// It was removed, for ever.
    Removed,
    /// It was never heard of; perhaps this member is behind.
    Unknown,
}

/// How messages came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// On a stream of the peer that they name as their sender, or pass on a request.
    Stream,
    /// In a request, which anybody can make in any member's name.
    Request,
}

/// The member behind the protocol. Everything is called on threads of this module, [`Handler::unreachable`] also on the one
/// that calls [`Peers::send`]: nothing here may call back into [`Peers`] and wait for it.
pub(crate) trait Handler: Send + Sync {
    /// Messages that a peer sent, in its order. Waits while there is no room for them.
    fn receive(&self, messages: Vec<Message>, origin: Origin);
    /// A message to this peer was lost. Never waits.
    fn unreachable(&self, id: u64);
    /// A snapshot that [`Peers::send_snapshot`] was given has been installed, or not.
    fn snapshot_sent(&self, id: u64, ok: bool);
    /// A peer offers a state, described by `checkpoint`; says why it is not wanted, or takes it piece by piece.
    fn intake(&self, from: u64, checkpoint: &[u8]) -> Result<Box<dyn Intake>, String>;
    /// What of the memory that the log may take is in use.
    fn log_room(&self) -> LogRoom;
    /// What is known about a member.
    fn knows(&self, id: u64) -> Known;
    /// A peer says that this member was removed from the cluster.
    fn removed(&self);
    /// A peer refuses this member because it belongs to another cluster, named by its id.
    fn estranged(&self, peer: u64, theirs: &str);
    /// All other paths of the peer port. The answer is given the cluster's id.
    fn call(&self, request: Request<Vec<u8>>, caller: Caller<'_>) -> Response<Vec<u8>>;
}

/// Who makes a call.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    /// It has named itself as a member of this cluster.
    pub(crate) is_member: bool,
    /// Whether it still waits for the answer.
    pub(crate) waits: &'a dyn Fn() -> bool,
}

/// Memory for the log behind a state that is being sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogRoom {
    /// What it takes.
    pub(crate) used_bytes: u64,
    /// What it may take; beyond, the state is of no use any more.
    pub(crate) max_bytes: u64,
}

/// The peers of a member.
pub(crate) struct Peers {
    shared: Arc<Shared>,
    listeners: Mutex<Vec<Listener>>,
}

impl Peers {
    /// Begins to answer peers. None is called before [`Peers::set`] names it.
    pub(crate) fn start(options: Options, handler: Arc<dyn Handler>) -> io::Result<Arc<Peers>> {
        let listeners = options.listeners;
        let shared = Arc::new(Shared::new(
            identity::Identity {
                member_id: options.member_id,
                cluster_id: options.cluster_id,
                urls: options.urls.join(","),
            },
            options.gate,
            options.timeouts,
            options.message_bytes_max,
            handler,
        )?);
        flusher::start(shared.clone())?;
        listeners.iter().for_each(|listener| listener.open(&shared));
        Ok(Arc::new(Peers { shared, listeners: Mutex::new(listeners) }))
    }

    /// A member joined or its URLs changed: it is dialled from now on.
    pub(crate) fn set(&self, id: u64, urls: Vec<String>) {
        self.shared.set(id, urls);
    }

    /// A member is gone: nothing is sent to it or taken from it any more.
    pub(crate) fn remove(&self, id: u64) {
        self.shared.remove(id);
    }

    /// Sends messages, all that go to one peer in one write, and never waits. What a peer has no room for is dropped and
    /// reported. Messages to nobody that is known are dropped; so are snapshots, which go by [`Peers::send_snapshot`].
    pub(crate) fn send(&self, messages: &[Message]) {
        self.shared.send(messages);
    }

    /// Sends a snapshot on a thread of its own, which ends in [`Handler::snapshot_sent`].
    pub(crate) fn send_snapshot(&self, message: Message, export: Arc<dyn Export>) {
        snapshot::send(&self.shared, message, export);
    }

    /// Since when the peer can be reached; `None` if it cannot, or is not known.
    pub(crate) fn active_since(&self, id: u64) -> Option<Instant> {
        self.shared.peer(id).and_then(|peer| peer.active_since())
    }

    /// Ends the streams on which this peer sends: it said what cannot be believed. It is dialled again a little later.
    pub(crate) fn hang_up(&self, id: u64) {
        if let Some(peer) = self.shared.peer(id) {
            peer.hang_up();
        }
    }

    /// Appends etcd's metrics about peers to a page.
    pub(crate) fn render(&self, page: &mut telemetry::metrics::Page) {
        metrics::render(&self.shared, page);
    }

    /// Ends all connections. Threads that are busy end soon afterwards.
    pub(crate) fn stop(&self) {
        self.shared.stop();
        for listener in contain::lock(&self.listeners).drain(..) {
            listener.stop();
        }
    }
}
