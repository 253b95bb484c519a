//! The streams of a connection that were not answered at once: how they are kept, looked at and taken out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use api::Code;

use crate::connection::Http2;
use crate::frame::Reason;
use crate::signal::Signal;
use crate::stream::{Cause, Event, Look, Outcome, Role, Stream};
use crate::thread::Shared;
use crate::{Limit, Status};
/// Incomplete requests that one connection may hold, in bytes, whatever its number of streams.
const GATHERED_BYTES_MAX: usize = 64 << 20;

/// The same for all connections together.
pub(crate) const GATHERED_BYTES_ALL_MAX: usize = 256 << 20;

/// Changes of what a connection holds that are told.
const TOLD_BYTES_MIN: usize = 16 << 10;

/// Entries that a list of signals may have whatever the number of streams.
const LISTED_MIN: usize = 64;

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
        self.tell_held();
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
        self.tell_held();
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

    /// Adds what waits in this connection's streams to what waits in all. Small changes are told together with others.
    pub(crate) fn tell_held(&mut self) {
        let held = self.held_bytes.wrapping_add(self.streamed_bytes);
        let before = self.told_held_bytes;
        if held.abs_diff(before) >= TOLD_BYTES_MIN || (held == 0 && before != 0) {
            self.told_held_bytes = held;
            self.held_bytes_of_all.fetch_add(held.wrapping_sub(before), Ordering::Relaxed);
        }
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
        // A signal that a panic has cut off from its stream finds another one in its place, perhaps of another connection.
        let Some(stream) = self.streams.get_mut(key).filter(|stream| Arc::ptr_eq(&stream.signal, signal)) else {
            return;
        };
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
        if held_bytes != held_after || streams != streams_after {
            self.hold(streams, -(held_bytes as isize));
            self.hold(streams_after, held_after as isize);
            self.tell_held();
        }
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
