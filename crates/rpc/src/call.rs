//! The streams of a connection that were not answered at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use api::Code;
use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream};
use http::StatusCode;

use crate::connection::Http2;
use crate::decoder::{Decoder, cut_off, no_message, too_many_messages};
use crate::encoding::Encoding;
use crate::outflow::{Outflow, Progress};
use crate::responder::{Answer, Responder, inline, plain_response};
use crate::signal::Signal;
use crate::thread::Shared;
use crate::{Call, HttpResponder, Metadata, Outbound, Status, StreamHandler};

/// Incomplete requests that one connection may hold, in bytes, whatever its number of streams.
const GATHERED_BYTES_MAX: usize = 64 << 20;

/// What has happened to a stream.
pub(crate) enum Event {
    /// The transport has something, or the handler asked to be called.
    Wake,
    /// There is output share again.
    Share,
    /// The service has answered.
    Answer(Answer),
    /// The deadline has passed.
    Expired,
}

pub(crate) struct Stream {
    pub(crate) signal: Arc<Signal>,
    /// Index of the method; none for plain HTTP.
    pub(crate) method: Option<usize>,
    pub(crate) input: Input,
    pub(crate) out: Outflow,
    pub(crate) role: Role,
    /// What the call ended or will end with. A call that breaks off before counts as canceled.
    code: Option<Code>,
    /// It is in the connection's list of streams that wait for a share.
    parked: bool,
}

/// The receiving side of a stream.
pub(crate) struct Input {
    /// None when the client has sent its last byte.
    pub(crate) body: Option<RecvStream>,
    pub(crate) decoder: Decoder,
}

/// Who the stream waits for.
pub(crate) enum Role {
    /// The client, for the message of a unary call.
    Unary { metadata: Metadata, deadline: Option<Instant>, message: Option<Bytes> },
    /// The client, for the body of an HTTP request.
    Http { head: Box<http::request::Parts>, body: BytesMut },
    /// The service.
    Answer,
    /// Either, in a streaming call.
    Handler(Handler),
    /// The client, to take what is queued.
    Output,
}

pub(crate) struct Handler {
    pub(crate) handler: Box<dyn StreamHandler>,
    /// The client sends exactly one message, which is held until the client has finished.
    pub(crate) single: bool,
    pub(crate) message: Option<Bytes>,
    /// The handler has found no room.
    pub(crate) starved: bool,
}

/// How a look at a stream ended.
enum Outcome {
    /// It waits for something that wakes it.
    Waits,
    /// It waits for a share of the connection's output.
    Parks,
    /// It is over.
    Ends,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.signal.end();
    }
}

impl Http2 {
    /// Looks at the stream of `signal` after `event`.
    pub(crate) fn attend(&mut self, shared: &mut Shared, signal: &Arc<Signal>, event: Event) {
        let asked = signal.take();
        let key = signal.stream();
        let mut share = self.share();
        let Some(stream) = self.streams.get_mut(key) else { return };
        self.held_bytes -= stream.out.queued_bytes();
        self.gathered_bytes -= stream.gathered_bytes();
        let waker = Waker::from(signal.clone());
        let mut look = Look {
            shared,
            cx: Context::from_waker(&waker),
            peer: self.peer,
            room: GATHERED_BYTES_MAX.saturating_sub(self.gathered_bytes),
        };
        let share_before = share;
        let outcome = stream.attend(&mut look, event, asked, &mut share);
        self.sent_bytes += share_before - share;
        if matches!(outcome, Outcome::Ends) {
            self.streams.remove(key).count(shared);
            return;
        }
        self.held_bytes += stream.out.queued_bytes();
        self.gathered_bytes += stream.gathered_bytes();
        if matches!(outcome, Outcome::Parks) && !stream.parked {
            stream.parked = true;
            self.parked.push_back(signal.clone());
        }
    }

    /// Adds a stream and looks at it for the first time.
    pub(crate) fn keep(&mut self, shared: &mut Shared, stream: Stream, deadline: Option<Instant>) {
        let signal = stream.signal.clone();
        if let Some(deadline) = deadline {
            shared.deadlines.push(deadline, signal.clone());
        }
        self.held_bytes += stream.out.queued_bytes();
        self.gathered_bytes += stream.gathered_bytes();
        signal.set_stream(self.streams.insert(stream));
        self.attend(shared, &signal, Event::Wake);
    }
}

