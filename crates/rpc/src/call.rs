//! The streams of a connection that were not answered at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use api::Code;
use bytes::{Bytes, BytesMut};
use http::StatusCode;

use crate::body::Body;
use crate::body_time::Mark;
use crate::connection::Http2;
use crate::decoder::{Decoder, cut_off, no_message, sole, too_many_messages};
use crate::encoding::Encoding;
use crate::exchange::Exchange;
use crate::frame::Reason;
use crate::head::Grpc;
use crate::outflow::{Outflow, Progress, STREAM_BYTES};
use crate::receiver::{WINDOW_BYTES, WINDOW_UPDATE_BYTES_MIN};
use crate::responder::{Answer, Responder, inline, plain_response};
use crate::sender::Sender;
use crate::signal::Signal;
use crate::thread::Shared;
use crate::{Call, HttpResponder, Limit, Outbound, Peer, Reply, Status, StreamHandler, StreamWaker};

/// Incomplete requests that one connection may hold, in bytes, whatever its number of streams.
const GATHERED_BYTES_MAX: usize = 64 << 20;

/// The same for all connections together.
pub(crate) const GATHERED_BYTES_ALL_MAX: usize = 256 << 20;

/// Entries that a list of signals may have whatever the number of streams.
const LISTED_MIN: usize = 64;

/// What a call ends with whose message does not come.
const TOO_LATE: &str = "grpc: the rest of the request does not come";

/// What has happened to a stream.
pub(crate) enum Event {
    /// The handler asked to be called, or the stream is new.
    Wake,
    /// There is room for output again.
    Share,
    /// The peer has opened the stream's window.
    Window,
    /// The whole request may be handed to the service now.
    Begin,
    /// The handler may make more output now.
    Fed,
    /// The service has answered.
    Answer(Answer),
    /// The deadline has passed.
    Expired,
    /// The rest of the request does not come.
    Late,
}

/// What a look at a stream is for.
enum Cause<'a> {
    Event(Event),
    /// More of the request has come, and whether that was all.
    Input(&'a [u8], bool),
}

pub(crate) struct Stream {
    pub(crate) signal: Arc<Signal>,
    pub(crate) id: u32,
    /// Index of the method; none for plain HTTP.
    pub(crate) method: Option<usize>,
    pub(crate) input: Input,
    pub(crate) out: Outflow,
    pub(crate) role: Role,
    /// What the call ended or will end with. A call that breaks off before counts as canceled.
    code: Option<Code>,
    /// When its headers came.
    began: Instant,
    /// It is in the connection's list of streams that wait for room for output.
    parked: bool,
    /// It is in the connection's backlog.
    waits: bool,
    /// It is in the connection's list of streams whose handlers wait until less of their output is held.
    hungers: bool,
    /// A handler makes its output.
    streams: bool,
    /// Memory that the headers take while the request waits.
    pub(crate) head_bytes: usize,
    /// How much was left to be sent when a server that ends looked last, and since when.
    pub(crate) left: Option<(usize, Instant)>,
    /// The request is a HEAD, and its response has no body.
    pub(crate) is_head: bool,
}

/// The receiving side of a stream.
pub(crate) struct Input {
    /// The client has sent its last byte.
    pub(crate) ended: bool,
    /// The service has been told so.
    pub(crate) told: bool,
    pub(crate) decoder: Decoder,
    /// Bytes of the body still to come, if that was announced.
    pub(crate) left: Option<u64>,
    /// What the client may still send.
    window: i64,
    /// What came and has not been given back to the window.
    taken_bytes: usize,
    /// What is given back and not yet announced.
    due: u32,
    /// Bytes of the body that have come.
    pub(crate) received_bytes: u64,
    /// How far the message was when it was looked at.
    pub(crate) mark: Option<Mark>,
}

/// Who the stream waits for.
pub(crate) enum Role {
    /// The client, for the message of a unary call; then for the connection to hold fewer replies.
    Unary { grpc: Arc<Grpc>, deadline: Option<Instant>, message: Option<Bytes> },
    /// The same for an HTTP request and its body.
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
    /// It waits for something that brings it up again.
    Waits,
    /// It waits for room for output.
    Parks,
    /// It is whole, but too much is held for it to begin.
    Queues,
    /// Its handler waits until the connection holds less output of handlers.
    Hungers,
    /// It is over. The client is told why if it cannot know.
    Ends(Option<Reason>),
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.signal.end();
    }
}

