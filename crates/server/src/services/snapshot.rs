//! `Maintenance.Snapshot`: the data as an etcd backend file, or what it has more than an earlier one, followed by its SHA-256.

use super::reply::unanswered;
use super::snapshot_places::{Place, Places};
use crate::auth::Permitted;
use crate::auth::rules::Root;
use crate::node::Node;
use api::etcdserverpb::{SnapshotRequest, SnapshotResponse};
use api::{Code, Error, Message};
use bytes::Bytes;
use contain::lock;
use rpc::{Address, Outbound, Status, StreamCall, StreamHandler, StreamWaker};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};
use store::Image;
use store::increment::Since;
use telemetry::logging::{self, Value};

/// Bytes of the file in one message, as etcd cuts it.
const BLOB_BYTES: usize = 32 * 1024;
/// Blobs that are sent in a row before other streams of the connection get their turn.
const BLOBS_PER_TURN: usize = 8;

/// The planned file. The slow pool plans it, because that walks all records.
type Planned = Arc<Mutex<Option<Result<Image, Status>>>>;

/// One Snapshot call.
pub(super) struct Snapshot {
    node: Arc<Node>,
    waker: StreamWaker,
    planned: Planned,
    /// What the client has already, if it asked for what came after.
    since: Option<Since>,
    /// Taken once the caller is permitted, so that a client without permission cannot take the places of others.
    place: Arc<Place<Sending>>,
    began: Instant,
    client: Address,
}

/// The snapshots that clients are being sent.
pub(crate) type ClientSnapshots = Places<Sending>;

/// A line about a snapshot.
fn tell(text: &str, client: Address, bytes: u64, took: Option<Duration>) {
    let size = logging::size(bytes);
    let took = took.map(|took| format!("{took:?}"));
    let mut fields = vec![
        ("total-bytes", bytes.into()),
        ("size", (&size).into()),
        ("remote-addr", Value::Shown(&client)),
        ("storage-version", api::version::STORAGE.into()),
    ];
    fields.extend(took.as_ref().map(|took| ("took", took.into())));
    logging::info(text, &fields);
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.node.snapshots.leave(&self.place);
    }
}

/// A snapshot that is planned and not sent to its end.
pub(crate) struct Sending {
    image: Image,
    hash: Sha256,
    total: u64,
    remaining: u64,
    rest: Bytes,
    client: Address,
    is_sent: bool,
}

impl Drop for Sending {
    /// The client has gone or takes nothing, or the data could not be read.
    fn drop(&mut self) {
        if !self.is_sent {
            logging::warn(
                "the database snapshot was not sent to its end",
                &[
                    ("total-bytes", self.total.into()),
                    ("remaining-bytes", self.remaining.into()),
                    ("remote-addr", Value::Shown(&self.client)),
                ],
            );
        }
    }
}

impl Snapshot {
    pub(super) fn begin(
        node: &Arc<Node>,
        call: StreamCall,
        request: Permitted<Root, SnapshotRequest>,
    ) -> Result<Snapshot, Status> {
        let since = request.since.map(|since| Since {
            revision: since.revision,
            compact_revision: since.compact_revision,
            start: since.start,
        });
        let waker = Waker::from(Arc::new(call.waker.clone()));
        let client = call.peer.address;
        let place = node.snapshots.take(client, waker, Instant::now()).ok_or(Error::TooManyRequests)?;
        let snapshot = Snapshot {
            node: node.clone(),
            waker: call.waker,
            planned: Planned::default(),
            since,
            place,
            began: Instant::now(),
            client,
        };
        if snapshot.plan() { Ok(snapshot) } else { Err(Error::TooManyRequests.into()) }
    }

    fn plan(&self) -> bool {
        let (node, planned, since) = (self.node.clone(), self.planned.clone(), self.since);
        let (waker, wanted) = (self.waker.clone(), self.waker.clone());
        let work = move || {
            let wanted = || !waker.is_canceled();
            let image = match since {
                None => node.snapshot(&wanted).map(|(_, image)| image).map_err(|unread| unanswered(&node, unread)),
                Some(since) => increment(&node, &since, &wanted),
            };
            *lock(&planned) = Some(image);
            waker.wake();
        };
        self.node.slow.try_run_while(Some(self.client), move || !wanted.is_canceled(), work)
    }