/// What one look at a stream needs.
struct Look<'a> {
    shared: &'a mut Shared,
    /// Wakes the stream, not the connection.
    cx: Context<'a>,
    peer: SocketAddr,
    /// Bytes that the incomplete request of this stream may hold.
    room: usize,
}

impl Stream {
    pub(crate) fn new(signal: Arc<Signal>, method: Option<usize>, input: Input, out: Outflow, role: Role) -> Stream {
        Stream { signal, method, input, out, role, code: None, parked: false }
    }

    /// A stream that only has output left.
    pub(crate) fn replying(signal: Arc<Signal>, method: usize, out: Outflow, code: Code) -> Stream {
        let input = Input { body: None, decoder: Decoder::new(Encoding::Identity, 0) };
        let mut stream = Stream::new(signal, Some(method), input, out, Role::Output);
        stream.code = Some(code);
        stream
    }

    /// Counts how the call ended.
    pub(crate) fn count(&self, shared: &Shared) {
        if let Some(method) = self.method {
            shared.stats.handled(method, self.code.unwrap_or(Code::Canceled));
        }
    }

    /// Bytes of the request that are here but not yet handed on.
    fn gathered_bytes(&self) -> usize {
        let whole = match &self.role {
            Role::Unary { message: Some(message), .. } => message.len(),
            Role::Handler(Handler { message: Some(message), .. }) => message.len(),
            Role::Http { body, .. } => body.len(),
            _ => 0,
        };
        whole + self.input.decoder.held_bytes()
    }

    fn attend(&mut self, look: &mut Look<'_>, event: Event, asked: bool, share: &mut usize) -> Outcome {
        match event {
            Event::Wake => {}
            Event::Share => self.parked = false,
            Event::Answer(answer) => self.answer(look, answer),
            Event::Expired => {
                if matches!(self.role, Role::Output) {
                    self.out.reset(Reason::CANCEL);
                    return Outcome::Ends;
                }
                self.code = Some(Code::DeadlineExceeded);
                if !self.out.abort(Status::deadline_exceeded()) {
                    return Outcome::Ends;
                }
                self.settle();
            }
        }
        if asked {
            self.drive(look, |handler, out| handler.ready(out));
        }
        loop {
            if !self.receive(look) {
                return Outcome::Ends;
            }
            let progress = self.out.pump(&mut look.cx, share);
            match progress {
                Progress::Done | Progress::Broken => return Outcome::Ends,
                Progress::Idle | Progress::Window | Progress::Share => {}
            }
            if let Role::Handler(handler) = &mut self.role
                && handler.starved
                && Outbound::new(&mut self.out).has_room()
            {
                handler.starved = false;
                self.drive(look, |handler, out| handler.ready(out));
                continue;
            }
            if progress == Progress::Share {
                return Outcome::Parks;
            }
            return if self.out.poll_reset(&mut look.cx).is_ready() { Outcome::Ends } else { Outcome::Waits };
        }
    }

    /// Reads what the client has sent. False if the stream is broken.
    fn receive(&mut self, look: &mut Look<'_>) -> bool {
        loop {
            if let Role::Handler(handler) = &mut self.role
                && !Outbound::new(&mut self.out).has_room()
            {
                handler.starved = true;
                return true;
            }
            match self.input.decoder.next() {
                Ok(None) => {}
                Ok(Some(message)) => {
                    self.message(look, message);
                    continue;
                }
                Err(status) => self.fail(status),
            }
            let Some(body) = &mut self.input.body else { return true };
            match body.poll_data(&mut look.cx) {
                Poll::Pending => return true,
                Poll::Ready(Some(Ok(data))) => {
                    // Fails only if more is released than came.
                    let _ = body.flow_control().release_capacity(data.len());
                    self.data(look, data);
                }
                Poll::Ready(Some(Err(_))) => return false,
                Poll::Ready(None) => {
                    self.input.body = None;
                    self.half_closed(look);
                }
            }
        }
    }

