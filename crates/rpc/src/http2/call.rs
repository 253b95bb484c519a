//! The streams of a connection that were not answered at once: how they are kept, looked at and taken out.

use std::sync::Arc;
use std::time::Instant;

use api::Code;

use super::connection::Http2;
use super::frame::Reason;
use super::stream::{Cause, Event, Look, Outcome, Role, Stream};
use crate::runtime::shared::Shared;
use crate::runtime::signal::Signal;
use crate::{Limit, Status};
/// Entries that a list of signals may always have, however few streams there are.
const LISTED_MIN: usize = 64;

impl Http2 {
    /// Looks at the stream of `signal` after `event`.
    pub(crate) fn attend(&mut self, shared: &mut Shared, signal: Arc<Signal>, event: Event) {
        self.look(shared, &signal, Cause::Event(event));
        if signal.is_ended() {
            shared.recycle(signal);
        }
    }

    /// Looks at the stream of `signal`, of which more has come.
    pub(crate) fn attend_input(&mut self, shared: &mut Shared, signal: &Arc<Signal>, data: &[u8], end: bool) {
        self.look(shared, signal, Cause::Input(data, end));
    }

    /// Adds a stream, and looks at it for the first time if there is something to do.
    pub(crate) fn keep(&mut self, shared: &mut Shared, stream: Stream, deadline: Option<Instant>) {
        let (signal, id) = (stream.signal.clone(), stream.id);
        // What waits for the client or the service has nothing to be looked at yet.
        let is_due = matches!(stream.role, Role::Output) || (stream.input.ended && !stream.input.told);
        if let Some(deadline) = deadline {
            shared.deadlines.push(deadline, signal.clone());
        }
        self.hold(stream.streams, 0, stream.out.held_bytes());
        self.tell_held();
        self.gathered.change(0, stream.gathered_bytes());
        self.heads.change(0, stream.lasting_head_bytes());
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
        self.hold(stream.streams, stream.out.held_bytes(), 0);
        self.tell_held();
        self.gathered.change(stream.gathered_bytes(), 0);
        self.heads.change(stream.lasting_head_bytes(), 0);
        self.discard(shared, &stream);
    }

    /// Counts output that waits in a stream: `after` bytes now, `before` the last time.
    fn hold(&mut self, streams: bool, before: usize, after: usize) {
        let held = if streams { &mut self.streamed_bytes } else { &mut self.held_bytes };
        // No more is taken away than was added.
        *held = held.wrapping_sub(before).wrapping_add(after);
    }

    /// Adds what this connection holds to what all hold.
    pub(crate) fn tell_held(&mut self) {
        let streams = self.held_bytes.wrapping_add(self.streamed_bytes);
        self.held.tell(streams.saturating_add(self.socket_bytes()));
    }

    /// The bookkeeping for a stream that is out of the table and not counted in `held_bytes`, `gathered` and `heads`.
    fn discard(&mut self, shared: &Shared, stream: &Stream) {
        self.ids.remove(&stream.id);
        stream.count(shared);
    }

    fn look(&mut self, shared: &mut Shared, signal: &Arc<Signal>, cause: Cause<'_>) {
        let asked = signal.take();
        let key = signal.stream();
        let (can_begin, stream_room) = (self.can_begin(), self.stream_room());
        let room = self.gathered.room();
        // A signal that a panic has cut off from its stream finds another one in its place, perhaps of another connection.
        let Some(stream) = self.streams.get_mut(key).filter(|stream| Arc::ptr_eq(&stream.signal, signal)) else {
            return;
        };
        let (streams, held_bytes) = (stream.streams, stream.out.held_bytes());
        let (gathered_bytes, head_bytes) = (stream.gathered_bytes(), stream.lasting_head_bytes());
        let room = room.saturating_add(gathered_bytes);
        let mut look = Look { shared, sender: &mut self.sender, peer: &self.peer, room, can_begin, stream_room };
        let outcome = stream.attend(&mut look, cause, asked);
        let is_over = matches!(outcome, Outcome::Ends(_));
        // A response that goes in pieces makes a handler of a stream that had none.
        let streams_after = stream.streams;
        let (held_after, gathered_after, head_after) = if is_over {
            (0, 0, 0)
        } else {
            (stream.out.held_bytes(), stream.gathered_bytes(), stream.lasting_head_bytes())
        };
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
            if list.len() > self.ids.len().saturating_mul(2).saturating_add(LISTED_MIN) {
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
        if held_bytes != held_after || streams != streams_after {
            self.hold(streams, held_bytes, 0);
            self.hold(streams_after, 0, held_after);
            self.tell_held();
        }
        self.gathered.change(gathered_bytes, gathered_after);
        self.heads.change(head_bytes, head_after);
    }
}

/// What a call ends with when incomplete requests take too much memory.
pub(crate) fn too_much_gathered() -> Status {
    exceeds("incomplete requests")
}

/// What a call ends with when the headers of open streams do.
pub(crate) fn too_many_heads() -> Status {
    exceeds("headers of open streams")
}

fn exceeds(what: &str) -> Status {
    let text = format!("grpc: {what} exceed the bytes that this connection, its host or all may have held");
    Status::new(Code::ResourceExhausted, text)
}