impl Http2 {
    /// Looks at the stream of `signal` after `event`.
    pub(crate) fn attend(&mut self, shared: &mut Shared, signal: Arc<Signal>, event: Event) {
        self.look(shared, &signal, Cause::Event(event));
        if signal.is_ended() {
            shared.recycle(signal);
        }
    }

    /// Looks at the stream under `key`, of which more has come.
    pub(crate) fn attend_input(&mut self, shared: &mut Shared, key: usize, data: &[u8], end: bool) {
        let signal = self.streams[key].signal.clone();
        self.look(shared, &signal, Cause::Input(data, end));
    }

    /// Adds a stream, and looks at it for the first time if there is something to do.
    pub(crate) fn keep(&mut self, shared: &mut Shared, stream: Stream, deadline: Option<Instant>) {
        let (signal, id) = (stream.signal.clone(), stream.id);
        // What waits for the client or the service has nothing to be looked at yet.
        let is_due = matches!(stream.role, Role::Output) || (stream.input.ended && !stream.input.told);
        if let Some(deadline) = deadline {
            shared.deadlines.push(deadline, signal.clone());
        }
        self.hold(stream.streams, stream.out.held_bytes() as isize);
        self.gathered_bytes += stream.gathered_bytes();
        self.tell_gathered(shared);
        let key = self.streams.insert(stream);
        signal.set_stream(key);
        self.ids.insert(id, key);
        if is_due {
            self.look(shared, &signal, Cause::Event(Event::Wake));
        }
    }

    /// Takes the stream under `key` out.
    pub(crate) fn remove(&mut self, shared: &Shared, key: usize) {
        let stream = self.streams.remove(key);
        self.hold(stream.streams, -(stream.out.held_bytes() as isize));
        self.gathered_bytes -= stream.gathered_bytes();
        self.tell_gathered(shared);
        self.discard(shared, &stream);
    }

    /// Counts output that waits in streams.
    fn hold(&mut self, streams: bool, bytes: isize) {
        let held = if streams { &mut self.streamed_bytes } else { &mut self.held_bytes };
        // No more is taken away than was added.
        *held = held.wrapping_add_signed(bytes);
    }

    /// Bytes that incomplete requests of this connection may hold beyond those that they hold.
    pub(crate) fn gathering_room(&self, shared: &Shared) -> usize {
        let of_all = GATHERED_BYTES_ALL_MAX.saturating_sub(shared.gathered_bytes.load(Ordering::Relaxed));
        of_all.min(GATHERED_BYTES_MAX.saturating_sub(self.gathered_bytes))
    }

