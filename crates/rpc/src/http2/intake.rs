//! From the headers of a request to a call of the service.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use api::Code;
use bytes::{Bytes, BytesMut};
use contain::outside;
use http::{Method, StatusCode};

use super::call::{too_many_heads, too_much_gathered};
use super::connection::Http2;
use super::dispatch::Ended;
use super::exchange::{Exchange, Slot};
use super::frame::{self, Fault, HEAD_BYTES, Reason, flag, kind};
use super::head::{Grpc, Head, Target};
use super::input::Input;
use super::outflow::{HANDLER_BYTES, Opening, Outflow, STREAM_BYTES};
use super::sender::ContentType;
use super::stream::{Handler, Role, Stream};
use crate::grpc::decoder::{Decoder, sole};
use crate::grpc::encoding::Encoding;
use crate::grpc::payload::PREFIX_BYTES;
use crate::grpc::pipe::pipe;
use crate::grpc::responder::{Answer, Responder, inline, plain_response};
use crate::runtime::shared::Shared;
use crate::runtime::signal::Signal;
use crate::{Call, HttpResponder, Kind, Limit, Reply, RequestBody, Serves, Status, StreamCall, StreamWaker};

/// What a request that is answered in pieces counts beside its headers: its answer waits in a pipe, in its task and in its call, each of
/// which no other sum has. Up to four times as much.
const EXCHANGE_BYTES: usize = 28 * 1024;

