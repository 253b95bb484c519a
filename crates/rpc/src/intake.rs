//! From the headers of a request to a call of the service.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use api::Code;
use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};

use crate::call::{Handler, Input, Role, Stream};
use crate::connection::Http2;
use crate::decoder::Decoder;
use crate::encoding::{Encoding, base64_decode};
use crate::outflow::{Opening, Outflow, grpc_head, trailers, trailers_only};
use crate::payload::{PREFIX_BYTES, Payload};
use crate::responder::{Answer, Responder, inline};
use crate::signal::Signal;
use crate::thread::Shared;
use crate::{Call, Kind, Metadata, Reply, Status, StreamCall, StreamWaker, timeout};

/// A gRPC request whose headers are in order.
struct Opened {
    method: usize,
    encoding: Encoding,
    deadline: Option<Instant>,
}

/// A request that ends with its headers.
struct Refusal {
    http_status: StatusCode,
    status: Status,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Refusal {
        Refusal { http_status: StatusCode::OK, status }
    }
}

impl Http2 {
    /// Begins a stream: answers at once if the whole request is here and the service has the answer, else keeps it.
    pub(crate) fn begin(
        &mut self,
        shared: &mut Shared,
        request: Request<RecvStream>,
        mut respond: SendResponse<Payload>,
    ) {
        let (mut head, body) = request.into_parts();
        let Some(content_type) = grpc_content_type(&head.headers) else {
            head.extensions.insert(self.peer);
            let out = Outflow::new(respond, Opening::Http(Box::default()));
            let input = Input { body: Some(body), decoder: Decoder::new(Encoding::Identity, 0) };
            let role = Role::Http { head: Box::new(head), body: BytesMut::new() };
            let stream = Stream::new(self.signal(shared), None, input, out, role);
            return self.keep(shared, stream, None);
        };
        let opened = match open(shared, &head) {
            Ok(opened) => opened,
            Err(refusal) => return refuse(respond, content_type, &refusal),
        };
        let method = opened.method;
        shared.stats.started(method);
        if opened.deadline.is_some_and(|deadline| deadline <= shared.now) {
            let status = Status::deadline_exceeded();
            shared.stats.handled(method, status.code);
            return refuse(respond, content_type, &status.into());
        }
        let metadata = Metadata::from(head.headers);
        let decoder = Decoder::new(opened.encoding, shared.options.message_bytes_max);
        let kind = shared.routes.kind(method);
        if kind != Kind::Unary {
            let signal = self.signal(shared);
            let call = StreamCall {
                metadata,
                deadline: opened.deadline,
                peer: self.peer,
                waker: StreamWaker::new(signal.clone()),
            };
            let handler = match shared.service.stream(method, call) {
                Ok(handler) => handler,
                Err(status) => {
                    signal.end();
                    shared.stats.handled(method, status.code);
                    return refuse(respond, content_type, &status.into());
                }
            };
            let single = kind == Kind::ServerStream;
            let role = Role::Handler(Handler { handler, single, message: None, starved: false });
            let out = Outflow::new(respond, Opening::Grpc(content_type));
            let stream = Stream::new(signal, Some(method), Input { body: Some(body), decoder }, out, role);
            return self.keep(shared, stream, opened.deadline);
        }
        let mut input = Input { body: Some(body), decoder };
        let (message, received) = match input.whole() {
            Whole::Message(message, received) => (message, received),
            Whole::Broken(status) => {
                shared.stats.handled(method, status.code);
                return refuse(respond, content_type, &status.into());
            }
            Whole::Incomplete => {
                let role = Role::Unary { metadata, deadline: opened.deadline, message: None };
                let out = Outflow::new(respond, Opening::Grpc(content_type));
                let stream = Stream::new(self.signal(shared), Some(method), input, out, role);
                return self.keep(shared, stream, opened.deadline);
            }
        };
        shared.stats.received(method, message.len());
        let signal = self.spare.take().unwrap_or_else(|| self.signal(shared));
        let call = Call { message, metadata, deadline: opened.deadline, peer: self.peer };
        let service = &shared.service;
        let answer = inline(&signal, |signal| service.unary(method, call, Responder::new(signal)));
        match answer {
            None => {
                input.release(received);
                input.body = None;
                let out = Outflow::new(respond, Opening::Grpc(content_type));
                let stream = Stream::new(signal, Some(method), input, out, Role::Answer);
                self.keep(shared, stream, opened.deadline);
            }
            Some(Answer::Grpc(Ok(reply))) => {
                shared.stats.sent(method, 1, reply.len());
                match self.reply(&mut respond, content_type, reply) {
                    Ok(None) => {
                        shared.stats.handled(method, Code::Ok);
                        self.spare = Some(signal);
                    }
                    Ok(Some(out)) => {
                        let stream = Stream::replying(signal, method, out, Code::Ok);
                        self.keep(shared, stream, opened.deadline);
                    }
                    Err(_) => shared.stats.handled(method, Code::Canceled),
                }
            }
            Some(Answer::Grpc(Err(status))) => {
                shared.stats.handled(method, status.code);
                self.spare = Some(signal);
                refuse(respond, content_type, &status.into());
            }
            Some(Answer::Http(_)) => unreachable!("a unary call has no HTTP responder"),
        }
    }

