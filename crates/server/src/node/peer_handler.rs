//! The member behind the peer protocol: handles what peers send.

use super::Node;
use super::image::{self, ReceivingImage};
use super::inbox::Install;
use crate::cluster;
use crate::cluster::calls::Hashing;
use crate::observer;
use crate::yield_cpu::yield_to_others;
use api::limits;
use api::raftpb::{Message, MessageType, SnapshotMetadata};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use peer::{
    Caller, Feed, Follower, Handler, Image, Intake, Known, Listener, LogUsage, Origin, OutgoingImage, Peers, Piece,
    Refused, Timeouts,
};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::time::Duration;
use telemetry::logging::{self, Value};

/// The longest message taken from a peer, unless one request may be longer.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Connecting to a peer may take this much longer than an election timeout, as in etcd.
const DIAL_GRACE: Duration = Duration::from_secs(1);

/// Connects to the other members: those in the store, and those that the joined cluster has named.
pub(super) fn start(node: &Arc<Node>, listeners: Vec<Listener>, remotes: Vec<store::Member>) -> io::Result<()> {
    let options = peer::Options {
        member_id: node.member_id,
        cluster_id: node.cluster_id,
        // An observer is never dialled.
        urls: if node.is_observer() { Vec::new() } else { node.config.advertise_peer_urls.clone() },
        connector: node.connector.clone(),
        listeners,
        timeouts: Timeouts {
            dial: node.config.election_timeout + DIAL_GRACE,
            read: node.config.raft_read_timeout,
            write: node.config.raft_write_timeout,
        },
        message_bytes_max: MESSAGE_BYTES_MAX.max(2 * node.config.max_request_bytes),
        yield_cpu: yield_to_others,
    };
    image::remove_leftovers(&node.config.data_dir);
    let link = Link { node: Arc::downgrade(node), hashing: Hashing::default() };
    let peers = Peers::start(options, Arc::new(link))?;
    for member in remotes.into_iter().chain(node.store.members().members.into_values()) {
        if member.id != node.member_id && !node.is_observer() {
            peers.set(member.id, member.peer_urls);
        }
    }
    // It is set only here, so this cannot fail.
    let _ = node.peers.set(peers);
    Ok(())
}

/// The reference is weak: the node owns its peers, and the peers own this handler.
struct Link {
    node: Weak<Node>,
    hashing: Hashing,
}

