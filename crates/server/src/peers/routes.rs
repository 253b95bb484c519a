//! What a request on the peer port asks for.

use super::after;
use super::body::Body;
use super::codec::Kind;
use super::fault::Fault;
use super::head::{Framing, RequestHead};
use super::identity::{self, CLUSTER_ID, PEER_URLS, RAFT_TO, SERVER_VERSION, hex};
use super::peer::Peer;
use super::places::Place;
use super::shared::Shared;
use super::wire::Wire;
use super::{Caller, Known, Origin, probe, snapshot, stream};
use crate::unread;
use api::raftpb::{Message, MessageType};
use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use telemetry::logging::{self, Pace, Value};

/// Bytes of bodies that may be received at once, on all connections of members together and on all of strangers.
const BODIES_BYTES_MAX: usize = 256 << 20;
/// Bodies of at most this many bytes are not counted against it.
const SMALL_BODY_BYTES: usize = 256 << 10;
/// Bytes of a request that is none of Raft's.
const CALL_BYTES_MAX: usize = 1 << 20;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// What becomes of the connection.
pub(super) enum Next {
    /// It may bring another request.
    Request,
    End,
    /// It is a stream from now on.
    Stream(Arc<Peer>, Kind),
}

/// Answers one request.
pub(super) fn handle(
    shared: &Arc<Shared>,
    wire: &mut Wire,
    head: &RequestHead,
    address: &str,
    place: &mut Place,
) -> Result<Next, Fault> {
    if head.request.headers().get(header::EXPECT).is_some_and(|value| value == "100-continue") {
        wire.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let path = head.request.uri().path();
    if let Some(stream) = path.strip_prefix("/raft/stream/") {
        return match stream_of(shared, head, stream) {
            Ok((peer, kind)) => begin_stream(shared, wire, peer, kind),
            Err(refusal) => answer(shared, wire, head, *refusal),
        };
    }
    match path {
        "/raft" => {
            let response = message(shared, wire, head, address)?;
            answer(shared, wire, head, response)
        }
        probe::PATH => {
            let mut response = Response::new(probe::answer().into_bytes());
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            end_body(wire, head)?;
            answer(shared, wire, head, response)
        }
        "/raft/snapshot" => snapshot::receive(shared, wire, head, address),
        _ => match path.strip_prefix(snapshot::PATH) {
            Some(piece) => snapshot::serve(shared, wire, head, piece),
            None => {
                let body = wire.body(head.framing, CALL_BYTES_MAX, after(BODY_TIMEOUT))?;
                let mut request = Request::new(body.into());
                *request.method_mut() = head.request.method().clone();
                *request.uri_mut() = head.request.uri().clone();
                *request.headers_mut() = head.request.headers().clone();
                if !place.begin_call() {
                    return Err(Fault::Busy);
                }
                let descriptor = wire.stream().descriptor();
                let waits = || !shared.is_stopping() && !stream::is_closed(descriptor);
                let response = shared.handler.call(request, Caller { is_member: place.is_members(), waits: &waits });
                place.end_call();
                // Its body is read, whatever the answer says.
                answer_and(head.keep_alive, shared, wire, response)
            }
        },
    }
}

/// The member of this cluster that a request names as its sender.
pub(super) fn member(shared: &Shared, headers: &HeaderMap) -> Option<u64> {
    let from = identity::sender(headers).filter(|_| shared.identity.check(headers).is_ok())?;
    shared.peer(from).is_some_and(|peer| peer.is_dialled.load(Ordering::SeqCst)).then_some(from)
}

/// Sends an answer. The body of the request must have been read, or the connection ends.
pub(super) fn answer(
    shared: &Shared,
    wire: &mut Wire,
    head: &RequestHead,
    response: Response<Vec<u8>>,
) -> Result<Next, Fault> {
    let keep = head.keep_alive && (response.status().is_success() || head.framing == Framing::Length(0));
    answer_and(keep, shared, wire, response)
}

/// Sends an answer after which the connection may bring another request, or ends.
fn answer_and(keep: bool, shared: &Shared, wire: &mut Wire, mut response: Response<Vec<u8>>) -> Result<Next, Fault> {
    response.headers_mut().entry(CLUSTER_ID).or_insert_with(|| hex(shared.identity.cluster_id));
    wire.respond(response, keep)?;
    Ok(if keep { Next::Request } else { Next::End })
}

/// An answer that says no, in the form that etcd's members expect.
pub(super) fn refusal(status: StatusCode, text: impl std::fmt::Display) -> Response<Vec<u8>> {
    let mut response = Response::new(format!("{text}\n").into_bytes());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// An answer that says no, as an error.
pub(super) type Refusal = Box<Response<Vec<u8>>>;

/// An answer to a wrong method, unless it is the right one.
pub(super) fn require(method: Method, allowed: &'static str, request: &Request<()>) -> Result<(), Refusal> {
    if *request.method() == method {
        return Ok(());
    }
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    Err(response.into())
}

/// Refuses those of other clusters and of versions that are too far away.
pub(super) fn check(shared: &Shared, headers: &HeaderMap) -> Result<(), Refusal> {
    shared.identity.check(headers).map_err(|mismatch| {
        static PACE: Pace = Pace::new();
        if let Some(left_out) = PACE.line() {
            let show = |name| identity::text(headers, &name).unwrap_or_default();
            logging::warn(
                "refused a request of a peer",
                &[
                    ("error", Value::Shown(&mismatch)),
                    ("remote-peer-server-name", show(identity::SERVER_FROM).into()),
                    ("remote-peer-server-version", show(SERVER_VERSION).into()),
                    ("remote-peer-server-minimum-cluster-version", show(identity::MIN_CLUSTER_VERSION).into()),
                    ("remote-peer-cluster-id", show(CLUSTER_ID).into()),
                    ("lines-left-out", left_out.into()),
                    ("local-member-cluster-id", Value::Shown(&format_args!("{:x}", shared.identity.cluster_id))),
                ],
            );
        }
        Refusal::from(refusal(StatusCode::PRECONDITION_FAILED, mismatch))
    })
}

/// Remembers where a sender that this member does not know can be reached.
pub(super) fn note_sender(shared: &Arc<Shared>, headers: &HeaderMap) {
    if let (Some(from), Some(urls)) = (identity::sender(headers), identity::text(headers, &PEER_URLS)) {
        shared.set_remote(from, urls);
    }
}

/// Reads a body that means nothing.
fn end_body(wire: &mut Wire, head: &RequestHead) -> Result<(), Fault> {
    wire.body(head.framing, CALL_BYTES_MAX, after(BODY_TIMEOUT)).map(drop)
}

/// Who wants to be sent which stream, or why not.
fn stream_of(shared: &Arc<Shared>, head: &RequestHead, stream: &str) -> Result<(Arc<Peer>, Kind), Refusal> {
    require(Method::GET, "GET", &head.request)?;
    let headers = head.request.headers();
    check(shared, headers)?;
    let not_found = |text: &str| Refusal::from(refusal(StatusCode::NOT_FOUND, text));
    let (name, id) = stream.split_once('/').ok_or_else(|| not_found("invalid path"))?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| not_found("invalid path"))?;
    let from = identity::parse_id(id).ok_or_else(|| not_found("invalid from"))?;
    if shared.handler.knows(from) == Known::Removed {
        static PACE: Pace = Pace::new();
        if let Some(left_out) = PACE.line() {
            logging::warn(
                "rejected stream from remote peer because it was removed",
                &[
                    ("remote-peer-id-from", Value::Shown(&format_args!("{from:x}"))),
                    ("lines-left-out", left_out.into()),
                ],
            );
        }
        return Err(refusal(StatusCode::GONE, "removed member").into());
    }
    let Some(peer) = shared.peer(from).filter(|peer| peer.is_dialled.load(Ordering::SeqCst)) else {
        if let Some(urls) = identity::text(headers, &PEER_URLS) {
            shared.set_remote(from, urls);
        }
        return Err(not_found("error sender not found"));
    };
    let to = identity::text(headers, &RAFT_TO).and_then(identity::parse_id);
    if to != Some(shared.identity.member_id) {
        peer.complain("it takes this member for another one (wrong X-Raft-To)");
        return Err(refusal(StatusCode::PRECONDITION_FAILED, "to field mismatch").into());
    }
    Ok((peer, kind))
}

fn begin_stream(shared: &Shared, wire: &mut Wire, peer: Arc<Peer>, kind: Kind) -> Result<Next, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(SERVER_VERSION, HeaderValue::from_static(api::version::ETCD));
    headers.insert(CLUSTER_ID, hex(shared.identity.cluster_id));
    headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    wire.write_all(&super::head::write_response(StatusCode::OK, &headers))?;
    Ok(Next::Stream(peer, kind))
}