    fn signal(&self, shared: &Shared) -> Arc<Signal> {
        Arc::new(Signal::new(shared.mailbox.clone(), self.key))
    }

    /// Sends a reply as far as the peer's window allows. What is left comes back.
    fn reply(
        &mut self,
        respond: &mut SendResponse<Payload>,
        content_type: HeaderValue,
        reply: Reply,
    ) -> Result<Option<Outflow>, h2::Error> {
        let mut stream = respond.send_response(grpc_head(content_type), false)?;
        if let Reply::Whole(message) = &reply {
            let len = PREFIX_BYTES + message.len();
            stream.reserve_capacity(len);
            if len <= self.share() && stream.capacity() >= len {
                stream.send_data(Payload::message(message.clone()), false)?;
                stream.send_trailers(trailers(&Status::OK))?;
                self.sent_bytes += len;
                return Ok(None);
            }
        }
        let mut out = Outflow::begun(stream);
        out.reply(reply);
        Ok(Some(out))
    }
}

/// What a look at a new unary request finds.
enum Whole {
    /// The whole request, and how many bytes of the receive windows it still occupies.
    Message(Bytes, usize),
    /// The whole request, which is no proper one.
    Broken(Status),
    /// More is to come, or the stream is reset.
    Incomplete,
}

impl Input {
    /// The message of a unary call whose whole request came in one DATA frame, as nearly all do.
    fn whole(&mut self) -> Whole {
        let Some(body) = &mut self.body else { return Whole::Incomplete };
        let Poll::Ready(Some(Ok(data))) = body.poll_data(&mut Context::from_waker(Waker::noop())) else {
            return Whole::Incomplete;
        };
        let (received, is_end) = (data.len(), body.is_end_stream());
        self.decoder.push(data);
        if !is_end {
            self.release(received);
            return Whole::Incomplete;
        }
        match self.decoder.sole() {
            Ok(message) => Whole::Message(message, received),
            Err(status) => Whole::Broken(status),
        }
    }

    /// Gives the windows back what a request occupies. Requests answered at once do without: their end gives it back.
    fn release(&mut self, bytes: usize) {
        if let Some(body) = &mut self.body {
            // Fails only if more is released than came.
            let _ = body.flow_control().release_capacity(bytes);
        }
    }
}

fn open(shared: &Shared, head: &http::request::Parts) -> Result<Opened, Refusal> {
    let bad =
        |text: String| Refusal { http_status: StatusCode::BAD_REQUEST, status: Status::new(Code::Internal, text) };
    let mut deadline = None;
    for (name, value) in &head.headers {
        let name = name.as_str();
        if name == "grpc-timeout" {
            let timeout =
                timeout::parse(value.as_bytes()).map_err(|error| bad(format!("malformed grpc-timeout: {error}")))?;
            deadline = Some(shared.now + timeout);
        } else if name.ends_with("-bin") && base64_decode(value.as_bytes()).is_none() {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            return Err(bad(format!("malformed binary metadata {value:?} in header {name:?}: illegal base64 data")));
        }
    }
    if head.method != Method::POST {
        let text = format!("Received a HEADERS frame with :method {:?} which should be POST", head.method.as_str());
        let status = Status::new(Code::Internal, text);
        return Err(Refusal { http_status: StatusCode::METHOD_NOT_ALLOWED, status });
    }
    let method = shared.routes.find(head.uri.path())?;
    let encoding = Encoding::of(&head.headers)?;
    Ok(Opened { method, encoding, deadline })
}

static GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
static GRPC_PROTO: HeaderValue = HeaderValue::from_static("application/grpc+proto");

/// The content type of the response to a gRPC request; none if it is no gRPC request.
fn grpc_content_type(headers: &HeaderMap) -> Option<HeaderValue> {
    let value = headers.get(CONTENT_TYPE)?.as_bytes();
    match value.strip_prefix(GRPC.as_bytes())? {
        b"" => Some(GRPC.clone()),
        b"+proto" => Some(GRPC_PROTO.clone()),
        [b'+' | b';', ..] => Some(GRPC.clone()),
        _ => None,
    }
}

/// Answers with a status and nothing else. The engine resets what the client still sends.
fn refuse(mut respond: SendResponse<Payload>, content_type: HeaderValue, refusal: &Refusal) {
    let mut response: Response<()> = trailers_only(content_type, &refusal.status);
    *response.status_mut() = refusal.http_status;
    if refusal.status.code == Code::Unimplemented {
        response.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static("identity,gzip"));
    }
    // A client that has gone needs no answer.
    let _ = respond.send_response(response, true);
}