impl Http2 {
    /// Begins a stream: answers at once if the whole request is here and the service has the answer, else keeps it. `rest` is the
    /// input after the headers; the result is how much of it was taken.
    pub(crate) fn begin(
        &mut self,
        shared: &mut Shared,
        id: u32,
        head: Head,
        ended: bool,
        rest: &[u8],
    ) -> Result<usize, Ended> {
        if ended && head.content_length.is_some_and(|length| length > 0) {
            return Err(Fault::stream(id, Reason::PROTOCOL_ERROR).into());
        }
        let target = match (head.target, self.serves) {
            (Target::Grpc(_) | Target::Refused { .. }, Serves::Http) => Target::Answered(StatusCode::NOT_FOUND),
            (Target::Http(_), Serves::Grpc) => Target::Answered(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            (target, _) => target,
        };
        let grpc = match target {
            Target::Grpc(grpc) => grpc,
            Target::Refused { http_status, content_type, status } => {
                self.refuse(id, http_status, content_type, &status, ended);
                return Ok(0);
            }
            Target::Answered(status) => {
                if status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE {
                    shared.stats.hit(Limit::HeaderList);
                }
                let mut out = Outflow::new(Opening::http(), self.sender.initial_window());
                // Without its text: it may be the answer to a HEAD.
                out.respond(plain_response(status).map(|_| Bytes::new()));
                let input = Input::new(Decoder::new(Encoding::Identity, 0), head.content_length, ended);
                let stream = Stream::new(self.signal(shared), id, None, input, out, Role::Output, shared.now);
                self.keep(shared, stream, None);
                return Ok(0);
            }
            Target::Http(mut parts) => {
                let takes_pieces = shared.service.takes_pieces(&parts);
                let (room, bytes) = match takes_pieces {
                    true => (self.heads.room(), head.bytes.saturating_add(EXCHANGE_BYTES)),
                    false => (self.gathered.room(), head.bytes),
                };
                if bytes.saturating_add(STREAM_BYTES) > room {
                    shared.stats.hit(Limit::GatheredBytes);
                    return Err(Fault::stream(id, Reason::REFUSED_STREAM).into());
                }
                parts.extensions.insert(self.peer.clone());
                let is_head = parts.method == Method::HEAD;
                let out = Outflow::new(Opening::http(), self.sender.initial_window());
                if takes_pieces {
                    let signal = self.signal(shared);
                    let (waker, slot) = (StreamWaker::new(signal.clone()), Arc::new(Slot::default()));
                    let (sender, receiver) = pipe();
                    let handler = Box::new(Exchange::asking(sender, slot.clone(), waker.clone()));
                    let role = Role::Handler(Handler::new(handler, false));
                    let input = Input::new(Decoder::raw(), head.content_length, ended);
                    let mut stream = Stream::new(signal, id, None, input, out, role, shared.now);
                    stream.head_bytes = bytes;
                    self.keep(shared, stream, None);
                    let request = http::Request::from_parts(*parts, RequestBody::http2(receiver));
                    let responder = HttpResponder::exchange(slot, waker);
                    outside(|| shared.service.http_in_pieces(request, responder));
                    return Ok(0);
                }
                let input = Input::new(Decoder::new(Encoding::Identity, 0), head.content_length, ended);
                let role = Role::Http { head: parts, body: BytesMut::new() };
                let mut stream = Stream::new(self.signal(shared), id, None, input, out, role, shared.now);
                stream.head_bytes = head.bytes;
                stream.is_head = is_head;
                let deadline = (!ended).then(|| shared.now.checked_add(shared.options.http_body_timeout)).flatten();
                self.keep(shared, stream, deadline);
                return Ok(0);
            }
        };
        let method = grpc.method;
        let deadline = grpc.timeout.and_then(|timeout| shared.now.checked_add(timeout));
        if deadline.is_some_and(|deadline| deadline <= shared.now) {
            let status = Status::deadline_exceeded();
            shared.stats.started(method);
            shared.stats.ended(method, status.code, shared.now);
            self.refuse(id, StatusCode::OK, grpc.content_type, &status, ended);
            return Ok(0);
        }
        if grpc.kind == Kind::Unary
            && self.can_begin()
            && let Some(body) = whole_body(id, ended, head.content_length, rest)
        {
            self.receiver.take(body.len()).inspect_err(|_| shared.stats.hit(Limit::ReceiveWindow))?;
            shared.stats.started(method);
            let taken = if ended { 0 } else { HEAD_BYTES.saturating_add(body.len()) };
            match sole(body, grpc.encoding, shared.options.message_bytes_max) {
                Ok(message) => {
                    let is_alone = rest.len() == taken && self.is_alone(shared);
                    self.call(shared, id, &grpc, message, deadline, is_alone);
                }
                Err(status) => {
                    shared.stats.unreadable(&status);
                    shared.stats.ended(method, status.code, shared.now);
                    self.refuse(id, StatusCode::OK, grpc.content_type, &status, true);
                }
            }
            return Ok(taken);
        }
        shared.stats.started(method);
        let (room, too_much): (usize, fn() -> Status) = match grpc.kind {
            Kind::Unary => (self.gathered.room(), too_much_gathered),
            _ => (self.heads.room(), too_many_heads),
        };
        if head.bytes.saturating_add(HANDLER_BYTES) > room {
            shared.stats.hit(Limit::GatheredBytes);
            let status = too_much();
            shared.stats.ended(method, status.code, shared.now);
            self.refuse(id, StatusCode::OK, grpc.content_type, &status, ended);
            return Ok(0);
        }
        let decoder = Decoder::new(grpc.encoding, shared.options.message_bytes_max);
        let input = Input::new(decoder, head.content_length, ended);
        let out = Outflow::new(Opening::Grpc(grpc.content_type), self.sender.initial_window());
        let signal = self.signal(shared);
        let role = if grpc.kind == Kind::Unary {
            Role::Unary { grpc, deadline, message: None }
        } else {
            let call = StreamCall {
                metadata: grpc.metadata.clone(),
                deadline,
                peer: self.peer.clone(),
                waker: StreamWaker::new(signal.clone()),
            };
            match outside(|| shared.service.stream(method, call)) {
                Ok(handler) => {
                    let single = grpc.kind == Kind::ServerStream;
                    Role::Handler(Handler::new(handler, single))
                }
                Err(status) => {
                    signal.end();
                    shared.stats.ended(method, status.code, shared.now);
                    self.refuse(id, StatusCode::OK, grpc.content_type, &status, ended);
                    return Ok(0);
                }
            }
        };
        let mut stream = Stream::new(signal, id, Some(method), input, out, role, shared.now);
        stream.head_bytes = head.bytes;
        self.keep(shared, stream, deadline);
        Ok(0)
    }

    /// Hands a whole unary request to the service.
    fn call(
        &mut self,
        shared: &mut Shared,
        id: u32,
        grpc: &Grpc,
        message: Bytes,
        deadline: Option<Instant>,
        is_alone: bool,
    ) {
        let method = grpc.method;
        shared.stats.received(method, message.len());
        let signal = self.signal(shared);
        let call = Call { message, metadata: grpc.metadata.clone(), deadline, peer: self.peer.clone(), is_alone };
        let service = &shared.service;
        let answer = inline(&signal, |signal| service.unary(method, call, Responder::new(signal)));
        match answer {
            None => {
                let out = Outflow::new(Opening::Grpc(grpc.content_type), self.sender.initial_window());
                let stream = Stream::new(signal, id, Some(method), Input::whole(), out, Role::Answer, shared.now);
                self.keep(shared, stream, deadline);
            }
            Some(Answer::Grpc(Ok(reply))) => {
                shared.stats.sent(method, 1, reply.len());
                let window = self.sender.initial_window();
                match reply {
                    Reply::Whole(message)
                        if self.sender.room_for(PREFIX_BYTES.saturating_add(message.len()))
                            && PREFIX_BYTES.saturating_add(message.len()) as i64 <= window =>
                    {
                        self.sender.grpc_head(id, grpc.content_type);
                        self.sender.message(id, message);
                        self.sender.ok_trailers(id);
                        shared.stats.ended(method, Code::Ok, shared.now);
                        shared.recycle(signal);
                    }
                    reply => {
                        let mut out = Outflow::new(Opening::Grpc(grpc.content_type), window);
                        out.reply(reply);
                        let stream = Stream::replying(signal, id, method, out, Code::Ok, shared.now);
                        self.keep(shared, stream, deadline);
                    }
                }
            }
            Some(Answer::Grpc(Err(status))) => {
                shared.stats.ended(method, status.code, shared.now);
                shared.recycle(signal);
                self.refuse(id, StatusCode::OK, grpc.content_type, &status, true);
            }
            Some(Answer::Http(_)) => unreachable!("a unary call has no HTTP responder"),
        }
    }

    /// Whether the thread has no other connection and the connection no other stream.
    fn is_alone(&self, shared: &Shared) -> bool {
        self.streams.is_empty() && shared.stats.open.load(Ordering::Relaxed) == 1
    }

    fn signal(&self, shared: &mut Shared) -> Arc<Signal> {
        shared.signal(self.key)
    }

    /// Answers with a status and nothing else. What the client still sends, unless it has `ended`, is not wanted.
    fn refuse(&mut self, id: u32, http_status: StatusCode, content_type: ContentType, status: &Status, ended: bool) {
        self.sender.trailers_only(id, http_status.as_u16(), content_type, status);
        if !ended {
            self.sender.reset(id, Reason::NO_ERROR);
            self.forsake(id);
        }
    }
}

/// The body of stream `id`, if it ends with its headers or with the one frame that comes next, as nearly all do.
fn whole_body(id: u32, ended: bool, content_length: Option<u64>, rest: &[u8]) -> Option<&[u8]> {
    if ended {
        return Some(&[]);
    }
    let head = frame::Head::parse(rest)?;
    let fits = head.kind == kind::DATA
        && head.stream == id
        && head.flags & (flag::END_STREAM | flag::PADDED) == flag::END_STREAM;
    if !fits
        || head.len > frame::PAYLOAD_BYTES_DEFAULT
        || content_length.is_some_and(|length| length != head.len as u64)
    {
        return None;
    }
    rest.get(HEAD_BYTES..)?.get(..head.len)
}
