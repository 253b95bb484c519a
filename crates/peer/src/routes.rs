//! Routing of requests on the peer port.

use crate::answers::{Next, Refusal, answer, answer_and, forbidden, refusal, require};
use crate::codec::{Kind, decode};
use crate::fault::Fault;
use crate::handler::{Caller, Known, Origin};
use crate::head::RequestHead;
use crate::identity::{self, CAIRN, CLUSTER_ID, PEER_URLS, RAFT_TO, SERVER_VERSION, hex};
use crate::large_body::{BODY_TIMEOUT, large_body};
use crate::peer::Peer;
use crate::places::Place;
use crate::rejection::rejected;
use crate::sender::{check, note_sender};
use crate::shared::Shared;
use crate::timeouts::after;
use crate::wire::Wire;
use crate::{follow, probe, snapshot, stream};
use api::raftpb::MessageType;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use telemetry::logging::{self, Pace, Value};

/// Limit of the bytes of a request that is not Raft's.
const CALL_BYTES_MAX: usize = 1 << 20;
/// Answers one request.
pub(crate) fn handle(
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
        snapshot::ANNOUNCEMENT => snapshot::receive(shared, wire, head, address),
        "/raft/snapshot" => snapshot::receive_image(shared, wire, head, address),
        _ if path.starts_with(follow::PATH) => {
            end_body(wire, head)?;
            follow::serve(shared, wire, head, path.get(follow::PATH.len()..).unwrap_or_default())
        }
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
                // The request's body has been read, even if the answer is a refusal.
                answer_and(head.keep_alive, shared, wire, response)
            }
        },
    }
}

/// Reads and drops a body without meaning.
fn end_body(wire: &mut Wire, head: &RequestHead) -> Result<(), Fault> {
    wire.body(head.framing, CALL_BYTES_MAX, after(BODY_TIMEOUT)).map(drop)
}

/// The stream that a peer requests, or the refusal.
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
    peer.is_cairn.store(headers.contains_key(&CAIRN), Ordering::SeqCst);
    Ok((peer, kind))
}

fn begin_stream(shared: &Shared, wire: &mut Wire, peer: Arc<Peer>, kind: Kind) -> Result<Next, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(SERVER_VERSION, HeaderValue::from_static(api::version::ETCD));
    headers.insert(CLUSTER_ID, hex(shared.identity.cluster_id));
    headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    wire.write_all(&crate::head::write_response(StatusCode::OK, &headers))?;
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
    let message = match decode(body.bytes.split().freeze(), bytes as usize) {
        Ok(message) => message,
        Err(error) => {
            shared.ledger.count_unknown();
            rejected(address, &error);
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
        // etcd answers 403 here too, from which the sender concludes that it was removed itself. A stale address is no
        // reason for that.
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
