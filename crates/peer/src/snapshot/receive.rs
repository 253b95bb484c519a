//! Taking a snapshot that a peer offers.

use super::fetch::Fetch;
use super::receiving::Turn;
use super::{EXPORT, Intake, image};
use crate::address::Address;
use crate::answers::{Next, Refusal, answer, forbidden, refusal, require};
use crate::codec::is_swollen;
use crate::fault::Fault;
use crate::handler::Known;
use crate::head::RequestHead;
use crate::identity::{self, PEER_URLS};
use crate::large_body::large_body;
use crate::rejection::rejected;
use crate::sender::{check, note_sender};
use crate::shared::Shared;
use crate::wire::Wire;
use api::raftpb::{Message, MessageType};
use api::unread;
use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, Response, StatusCode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// Bytes of an announcement: the message with the membership in it, and the checkpoint with its list of segments and its leases.
const ANNOUNCEMENT_BYTES_MAX: usize = 128 << 20;
/// How often the sender is told that the transfer continues.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// What it is told.
pub(super) const PROGRESS: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";

/// `POST /cairn/snapshot`: another member of Cairn's.
pub(crate) fn receive(shared: &Arc<Shared>, wire: &mut Wire, head: &RequestHead, address: &str) -> Result<Next, Fault> {
    let headers = head.request.headers();
    let answered = match require(Method::POST, "POST", &head.request).and_then(|()| check(shared, headers)) {
        Err(refusal) => Err(refusal),
        Ok(()) => match announced(shared, wire, head, address)? {
            Ok((message, checkpoint, export)) => Ok(transfer(shared, wire, headers, message, checkpoint, export)?),
            Err(refusal) => Err(refusal),
        },
    };
    answer(shared, wire, head, counted(shared, answered))
}

/// `POST /raft/snapshot`, as members of etcd send it.
pub(crate) fn receive_image(
    shared: &Arc<Shared>,
    wire: &mut Wire,
    head: &RequestHead,
    address: &str,
) -> Result<Next, Fault> {
    let answered =
        match require(Method::POST, "POST", &head.request).and_then(|()| check(shared, head.request.headers())) {
            Err(refusal) => Err(refusal),
            Ok(()) => image::receive(shared, wire, head, address)?,
        };
    answer(shared, wire, head, counted(shared, answered))
}

fn counted(shared: &Shared, answered: Answered) -> Response<Vec<u8>> {
    answered.unwrap_or_else(|refusal| {
        shared.ledger.count_unknown();
        *refusal
    })
}

/// The answer to a snapshot that was taken, or why it was refused before any of it was.
pub(super) type Answered = Result<Response<Vec<u8>>, Refusal>;

/// An offered snapshot: the message, the checkpoint, and the export's id.
type Announcement = (Message, Bytes, u64);

fn announced(
    shared: &Arc<Shared>,
    wire: &mut Wire,
    head: &RequestHead,
    address: &str,
) -> Result<Result<Announcement, Refusal>, Fault> {
    let bad = |text: &str| {
        rejected(address, &text);
        Ok(Err(refusal(StatusCode::BAD_REQUEST, text).into()))
    };
    let headers = head.request.headers();
    note_sender(shared, headers);
    let Some(export) = identity::text(headers, &EXPORT).and_then(identity::parse_id) else {
        return bad("which export is offered is not said");
    };
    let mut body = large_body(shared, wire, head, ANNOUNCEMENT_BYTES_MAX)?;
    let mut rest = body.bytes.split().freeze();
    let (Some(message), Some(checkpoint)) = (part(&mut rest), part(&mut rest)) else {
        return bad("failed to decode raft message (an announcement that is too short)");
    };
    Ok(checked(shared, message, address).map(|message| (message, checkpoint, export)))
}

/// The message that a snapshot belongs to, if this member may take it.
pub(super) fn checked(shared: &Shared, message: Bytes, address: &str) -> Result<Message, Refusal> {
    let bad = |text: &str| {
        rejected(address, &text);
        Err(refusal(StatusCode::BAD_REQUEST, text).into())
    };
    if is_swollen(&message) {
        return bad("failed to decode raft message (with more in it than members send)");
    }
    let message = match unread::decode::<Message>(message) {
        Ok(message) => message,
        Err(error) => return bad(&format!("failed to decode raft message ({error})")),
    };
    let named = message.snapshot.as_ref().is_some_and(|snapshot| snapshot.metadata.is_some());
    if message.r#type() != MessageType::MsgSnap || !named {
        return bad("wrong raft message type");
    }
    if shared.handler.knows(message.from()) == Known::Removed {
        return Err(forbidden("cannot process message from removed member").into());
    }
    if message.to() != shared.identity.member_id {
        let text = "cannot process message to mismatch member";
        return Err(refusal(StatusCode::PRECONDITION_FAILED, text).into());
    }
    Ok(message)
}

/// Takes a part: eight bytes of length, and that many bytes.
fn part(rest: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(rest.try_get_u64().ok()?).ok()?;
    (length <= rest.len()).then(|| rest.split_to(length))
}

