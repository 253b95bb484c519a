//! The peers of a member: sending to them, adding and removing them.

use crate::connector::Connector;
use crate::handler::Handler;
use crate::identity::Identity;
use crate::listener::Listener;
use crate::shared::Shared;
use crate::snapshot::Export;
use crate::timeouts::Timeouts;
use crate::{flusher, metrics, snapshot};
use api::raftpb::Message;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use telemetry::metrics::Page;

/// The options of the protocol between members.
pub struct Options {
    /// This member's id.
    pub member_id: u64,
    /// The cluster's id.
    pub cluster_id: u64,
    /// Its advertised peer URLs, for members that do not know it yet.
    pub urls: Vec<String>,
    /// Opens and accepts connections.
    pub connector: Connector,
    /// The sockets that accept peers.
    pub listeners: Vec<Listener>,
    /// The time limits for peers.
    pub timeouts: Timeouts,
    /// The longest message taken from a peer.
    pub message_bytes_max: usize,
    /// Lowers the priority of the calling thread: called by the threads that send and receive snapshots.
    pub yield_cpu: fn(),
}

/// The peers of a member.
pub struct Peers {
    pub(crate) shared: Arc<Shared>,
    listeners: Mutex<Vec<Listener>>,
}

impl Peers {
    /// Begins to answer peers. A peer is dialled only after [`Peers::set`] has named it.
    pub fn start(options: Options, handler: Arc<dyn Handler>) -> io::Result<Arc<Peers>> {
        let listeners = options.listeners;
        let shared = Arc::new(Shared::new(
            Identity { member_id: options.member_id, cluster_id: options.cluster_id, urls: options.urls.join(",") },
            options.connector,
            options.timeouts,
            options.message_bytes_max,
            options.yield_cpu,
            handler,
        )?);
        flusher::start(shared.clone())?;
        listeners.iter().for_each(|listener| listener.open(&shared));
        Ok(Arc::new(Peers { shared, listeners: Mutex::new(listeners) }))
    }

    /// Adds a member, or changes its URLs: it is dialled from now on.
    pub fn set(&self, id: u64, urls: Vec<String>) {
        self.shared.set(id, urls);
    }

    /// Removes a member: no message is sent to it or taken from it any more.
    pub fn remove(&self, id: u64) {
        self.shared.remove(id);
    }

    /// Sends messages without waiting, all messages to one peer in one write. Messages for which a peer has no room are
    /// dropped and reported. Messages to unknown members are dropped; so are snapshots, for which there is
    /// [`Peers::send_snapshot`].
    pub fn send(&self, messages: &[Message]) {
        self.shared.send(messages);
    }

    /// Sends a snapshot on a thread of its own, which reports to [`Handler::snapshot_sent`] at its end.
    pub fn send_snapshot(&self, message: Message, export: Arc<dyn Export>) {
        snapshot::send(&self.shared, message, export);
    }

    /// Since when the peer has been reachable; `None` if it is not, or is unknown.
    pub fn active_since(&self, id: u64) -> Option<Instant> {
        self.shared.peer(id).and_then(|peer| peer.active_since())
    }

    /// Whether the peer is known to be Cairn's: it has said so when it last dialled this member.
    pub fn is_cairn(&self, id: u64) -> bool {
        self.shared.peer(id).is_some_and(|peer| peer.is_cairn.load(Ordering::SeqCst))
    }

    /// Ends the streams on which this peer sends, after a message that cannot be trusted. The peer is dialled again a
    /// little later.
    pub fn hang_up(&self, id: u64) {
        if let Some(peer) = self.shared.peer(id) {
            peer.hang_up();
        }
    }

    /// Appends etcd's metrics about peers to a page.
    pub fn render(&self, page: &mut Page) {
        let shared = &self.shared;
        let is_active = |id| shared.peer(id).is_some_and(|peer| peer.active_since().is_some());
        shared.places.render(page);
        let name = "cairn_peer_is_cairn";
        page.family(
            name,
            "gauge",
            "Whether a peer is known to be Cairn's: 1; 0: it is etcd's, or has not dialled this member yet.",
        );
        for peer in shared.peers().iter().filter(|peer| peer.is_dialled.load(Ordering::SeqCst)) {
            let id = format!("{:x}", peer.id);
            page.labelled(name, &[("Remote", &id)], u8::from(peer.is_cairn.load(Ordering::SeqCst)));
        }
        metrics::render(&shared.ledger, shared.identity.member_id, is_active, page);
    }

    /// Ends all connections. Threads that are busy end soon afterwards.
    pub fn stop(&self) {
        self.shared.stop();
        for listener in contain::lock(&self.listeners).drain(..) {
            listener.stop();
        }
    }
}