    fn data(&mut self, look: &mut Look<'_>, data: Bytes) {
        let bytes_max = look.shared.options.message_bytes_max;
        if let Role::Http { body, .. } = &mut self.role {
            body.extend_from_slice(&data);
            if body.len() > bytes_max {
                self.respond(plain_response(StatusCode::PAYLOAD_TOO_LARGE));
            }
            return;
        }
        self.input.decoder.push(data);
        if self.gathered_bytes() > look.room {
            let text = format!("grpc: incomplete requests of this connection exceed {GATHERED_BYTES_MAX} bytes");
            self.fail(Status::new(Code::ResourceExhausted, text));
        }
    }

    fn message(&mut self, look: &mut Look<'_>, message: Bytes) {
        if let Some(method) = self.method {
            look.shared.stats.received(method, message.len());
        }
        match &mut self.role {
            Role::Unary { message: slot @ None, .. } => *slot = Some(message),
            Role::Handler(Handler { single: true, message: slot @ None, .. }) => *slot = Some(message),
            Role::Handler(Handler { single: false, .. }) => {
                self.drive(look, |handler, out| handler.message(message, out));
            }
            Role::Unary { .. } | Role::Handler(_) => self.fail(too_many_messages()),
            Role::Http { .. } | Role::Answer | Role::Output => {}
        }
    }

    fn half_closed(&mut self, look: &mut Look<'_>) {
        if self.input.decoder.held_bytes() > 0 {
            return self.fail(cut_off());
        }
        match std::mem::replace(&mut self.role, Role::Answer) {
            Role::Unary { message: None, .. } | Role::Handler(Handler { single: true, message: None, .. }) => {
                self.fail(no_message());
            }
            Role::Unary { metadata, deadline, message: Some(message) } => {
                let call = Call { message, metadata, deadline, peer: look.peer };
                let method = self.method.unwrap_or_default();
                let service = &look.shared.service;
                let answer = inline(&self.signal, |signal| service.unary(method, call, Responder::new(signal)));
                if let Some(answer) = answer {
                    self.answer(look, answer);
                }
            }
            Role::Http { head, body } => {
                let request = http::Request::from_parts(*head, body.freeze());
                let service = &look.shared.service;
                if let Some(answer) =
                    inline(&self.signal, |signal| service.http(request, HttpResponder::stream(signal)))
                {
                    self.answer(look, answer);
                }
            }
            Role::Handler(mut handler) => {
                let single = handler.message.take();
                self.role = Role::Handler(handler);
                if let Some(message) = single {
                    self.drive(look, |handler, out| handler.message(message, out));
                }
                self.drive(look, |handler, out| handler.half_closed(out));
            }
            role @ (Role::Answer | Role::Output) => self.role = role,
        }
    }

    /// Takes the service's answer, if one is waited for.
    fn answer(&mut self, look: &mut Look<'_>, answer: Answer) {
        if !matches!(self.role, Role::Answer) {
            return;
        }
        match answer {
            Answer::Grpc(Ok(reply)) => {
                self.code = Some(Code::Ok);
                if let Some(method) = self.method {
                    look.shared.stats.sent(method, 1, reply.len());
                }
                self.out.reply(reply);
                self.settle();
            }
            Answer::Grpc(Err(status)) => self.fail(status),
            Answer::Http(response) => self.respond(*response),
        }
    }

    /// Calls the handler, if it is still there.
    fn drive(&mut self, look: &mut Look<'_>, call: impl FnOnce(&mut dyn StreamHandler, &mut Outbound<'_>)) {
        let Role::Handler(handler) = &mut self.role else { return };
        let mut out = Outbound::new(&mut self.out);
        call(&mut *handler.handler, &mut out);
        handler.starved |= !out.has_room();
        let (messages, bytes) = out.counts();
        if let Some(method) = self.method
            && messages > 0
        {
            look.shared.stats.sent(method, messages, bytes);
        }
        if let Some(code) = self.out.end_code() {
            self.code = Some(code);
            self.settle();
        }
    }

    fn fail(&mut self, status: Status) {
        self.code = Some(status.code);
        self.out.finish(status);
        self.settle();
    }

    fn respond(&mut self, response: http::Response<Bytes>) {
        self.out.respond(response);
        self.settle();
    }

    /// Only output is left. The rest of the input is of no interest, its memory least of all.
    fn settle(&mut self) {
        self.role = Role::Output;
        self.input.body = None;
        self.input.decoder = Decoder::new(Encoding::Identity, 0);
    }
}