/// Fetches and installs the snapshot on another thread, while this one tells the sender that the transfer continues.
fn transfer(
    shared: &Arc<Shared>,
    wire: &mut Wire,
    headers: &HeaderMap,
    message: Message,
    checkpoint: Bytes,
    export: u64,
) -> Result<Response<Vec<u8>>, Fault> {
    let from = message.from();
    let is_members = shared.peer(from).is_some_and(|peer| peer.is_dialled.load(Ordering::SeqCst));
    let Some(turn) = shared.receiving.begin(is_members) else { return Ok(busy()) };
    let fetch = Fetch {
        shared: shared.clone(),
        from,
        urls: urls(shared, headers, from),
        export,
        cancelled: turn.cancelled.clone(),
    };
    let tell_progress = || {
        // If the sender is gone it cannot be fetched from either; the transfer finds out by itself.
        let _ = wire.write_all(PROGRESS);
    };
    Ok(carry_out(shared, from, turn, move || install(&fetch, message, &checkpoint), tell_progress))
}

/// The answer while there is another one.
pub(super) fn busy() -> Response<Vec<u8>> {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "another snapshot is being installed")
}

/// Does the work of receiving on another thread, and counts it. Meanwhile `wait` is called every second.
pub(super) fn carry_out(
    shared: &Shared,
    from: u64,
    turn: Turn<'_>,
    work: impl FnOnce() -> Result<(), String> + Send + 'static,
    mut wait: impl FnMut(),
) -> Response<Vec<u8>> {
    let counters = shared.counters(from);
    let began = Instant::now();
    counters.snapshots_received.under_way.fetch_add(1, Ordering::Relaxed);
    let (tell, told) = channel();
    let work = move || {
        // The connection thread may be gone with its connection; the snapshot is installed all the same.
        let _ = tell.send(work());
    };
    let outcome = match std::thread::Builder::new().name("snapshot-fetch".into()).spawn(work) {
        Err(error) => Err(error.to_string()),
        Ok(_) => loop {
            match told.recv_timeout(PROGRESS_INTERVAL) {
                Ok(outcome) => break outcome,
                Err(RecvTimeoutError::Disconnected) => break Err("the transfer broke off".to_string()),
                Err(RecvTimeoutError::Timeout) => wait(),
            }
        },
    };
    drop(turn);
    counters.snapshots_received.under_way.fetch_sub(1, Ordering::Relaxed);
    let name = format!("{from:x}");
    let fields = [("remote-snapshot-sender-id", Value::from(&name))];
    match outcome {
        Ok(()) => {
            counters.snapshots_received.succeeded.fetch_add(1, Ordering::Relaxed);
            let took = began.elapsed();
            counters.snapshots_received.took.observe(took);
            shared.ledger.saved.observe(took);
            logging::info("received and installed database snapshot", &fields);
            let mut response = Response::new(Vec::new());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Err(error) => {
            counters.snapshots_received.failed.fetch_add(1, Ordering::Relaxed);
            let [remote] = fields;
            logging::warn("failed to save incoming database snapshot", &[remote, ("error", (&error).into())]);
            refusal(StatusCode::INTERNAL_SERVER_ERROR, format!("failed to save KV snapshot ({error})"))
        }
    }
}

/// Takes the snapshot that an observer was sent by what it follows.
pub(crate) fn take(shared: &Arc<Shared>, from: u64, url: &str, mut message: Message) -> Result<(), String> {
    let export = message.context.take().and_then(|id| Some(u64::from_be_bytes(id.as_ref().try_into().ok()?)));
    let checkpoint = message.snapshot.as_mut().and_then(|snapshot| snapshot.data.take());
    let (Some(export), Some(checkpoint)) = (export, checkpoint) else {
        return Err("the snapshot it sent has no checkpoint".into());
    };
    let turn = shared.receiving.begin(true).ok_or("another snapshot is being installed")?;
    let cancelled = turn.cancelled.clone();
    let fetch = Fetch { shared: shared.clone(), from, urls: vec![url.to_string()], export, cancelled };
    install(&fetch, message, &checkpoint)
}

/// The sender's URLs: those of the membership, or those that it names itself.
pub(super) fn urls(shared: &Shared, headers: &HeaderMap, from: u64) -> Vec<String> {
    let known = shared.peer(from).map(|peer| peer.urls.list()).filter(|list| !list.is_empty());
    let list = known.unwrap_or_else(|| identity::text(headers, &PEER_URLS).unwrap_or_default().to_string());
    list.split(',').filter(|url| Address::parse(url).is_ok()).map(str::to_string).collect()
}

fn install(fetch: &Fetch, message: Message, checkpoint: &[u8]) -> Result<(), String> {
    (fetch.shared.yield_cpu)();
    let mut intake: Box<dyn Intake> = fetch.shared.handler.intake(fetch.from, checkpoint)?;
    let pieces = intake.needed();
    logging::info(
        "receiving database snapshot",
        &[
            ("remote-snapshot-sender-id", Value::Shown(&format_args!("{:x}", fetch.from))),
            ("pieces", pieces.len().into()),
            ("bytes", pieces.iter().fold(0_u64, |all, piece| all.saturating_add(piece.length)).into()),
        ],
    );
    fetch.pieces(&pieces, &mut *intake)?;
    logging::info("received all of the database snapshot; checking it", &[]);
    intake.install(message)
}