    fn pump(&mut self, out: &mut Outbound<'_>) -> Result<(), Status> {
        let mut seat = self.place.seat();
        if let Some(idle) = seat.ended() {
            let why = format!("the client of the snapshot took nothing of it for {} s", idle.as_secs());
            return Err(Status::new(Code::ResourceExhausted, why));
        }
        if let Some(planned) = lock(&self.planned).take() {
            let image = planned?;
            let (total, client) = (image.len(), self.client);
            tell("sending database snapshot to client", client, total, None);
            let (hash, rest) = (Sha256::new(), Bytes::new());
            seat.snapshot = Some(Sending { image, hash, total, remaining: total, rest, client, is_sent: false });
        }
        let Some(sending) = &mut seat.snapshot else { return Ok(()) };
        for _ in 0..BLOBS_PER_TURN {
            if !out.has_room() {
                break;
            }
            if !sending.send_blob(self.since.is_some(), out) {
                let took = self.began.elapsed();
                self.node.metrics.disk.snapshot.observe(took);
                sending.is_sent = true;
                tell("successfully sent database snapshot to client", self.client, sending.total, Some(took));
                seat.snapshot = None;
                drop(seat);
                // What is queued needs no place.
                self.node.snapshots.leave(&self.place);
                return Ok(());
            }
        }
        // A stream within the process may not be called again before its client has taken something, room or not.
        let left = (sending.remaining, out.left_bytes());
        seat.waits(left, Instant::now());
        if out.has_room() {
            self.waker.wake();
        }
        Ok(())
    }
}

/// Looks after the snapshots that clients take nothing of.
pub(super) fn look(node: &Node) {
    node.snapshots.look(Instant::now());
}

/// What came after `since`.
fn increment(node: &Node, since: &Since, wanted: &dyn Fn() -> bool) -> Result<Image, Status> {
    loop {
        let job = node.capture()?;
        job.check_since(since).map_err(|why| Status::new(Code::FailedPrecondition, why))?;
        let image = job.increment_while(since, node.cluster_id, wanted).map_err(|unread| unanswered(node, unread))?;
        if let Some(image) = image {
            return Ok(image);
        }
    }
}

impl Sending {
    /// Sends one blob; after the last one the hash. False when all is sent.
    fn send_blob(&mut self, increment: bool, out: &mut Outbound<'_>) -> bool {
        if self.rest.is_empty() {
            self.rest = self.image.next(BLOB_BYTES * BLOBS_PER_TURN).unwrap_or_default();
        }
        let ended = self.rest.is_empty();
        let blob = if ended {
            assert!(self.remaining == 0, "the snapshot file is shorter than planned");
            Bytes::copy_from_slice(&self.hash.finalize_reset())
        } else {
            let blob = self.rest.split_to(self.rest.len().min(BLOB_BYTES));
            self.hash.update(&blob);
            let remaining = self.remaining.checked_sub(blob.len() as u64);
            self.remaining = remaining.unwrap_or_else(|| unreachable!("the snapshot file is longer than planned"));
            blob
        };
        let version = api::version::STORAGE.to_string();
        let response = SnapshotResponse { header: None, remaining_bytes: self.remaining, blob, version, increment };
        out.send(response.encode_to_vec().into());
        if ended {
            out.finish(Status::OK);
        }
        !ended
    }
}

impl StreamHandler for Snapshot {
    fn message(&mut self, _message: Bytes, _out: &mut Outbound<'_>) {}

    fn half_closed(&mut self, _out: &mut Outbound<'_>) {}

    fn ready(&mut self, out: &mut Outbound<'_>) {
        if let Err(status) = self.pump(out) {
            out.finish(status);
        }
    }
}
