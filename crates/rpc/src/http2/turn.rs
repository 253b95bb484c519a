//! The turn of a stream: its request goes in as far as it can, its response out.

use api::Code;
use bytes::Bytes;
use http::StatusCode;

use super::call::too_much_gathered;
use super::frame::Reason;
use super::outflow::Progress;
use super::stream::{Cause, Event, Handler, Look, Outcome, Role, Stream};
use crate::grpc::decoder::{cut_off, no_message, sole, too_many_messages};
use crate::grpc::responder::{HttpResponder, Responder, inline, plain_response};
use crate::{Call, Limit, Outbound, Status};

impl Stream {
    pub(crate) fn attend(&mut self, look: &mut Look<'_>, cause: Cause<'_>, asked: bool) -> Outcome {
        self.out.allow(look.stream_room);
        match cause {
            Cause::Input(data, end) => {
                self.input.ended |= end;
                self.data(look, data);
            }
            Cause::Event(Event::Wake) => {}
            Cause::Event(Event::Window) => self.window_due = false,
            Cause::Event(Event::Share) => self.parked = false,
            Cause::Event(Event::Begin) => self.waits = false,
            Cause::Event(Event::Fed) => self.hungers = false,
            Cause::Event(Event::Answer(answer)) => self.answer(look, answer),
            Cause::Event(Event::Resume(resume)) => {
                if let Some(answer) = inline(&self.signal.clone(), |_| resume()) {
                    self.answer(look, answer);
                }
            }
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
            let is_starved = matches!(&self.role, Role::Handler(handler) if handler.starved);
            if is_starved
                && let Role::Handler(handler) = &mut self.role
                && Outbound::new(&mut self.out).has_room()
            {
                handler.starved = false;
                self.drive(look, |handler, out| handler.ready(out));
                continue;
            }
            if is_starved && self.input.decoder.has_message() && self.takes_message() {
                continue;
            }
            return match progress {
                Progress::Share => Outcome::Parks,
                _ if !whole => Outcome::Queues,
                _ if is_starved && look.stream_room == 0 => Outcome::Hungers,
                _ => Outcome::Waits,
            };
        }
    }

    /// Whether a handler, if there is one, may be given a message: there is room for the answer, or others leave none, but it is the only one
    /// that is owed.
    fn takes_message(&mut self) -> bool {
        let Role::Handler(handler) = &mut self.role else { return true };
        Outbound::new(&mut self.out).has_room()
            || (self.out.left() == 0 && handler.handler.look(|handler| handler.answers_in_a_crowd()))
    }

    /// Takes what the client has sent as far as it can be taken now. False if it is all there and waits for its turn.
    fn receive(&mut self, look: &mut Look<'_>) -> bool {
        loop {
            if !self.takes_message()
                && let Role::Handler(handler) = &mut self.role
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
        if !matches!(self.role, Role::Handler(_)) {
            self.head_bytes = 0;
        }
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
}
