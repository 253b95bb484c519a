//! `Maintenance.Snapshot`: the data as an etcd backend file, or what it has more than an earlier one, followed by its SHA-256.

use super::reply::unanswered;
use crate::auth::Permitted;
use crate::auth::rules::Root;
use crate::node::Node;
use api::etcdserverpb::{SnapshotRequest, SnapshotResponse};
use api::{Code, Error, Message, limits};
use bytes::Bytes;
use contain::lock;
use rpc::{Address, Outbound, Status, StreamCall, StreamHandler, StreamWaker};
use sha2::{Digest, Sha256};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
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
    image: Option<Sending>,
    /// What the client has already, if it asked for what came after.
    since: Option<Since>,
    /// Taken once the caller is permitted, so that a client without permission cannot take the places of others.
    _place: Place,
    began: Instant,
    client: Address,
    is_sent: bool,
}

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
    /// The client has gone, or the data could not be read.
    fn drop(&mut self) {
        if let Some(sending) = self.image.as_ref().filter(|_| !self.is_sent) {
            logging::warn(
                "the database snapshot was not sent to its end",
                &[
                    ("total-bytes", sending.total.into()),
                    ("remaining-bytes", sending.remaining.into()),
                    ("remote-addr", Value::Shown(&self.client)),
                ],
            );
        }
    }
}

/// One of the [`limits::SNAPSHOTS_MAX`] places for snapshots that are sent at the same time.
struct Place(Arc<Node>);

impl Place {
    /// A place, if one is free.
    fn take(node: &Arc<Node>) -> Option<Place> {
        let more = |taken: usize| (taken < limits::SNAPSHOTS_MAX).then_some(taken.saturating_add(1));
        let taken = node.snapshots.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Place(node.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.snapshots.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Sending {
    image: Image,
    hash: Sha256,
    total: u64,
    remaining: u64,
    rest: Bytes,
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
        let place = Place::take(node).ok_or(Error::TooManyRequests)?;
        let snapshot = Snapshot {
            node: node.clone(),
            waker: call.waker,
            planned: Planned::default(),
            image: None,
            since,
            _place: place,
            began: Instant::now(),
            client: call.peer.address,
            is_sent: false,
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
        self.node.slow.try_run_while(move || !wanted.is_canceled(), work)
    }

    fn pump(&mut self, out: &mut Outbound<'_>) -> Result<(), Status> {
        if let Some(planned) = lock(&self.planned).take() {
            let image = planned?;
            let remaining = image.len();
            tell("sending database snapshot to client", self.client, remaining, None);
            self.image = Some(Sending { image, hash: Sha256::new(), total: remaining, remaining, rest: Bytes::new() });
        }
        let Some(sending) = &mut self.image else { return Ok(()) };
        for _ in 0..BLOBS_PER_TURN {
            if !out.has_room() {
                return Ok(());
            }
            if !sending.send_blob(self.since.is_some(), out) {
                let took = self.began.elapsed();
                self.node.metrics.disk.snapshot.observe(took);
                self.is_sent = true;
                tell("successfully sent database snapshot to client", self.client, sending.total, Some(took));
                return Ok(());
            }
        }
        self.waker.wake();
        Ok(())
    }
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