    /// Adds what this connection holds of incomplete requests to what all hold.
    pub(crate) fn tell_gathered(&mut self, shared: &Shared) {
        let before = std::mem::replace(&mut self.told_gathered_bytes, self.gathered_bytes);
        if before != self.gathered_bytes {
            shared.gathered_bytes.fetch_add(self.gathered_bytes.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// The bookkeeping for a stream that is out of the table and not counted in `held_bytes` and `gathered_bytes`.
    fn discard(&mut self, shared: &Shared, stream: &Stream) {
        self.ids.remove(&stream.id);
        stream.count(shared);
    }

    fn look(&mut self, shared: &mut Shared, signal: &Arc<Signal>, cause: Cause<'_>) {
        let asked = signal.take();
        let key = signal.stream();
        let (can_begin, may_stream) = (self.can_begin(), self.may_stream());
        let room = self.gathering_room(shared);
        let Some(stream) = self.streams.get_mut(key) else { return };
        let (streams, held_bytes, gathered_bytes) = (stream.streams, stream.out.held_bytes(), stream.gathered_bytes());
        let room = room + gathered_bytes;
        let mut look = Look { shared, sender: &mut self.sender, peer: &self.peer, room, can_begin, may_stream };
        let outcome = stream.attend(&mut look, cause, asked);
        let is_over = matches!(outcome, Outcome::Ends(_));
        // A response that goes in pieces makes a handler of a stream that had none.
        let streams_after = stream.streams;
        let (held_after, gathered_after) =
            if is_over { (0, 0) } else { (stream.out.held_bytes(), stream.gathered_bytes()) };
        if !is_over {
            stream.give_back(&mut self.sender);
        }
        let list = match outcome {
            Outcome::Parks => Some((&mut self.parked, &mut stream.parked, None)),
            Outcome::Queues => Some((&mut self.backlog, &mut stream.waits, Some(Limit::HeldReplies))),
            Outcome::Hungers => Some((&mut self.hungry, &mut stream.hungers, Some(Limit::HeldMessages))),
            Outcome::Waits | Outcome::Ends(_) => None,
        };
        if let Some((list, is_listed, limit)) = list
            && !std::mem::replace(is_listed, true)
        {
            if let Some(limit) = limit {
                shared.stats.hit(limit);
            }
            list.push_back(signal.clone());
            // Streams that end leave their signals behind. A stream is in a list once at most.
            if list.len() > 2 * self.ids.len() + LISTED_MIN {
                list.retain(|signal| !signal.is_ended());
            }
        }
        if let Outcome::Ends(reason) = outcome {
            let stream = self.streams.remove(key);
            self.discard(shared, &stream);
            if let Some(reason) = reason.or((!stream.input.ended).then_some(Reason::NO_ERROR)) {
                self.sender.reset(stream.id, reason);
                self.forsake(stream.id);
            }
        }
        self.hold(streams, -(held_bytes as isize));
        self.hold(streams_after, held_after as isize);
        self.gathered_bytes = self.gathered_bytes + gathered_after - gathered_bytes;
        self.tell_gathered(shared);
    }
}

/// What a call ends with when incomplete requests take too much memory.
pub(crate) fn too_much_gathered() -> Status {
    let text = format!(
        "grpc: incomplete requests exceed {GATHERED_BYTES_MAX} bytes of this connection or {GATHERED_BYTES_ALL_MAX} of all"
    );
    Status::new(Code::ResourceExhausted, text)
}

/// What one look at a stream needs.
struct Look<'a> {
    shared: &'a mut Shared,
    sender: &'a mut Sender,
    peer: &'a Peer,
    /// Bytes that the incomplete request of this stream may hold.
    room: usize,
    /// Whether whole requests may be handed to the service.
    can_begin: bool,
    /// Whether handlers may make more output.
    may_stream: bool,
}

impl Input {
    pub(crate) fn new(decoder: Decoder, left: Option<u64>, ended: bool) -> Input {
        let window = i64::from(WINDOW_BYTES);
        Input { ended, told: false, decoder, left, window, taken_bytes: 0, due: 0, received_bytes: 0, mark: None }
    }

    /// Nothing more is to come.
    pub(crate) fn whole() -> Input {
        Input { told: true, ..Input::new(Decoder::new(Encoding::Identity, 0), None, true) }
    }

    /// A frame has come: `len` is what it counts for in the windows, `data_bytes` what it holds. The error is why it must not have.
    pub(crate) fn take(&mut self, len: usize, data_bytes: usize, end: bool) -> Result<(), Reason> {
        if self.ended {
            return Err(Reason::STREAM_CLOSED);
        }
        if len as i64 > self.window {
            return Err(Reason::FLOW_CONTROL_ERROR);
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(data_bytes as u64).ok_or(Reason::PROTOCOL_ERROR)?;
            if end && *left > 0 {
                return Err(Reason::PROTOCOL_ERROR);
            }
        }
        self.window -= len as i64;
        self.taken_bytes += len;
        self.received_bytes += data_bytes as u64;
        Ok(())
    }
}

impl Stream {
    pub(crate) fn new(
        signal: Arc<Signal>,
        id: u32,
        method: Option<usize>,
        input: Input,
        out: Outflow,
        role: Role,
        began: Instant,
    ) -> Stream {
        Stream {
            signal,
            id,
            method,
            input,
            out,
            streams: matches!(role, Role::Handler(_)),
            role,
            code: None,
            began,
            parked: false,
            waits: false,
            hungers: false,
            head_bytes: 0,
            left: None,
            is_head: false,
        }
    }

    /// A stream that only has output left.
    pub(crate) fn replying(
        signal: Arc<Signal>,
        id: u32,
        method: usize,
        out: Outflow,
        code: Code,
        began: Instant,
    ) -> Stream {
        let mut stream = Stream::new(signal, id, Some(method), Input::whole(), out, Role::Output, began);
        stream.code = Some(code);
        stream
    }

    /// Gives back to the window what is no longer held: of a handler that has no room, only what it has taken.
    fn give_back(&mut self, sender: &mut Sender) {
        let is_starved = matches!(&self.role, Role::Handler(handler) if handler.starved);
        let kept = if is_starved { self.input.decoder.held_bytes() } else { 0 } + self.handler_held_bytes();
        let free = self.input.taken_bytes.saturating_sub(kept);
        self.input.taken_bytes -= free;
        // No more than the window was.
        self.input.due += free as u32;
        if self.input.due >= WINDOW_UPDATE_BYTES_MIN && !self.input.ended {
            self.input.window += i64::from(self.input.due);
            sender.window_update(self.id, std::mem::take(&mut self.input.due));
        }
    }

    /// Counts how the call ended.
    pub(crate) fn count(&self, shared: &Shared) {
        if let Some(method) = self.method {
            shared.stats.ended(method, self.code.unwrap_or(Code::Canceled), self.began);
        }
    }

    /// Bytes that a handler has taken and still holds. Only those of HTTP bodies do.
    fn handler_held_bytes(&self) -> usize {
        match &self.role {
            Role::Handler(handler) if self.method.is_none() => handler.handler.held_bytes(),
            _ => 0,
        }
    }

    /// Bytes of the request that are here but not yet handed on.
    fn gathered_bytes(&self) -> usize {
        let whole = match &self.role {
            Role::Handler(_) if self.method.is_none() => self.handler_held_bytes(),
            Role::Unary { message: Some(message), .. } => message.len(),
            Role::Handler(Handler { message: Some(message), .. }) => message.len(),
            Role::Http { body, .. } => body.len(),
            _ => 0,
        };
        let waits = matches!(self.role, Role::Unary { .. } | Role::Http { .. });
        whole + self.head_bytes + if waits { STREAM_BYTES } else { 0 } + self.input.decoder.held_bytes()
    }

    fn attend(&mut self, look: &mut Look<'_>, cause: Cause<'_>, asked: bool) -> Outcome {
        self.out.allow(look.may_stream);
        match cause {
            Cause::Input(data, end) => {
                self.input.ended |= end;
                self.data(look, data);
            }
            Cause::Event(Event::Wake | Event::Window) => {}
            Cause::Event(Event::Share) => self.parked = false,
            Cause::Event(Event::Begin) => self.waits = false,
            Cause::Event(Event::Fed) => self.hungers = false,
            Cause::Event(Event::Answer(answer)) => self.answer(look, answer),
            Cause::Event(Event::Late) => self.late(),
            // The time for the request has passed, not that for the response.
            Cause::Event(Event::Expired) if self.method.is_none() => {
                if matches!(self.role, Role::Http { .. }) && !self.input.ended {
                    look.shared.stats.hit(Limit::BodyTime);
                    self.respond(plain_response(StatusCode::REQUEST_TIMEOUT));
                }
            }
            Cause::Event(Event::Expired) => {
                if matches!(self.role, Role::Output) {
                    return Outcome::Ends(Some(Reason::CANCEL));
                }
                self.code = Some(Code::DeadlineExceeded);
                if !self.out.abort(Status::deadline_exceeded()) {
                    return Outcome::Ends(Some(Reason::CANCEL));
                }
                self.settle();
            }
        }
        if asked {
            self.drive(look, |handler, out| handler.ready(out));
        }
        loop {
            let whole = self.receive(look);
            let progress = self.out.pump(self.id, look.sender);
            match progress {
                Progress::Done => return Outcome::Ends(None),
                Progress::Broken(reason) => {
                    self.code = Some(Code::Internal);
                    return Outcome::Ends(Some(reason));
                }
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
            let is_starved = matches!(&self.role, Role::Handler(handler) if handler.starved);
            return match progress {
                Progress::Share => Outcome::Parks,
                _ if !whole => Outcome::Queues,
                _ if is_starved && !look.may_stream => Outcome::Hungers,
                _ => Outcome::Waits,
            };
        }
    }

    /// Takes what the client has sent as far as it can be taken now. False if it is all there and waits for its turn.
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
                Err(status) => {
                    look.shared.stats.unreadable(&status);
                    self.fail(status);
                }
            }
            if !self.input.ended || self.input.told {
                return true;
            }
            if !look.can_begin && matches!(self.role, Role::Unary { .. } | Role::Http { .. }) {
                return false;
            }
            self.input.told = true;
            self.half_closed(look);
        }
    }