/// `POST /raft`: one message.
fn message(
    shared: &Arc<Shared>,
    wire: &mut Wire,
    head: &RequestHead,
    address: &str,
) -> Result<Response<Vec<u8>>, Fault> {
    if let Err(refusal) =
        require(Method::POST, "POST", &head.request).and_then(|()| check(shared, head.request.headers()))
    {
        return Ok(*refusal);
    }
    note_sender(shared, head.request.headers());
    let mut body =
        large_body(shared, wire, head, shared.message_bytes_max).inspect_err(|_| shared.ledger.count_unknown())?;
    let bytes = body.bytes.len() as u64;
    let message = match unread::decode::<Message>(body.bytes.split().freeze()) {
        Ok(message) => message,
        Err(error) => {
            shared.ledger.count_unknown();
            super::listener::rejected(address, &error);
            return Ok(refusal(StatusCode::BAD_REQUEST, "error unmarshalling raft message"));
        }
    };
    let from = message.from();
    if shared.handler.knows(from) == Known::Removed {
        static PACE: Pace = Pace::new();
        if let Some(left_out) = PACE.line() {
            logging::warn(
                "rejected Raft message from removed member",
                &[("removed-member-id", Value::Shown(&format_args!("{from:x}"))), ("lines-left-out", left_out.into())],
            );
        }
        return Ok(forbidden("cannot process message from removed member"));
    }
    if message.to() != shared.identity.member_id {
        // etcd answers 403 here too, from which the sender concludes that it was removed itself: too much for a stale address.
        return Ok(refusal(StatusCode::PRECONDITION_FAILED, "cannot process message to mismatch member"));
    }
    if message.r#type() == MessageType::MsgSnap {
        return Ok(refusal(StatusCode::BAD_REQUEST, "wrong raft message type"));
    }
    if let Some(peer) = shared.peer(from) {
        peer.counters.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    shared.handler.receive(vec![message], Origin::Request);
    let mut response = Response::new(Vec::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// 403 with the JSON body that etcd's members send.
pub(super) fn forbidden(text: &str) -> Response<Vec<u8>> {
    let mut response = Response::new(format!("{{\"message\":\"{text}\"}}").into_bytes());
    *response.status_mut() = StatusCode::FORBIDDEN;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A body and its share of the memory that all bodies have together.
pub(super) struct LargeBody<'a> {
    pub(super) bytes: BytesMut,
    all: &'a AtomicUsize,
    counted: usize,
}

impl Drop for LargeBody<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.counted, Ordering::SeqCst);
    }
}