impl Handler for Link {
    fn receive(&self, mut messages: Vec<Message>, origin: Origin) {
        if let Some(node) = self.node.upgrade() {
            if node.is_observer() {
                // Whatever else members say to each other is not for it.
                messages.retain(|message| message.r#type() == MessageType::MsgProp);
            }
            node.inbox.receive(messages, origin);
        }
    }

    fn unreachable(&self, id: u64) {
        if let Some(node) = self.node.upgrade() {
            node.inbox.unreachable(id);
        }
    }

    fn snapshot_sent(&self, id: u64, ok: bool) {
        if let Some(node) = self.node.upgrade() {
            node.inbox.snapshot_sent(id, ok);
        }
    }

    fn intake(&self, from: u64, checkpoint: &[u8]) -> Result<Box<dyn Intake>, String> {
        failpoint::point!(SNAPSHOT_BEFORE_RECEIVE);
        let node = self.node.upgrade().ok_or("the member stops")?;
        let intake = store::Intake::begin(&node.store, from, checkpoint).map_err(|error| error.to_string())?;
        logging::info(
            "receiving a snapshot",
            &[("from", Value::Shown(&format_args!("{from:x}"))), ("snapshot-index", intake.index().into())],
        );
        Ok(Box::new(Receiving { node, intake }))
    }

    fn image(&self, from: u64, urls: Vec<String>, snapshot: &SnapshotMetadata) -> Result<Box<dyn Image>, String> {
        let node = self.node.upgrade().ok_or("the member stops")?;
        let applied = node.status.applied();
        if snapshot.index() <= applied {
            return Err(format!("it ends at entry {}, and this member has applied entry {applied}", snapshot.index()));
        }
        Ok(Box::new(ReceivingImage::begin(node, from, urls)?))
    }

    fn follow(&self, follower: &Follower) -> Result<Box<dyn Feed>, Refused> {
        match self.node.upgrade() {
            Some(node) => observer::feed(&node, follower),
            None => Err(Refused { status: StatusCode::SERVICE_UNAVAILABLE, text: "the process stops".into() }),
        }
    }

    fn log_usage(&self) -> LogUsage {
        let used_bytes = self.node.upgrade().map_or(0, |node| node.status.log_bytes());
        LogUsage { used_bytes, max_bytes: limits::LOG_MEMORY_SENDING_BYTES_MAX }
    }

    fn knows(&self, id: u64) -> Known {
        let Some(node) = self.node.upgrade() else { return Known::Unknown };
        let members = node.store.members();
        match (members.members.contains_key(&id), members.removed.contains(&id)) {
            (true, _) => Known::Member,
            (false, true) => Known::Removed,
            (false, false) => Known::Unknown,
        }
    }

    fn removed(&self) {
        if let Some(node) = self.node.upgrade() {
            node.retire();
        }
    }

    fn estranged(&self, peer: u64, theirs: &str) {
        if let Some(node) = self.node.upgrade() {
            node.estranged(peer, theirs);
        }
    }

    fn call(&self, request: Request<Vec<u8>>, caller: Caller<'_>) -> Response<Vec<u8>> {
        match self.node.upgrade() {
            Some(node) => cluster::calls::call(&node, &request, caller, &self.hashing),
            None => {
                let mut stopped = Response::new(b"the member stops".to_vec());
                *stopped.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                stopped
            }
        }
    }
}

/// A snapshot that is being received.
struct Receiving {
    node: Arc<Node>,
    intake: store::Intake,
}

impl Intake for Receiving {
    fn needed(&self) -> Vec<Piece> {
        let pieces = self.intake.needed().into_iter();
        pieces.map(|(segment, from, length)| Piece { segment, from, length }).collect()
    }

    fn write(&mut self, segment: u32, offset: u64, bytes: &[u8]) -> Result<(), String> {
        self.intake.write(segment, offset, bytes).map_err(|error| error.to_string())
    }

    fn install(self: Box<Self>, message: Message) -> Result<(), String> {
        install(&self.node, self.intake.finish().map_err(|error| error.to_string())?, message)
    }
}

/// A snapshot of the store as peers fetch it.
pub(super) struct Sending {
    pub(super) export: Arc<store::Export>,
    pub(super) node: Weak<Node>,
}

impl peer::Export for Sending {
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.export).addr()
    }

    fn checkpoint(&self) -> Result<Bytes, String> {
        self.export.checkpoint().map_err(|error| error.to_string())
    }

    fn read(&self, segment: u32, offset: u64, length: usize) -> Result<Bytes, String> {
        self.export.read(segment, offset, length).map_err(|error| error.to_string())
    }

    fn image(&self) -> Result<OutgoingImage, String> {
        let node = self.node.upgrade().ok_or("the member stops")?;
        let (snapshot, mut image) =
            node.snapshot(&|| !node.stopping.load(Ordering::Relaxed)).map_err(|unread| format!("{unread:?}"))?;
        Ok(OutgoingImage { snapshot, length: image.len(), next: Box::new(move |max| image.next(max)) })
    }
}

/// Makes what was received this member's store.
pub(super) fn install(node: &Node, prepared: store::Prepared, message: Message) -> Result<(), String> {
    let (answer, answered) = sync_channel(1);
    node.inbox.install(Install { message, prepared, source: answer });
    // The sender is dropped without a result when the member stops.
    answered.recv().unwrap_or_else(|_| Err("the member stops".into()))
}