    fn data(&mut self, look: &mut Look<'_>, data: &[u8]) {
        let bytes_max = look.shared.options.message_bytes_max;
        match &mut self.role {
            Role::Http { body, .. } => {
                body.extend_from_slice(data);
                if body.len() > look.shared.options.body_bytes_max {
                    look.shared.stats.hit(Limit::MessageBytes);
                    return self.respond(plain_response(StatusCode::PAYLOAD_TOO_LARGE));
                }
            }
            // Nearly always the whole body is in one frame.
            Role::Unary { message: None, grpc, .. } if self.input.ended && self.input.decoder.held_bytes() == 0 => {
                match sole(data, grpc.encoding, bytes_max) {
                    Ok(message) => self.message(look, message),
                    Err(status) => {
                        look.shared.stats.unreadable(&status);
                        return self.fail(status);
                    }
                }
            }
            Role::Unary { .. } | Role::Handler(_) => self.input.decoder.push(data),
            Role::Answer | Role::Output => return,
        }
        if self.gathered_bytes() > look.room {
            look.shared.stats.hit(Limit::GatheredBytes);
            self.fail(too_much_gathered());
        }
    }

    fn message(&mut self, look: &mut Look<'_>, message: Bytes) {
        if let Some(method) = self.method {
            look.shared.stats.received(method, message.len());
        }
        self.input.mark = None;
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
        self.head_bytes = 0;
        match std::mem::replace(&mut self.role, Role::Answer) {
            Role::Unary { message: None, .. } | Role::Handler(Handler { single: true, message: None, .. }) => {
                self.fail(no_message());
            }
            Role::Unary { grpc, deadline, message: Some(message) } => {
                let metadata = grpc.metadata.clone();
                let call = Call { message, metadata, deadline, peer: look.peer.clone(), is_alone: false };
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
                let left = match reply {
                    Reply::Whole(message) => self.out.reply_at_once(self.id, look.sender, message).map(Reply::Whole),
                    parts @ Reply::Parts { .. } => Some(parts),
                };
                if let Some(reply) = left {
                    self.out.reply(reply);
                }
                self.settle();
            }
            Answer::Grpc(Err(status)) => self.fail(status),
            Answer::Http(response) => {
                let (head, body) = response.into_parts();
                match body {
                    Body::Whole(body) => self.respond(http::Response::from_parts(head, body)),
                    Body::Piped(_) if self.is_head => self.respond(http::Response::from_parts(head, Bytes::new())),
                    Body::Piped(body) => {
                        self.out.begin(head.status, head.headers);
                        self.streams = true;
                        let handler = Box::new(Exchange::answering(body, StreamWaker::new(self.signal.clone())));
                        self.role = Role::Handler(Handler { handler, single: false, message: None, starved: false });
                        self.drive(look, |handler, out| handler.ready(out));
                    }
                }
            }
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
        if self.out.has_end() {
            self.code = self.out.end_code().or(self.code);
            self.settle();
        }
    }

    /// Gives up a request that does not come, unless it just has.
    fn late(&mut self) {
        match self.role {
            _ if self.input.ended => {}
            Role::Http { .. } => self.respond(plain_response(StatusCode::REQUEST_TIMEOUT)),
            Role::Unary { .. } | Role::Handler(_) => self.fail(Status::new(Code::Unavailable, TOO_LATE)),
            Role::Answer | Role::Output => {}
        }
    }

    fn fail(&mut self, status: Status) {
        self.code = Some(status.code);
        self.out.finish(status);
        self.settle();
    }

    fn respond(&mut self, response: http::Response<Bytes>) {
        self.out.respond(if self.is_head { response.map(|_| Bytes::new()) } else { response });
        self.settle();
    }

    /// Only output is left. The rest of the input is of no interest, its memory least of all.
    fn settle(&mut self) {
        self.role = Role::Output;
        self.input.told = true;
        self.head_bytes = 0;
        self.input.decoder = Decoder::new(Encoding::Identity, 0);
    }
}