/// Receives a body that may be large: its memory grows with what has come, never with what is announced.
pub(super) fn large_body<'a>(
    shared: &'a Shared,
    wire: &mut Wire,
    head: &RequestHead,
    bytes_max: usize,
) -> Result<LargeBody<'a>, Fault> {
    let all = shared.body_bytes(member(shared, head.request.headers()).is_some());
    let mut large = LargeBody { bytes: BytesMut::new(), all, counted: 0 };
    if matches!(head.framing, Framing::Length(length) if length > bytes_max as u64) {
        return Err(Fault::TooLong { what: "a body", bytes_max });
    }
    let mut body = Body::new(head.framing);
    let deadline = after(BODY_TIMEOUT);
    while wire.receive(&mut body, &mut large.bytes, Some(deadline))? {
        if large.bytes.len() > bytes_max {
            return Err(Fault::TooLong { what: "a body", bytes_max });
        }
        if large.bytes.len() > SMALL_BODY_BYTES.max(large.counted) {
            // Twice, since that is how a buffer grows.
            let more = large.bytes.len().saturating_mul(2).saturating_sub(large.counted);
            large.counted = large.counted.saturating_add(more);
            if all.fetch_add(more, Ordering::SeqCst).saturating_add(more) > BODIES_BYTES_MAX {
                return Err(Fault::Busy);
            }
        }
    }
    Ok(large)
}
