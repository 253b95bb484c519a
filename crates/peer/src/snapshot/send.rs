//! Announcing a snapshot to a peer, and waiting until it has it.

use super::{ANNOUNCEMENT, EXPORT, Export, OutgoingImage, PIECE_BYTES};
use crate::client::Connection;
use crate::fault::Fault;
use crate::peer::Peer;
use crate::pipeline::judge;
use crate::shared::Shared;
use api::Message as _;
use api::raftpb::Message;
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// A receiver that is silent for this long counts as gone; it reports every second.
const PATIENCE: Duration = Duration::from_secs(10);

/// A member of etcd says nothing until it has written and synced all of an image. One of Cairn's says every second that it goes on.
const IMAGE_PATIENCE: Duration = Duration::from_secs(300);

/// Sends a snapshot on a thread of its own.
pub(crate) fn send(shared: &Arc<Shared>, message: Message, export: Arc<dyn Export>) {
    let to = message.to();
    let run = {
        let shared = shared.clone();
        move || run(&shared, &message, &export)
    };
    if let Err(error) = std::thread::Builder::new().name("snapshot-send".into()).spawn(run) {
        logging::warn("failed to send database snapshot", &[("error", Value::Shown(&error))]);
        shared.handler.snapshot_sent(to, false);
    }
}

fn run(shared: &Arc<Shared>, message: &Message, export: &Arc<dyn Export>) {
    (shared.yield_cpu)();
    let to = message.to();
    let index =
        message.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref()).map_or(0, |meta| meta.index());
    let id = shared.exports.begin(export);
    let name = format!("{to:x}");
    let fields = [("snapshot-index", Value::from(index)), ("remote-peer-id", Value::from(&name))];
    logging::info("sending database snapshot", &fields);
    let peer = shared.peer(to);
    let counters = shared.counters(to);
    let began = Instant::now();
    counters.snapshots_sent.under_way.fetch_add(1, Ordering::Relaxed);
    let outcome = match &peer {
        Some(peer) if peer.is_cairn.load(Ordering::SeqCst) => post(shared, peer, message, &**export, id),
        Some(peer) => post_image(shared, peer, message, &**export),
        None => Err("the member is not known (any more)".into()),
    };
    counters.snapshots_sent.under_way.fetch_sub(1, Ordering::Relaxed);
    shared.exports.end(id, outcome.is_ok());
    match &outcome {
        Ok(()) => {
            counters.snapshots_sent.succeeded.fetch_add(1, Ordering::Relaxed);
            counters.snapshots_sent.took.observe(began.elapsed());
            if let Some(peer) = &peer {
                peer.activate();
            }
            logging::info("sent database snapshot", &fields);
        }
        Err(error) => {
            counters.snapshots_sent.failed.fetch_add(1, Ordering::Relaxed);
            counters.sent_failures.fetch_add(1, Ordering::Relaxed);
            let [index, remote] = fields;
            logging::warn("failed to send database snapshot", &[index, remote, ("error", error.into())]);
        }
    }
    shared.handler.snapshot_sent(to, outcome.is_ok());
    // Drops old exports that broken transfers have left.
    shared.exports.forget_old();
}

/// Sends a database of etcd's. Cairn's members take it, too: for a peer that has not said what it is.
fn post_image(shared: &Shared, peer: &Peer, message: &Message, export: &dyn Export) -> Result<(), String> {
    let OutgoingImage { snapshot, length, mut next } = export.image()?;
    let metadata = snapshot.metadata.clone().unwrap_or_default();
    let conf_state = metadata.conf_state.clone().unwrap_or_default();
    if metadata.term() > message.term()
        || !conf_state.voters.iter().chain(&conf_state.learners).any(|id| *id == peer.id)
    {
        return Err("the database has changes of another leader, or the member was removed meanwhile".into());
    }
    let message = Message { snapshot: Some(snapshot), ..message.clone() }.encode_to_vec();
    logging::info(
        "the snapshot goes to a member that is not known to be Cairn's: sending a database image",
        &[("remote-peer-id", Value::Shown(&format_args!("{:x}", peer.id))), ("bytes", length.into())],
    );
    let mut head = Some([&(message.len() as u64).to_be_bytes()[..], &message].concat());
    let all = length.saturating_add(message.len() as u64).saturating_add(8);
    let mut left = length;
    let piece = || {
        if let Some(head) = head.take() {
            return Ok(Some(Bytes::from(head)));
        }
        if shared.is_stopping() {
            return Err(Fault::Closed);
        }
        let piece = next(PIECE_BYTES);
        let bytes = piece.as_ref().map_or(0, |piece| piece.len() as u64);
        let wait = shared.exports.wait(bytes, left, shared.handler.log_usage(), Instant::now());
        left = left.saturating_sub(bytes);
        if !wait.is_zero() {
            shared.pause(wait);
        }
        Ok(piece)
    };
    let url = peer.urls.pick();
    let request = request(shared, "/raft/snapshot").map_err(|error| error.to_string())?;
    let answer = Connection::open(&shared.connector, &url, shared.timeouts.dial)
        .and_then(|connection| connection.exchange_pieces(&request, all, piece, IMAGE_PATIENCE))
        .map_err(|error| error.to_string())
        .and_then(|answer| judge(shared, peer, &answer))
        .inspect_err(|_| peer.urls.failed(&url));
    if answer.is_ok() {
        peer.counters.sent_bytes.fetch_add(all, Ordering::Relaxed);
    }
    answer
}

/// A POST without a body.
fn request(shared: &Shared, path: &str) -> Result<Request<()>, http::Error> {
    let mut request = Request::post(path).body(())?;
    *request.headers_mut() = shared.headers.clone();
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(request)
}

fn post(shared: &Shared, peer: &Peer, message: &Message, export: &dyn Export, id: u64) -> Result<(), String> {
    let mut body = Vec::new();
    for part in [&message.encode_to_vec()[..], &export.checkpoint()?] {
        body.extend_from_slice(&(part.len() as u64).to_be_bytes());
        body.extend_from_slice(part);
    }
    let length = body.len() as u64;
    let mut request = request(shared, ANNOUNCEMENT).map_err(|error| error.to_string())?.map(|()| body);
    request.headers_mut().insert(EXPORT, crate::identity::hex(id));
    let url = peer.urls.pick();
    let answer = Connection::open(&shared.connector, &url, shared.timeouts.dial)
        .and_then(|mut connection| connection.exchange(&request, PATIENCE))
        .map_err(|error| error.to_string())
        .and_then(|answer| {
            if answer.status() == StatusCode::NOT_FOUND {
                // A member of etcd runs under this id by now: the next attempt sends a database.
                peer.is_cairn.store(false, Ordering::SeqCst);
            }
            judge(shared, peer, &answer)
        })
        .inspect_err(|_| peer.urls.failed(&url));
    if answer.is_ok() {
        peer.counters.sent_bytes.fetch_add(length, Ordering::Relaxed);
    }
    answer
}
