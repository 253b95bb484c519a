//! A stream that was not answered at once, and what it waits for.

use std::sync::Arc;
use std::time::Instant;

use api::Code;
use bytes::{Bytes, BytesMut};
use contain::Outside;

use super::frame::Reason;
use super::head::Grpc;
use super::input::Input;
use super::outflow::{HANDLER_BYTES, Outflow, STREAM_BYTES};
use super::receiver::WINDOW_UPDATE_BYTES_MIN;
use super::sender::Sender;
use crate::grpc::responder::Answer;
use crate::runtime::mailbox::Resume;
use crate::runtime::shared::Shared;
use crate::runtime::signal::Signal;
use crate::{Peer, StreamHandler};
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
    /// The service continues the call.
    Resume(Resume),
    /// The deadline has passed.
    Expired,
    /// The rest of the request does not come.
    Late,
}

/// What a look at a stream is for.
pub(crate) enum Cause<'a> {
    Event(Event),
    /// More of the request has come, and whether that was all.
    Input(&'a [u8], bool),
}

/// A request on its way, or its response.
pub(crate) struct Stream {
    pub(crate) signal: Arc<Signal>,
    pub(crate) id: u32,
    /// Index of the method; none for plain HTTP.
    pub(crate) method: Option<usize>,
    pub(crate) input: Input,
    pub(crate) out: Outflow,
    pub(crate) role: Role,
    /// What the call ended or will end with. A call that breaks off before counts as canceled.
    pub(crate) code: Option<Code>,
    /// When its headers came.
    pub(crate) began: Instant,
    /// It is in the connection's list of streams that wait for room for output.
    pub(crate) parked: bool,
    /// It is in the connection's backlog.
    pub(crate) waits: bool,
    /// It is in the connection's list of streams whose handlers wait until less of their output is held.
    pub(crate) hungers: bool,
    /// That its window has opened is in the connection's inbox.
    pub(crate) window_due: bool,
    /// A handler makes its output.
    pub(crate) streams: bool,
    /// Memory that the headers take while the request waits, or has a handler.
    pub(crate) head_bytes: usize,
    /// How much had left when that was looked at last and whether anything was to be sent, and since when.
    pub(crate) sent: Option<((u64, bool), Instant)>,
    /// The request is a HEAD, and its response has no body.
    pub(crate) is_head: bool,
}

/// What the stream waits for.
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
    /// Code of the service, which is not of this connection alone.
    pub(crate) handler: Outside<Box<dyn StreamHandler>>,
    /// The client sends exactly one message, which is held until the client has finished.
    pub(crate) single: bool,
    pub(crate) message: Option<Bytes>,
    /// The handler has found no room.
    pub(crate) starved: bool,
}

impl Handler {
    pub(crate) fn new(handler: Box<dyn StreamHandler>, single: bool) -> Handler {
        Handler { handler: Outside::new(handler), single, message: None, starved: false }
    }
}

/// How a look at a stream ended.
pub(crate) enum Outcome {
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

/// What one look at a stream needs.
pub(crate) struct Look<'a> {
    pub(crate) shared: &'a mut Shared,
    pub(crate) sender: &'a mut Sender,
    pub(crate) peer: &'a Peer,
    /// Bytes that the incomplete request of this stream may hold.
    pub(crate) room: usize,
    /// Whether whole requests may be handed to the service.
    pub(crate) can_begin: bool,
    /// Bytes below which its handler may have more queued.
    pub(crate) stream_room: usize,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.signal.end();
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
            window_due: false,
            head_bytes: 0,
            sent: None,
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
    #[expect(clippy::arithmetic_side_effects, reason = "what is given back was taken off the window, which is a `u32`")]
    pub(crate) fn give_back(&mut self, sender: &mut Sender) {
        let is_starved = matches!(&self.role, Role::Handler(handler) if handler.starved);
        let unread = if is_starved { self.input.decoder.held_bytes() } else { 0 };
        let held = match &self.role {
            Role::Handler(handler) => handler.handler.look(|handler| handler.held_bytes()),
            _ => 0,
        };
        let kept = unread.saturating_add(held);
        let free = self.input.taken_bytes.saturating_sub(kept);
        self.input.taken_bytes -= free;
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

    /// Bytes of an HTTP body that a handler has taken and still holds.
    fn handler_held_bytes(&self) -> usize {
        match &self.role {
            Role::Handler(handler) if self.method.is_none() => handler.handler.look(|handler| handler.held_bytes()),
            _ => 0,
        }
    }

    /// Bytes of the request that are here but not yet handed on.
    pub(crate) fn gathered_bytes(&self) -> usize {
        let whole = match &self.role {
            Role::Handler(_) if self.method.is_none() => self.handler_held_bytes(),
            Role::Unary { message: Some(message), .. } => message.len(),
            Role::Handler(Handler { message: Some(message), .. }) => message.len(),
            Role::Http { body, .. } => body.len(),
            _ => 0,
        };
        let waits = matches!(self.role, Role::Unary { .. } | Role::Http { .. });
        let waiting = if waits { self.head_bytes.saturating_add(STREAM_BYTES) } else { 0 };
        whole.saturating_add(waiting).saturating_add(self.input.decoder.held_bytes())
    }

    /// Memory of headers that their handler keeps for as long as it likes, and of the stream. What others hold must not end such a
    /// stream, so it is asked for only before there is one.
    pub(crate) fn lasting_head_bytes(&self) -> usize {
        if matches!(self.role, Role::Handler(_)) { self.head_bytes.saturating_add(HANDLER_BYTES) } else { 0 }
    }
}
