//! The graceful shutdown of a connection.
//!
//! The client is told twice: first that the connection will end, then, when the answer to a ping shows that it knows, which of its
//! streams was the last to be served. So no request is lost that it sent before it knew.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::connection::Http2;
use super::frame::{Reason, WINDOW_BYTES_MAX};
use super::stream::{Role, Stream};

/// How long the answer to the ping may take.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(500);
/// A client that takes nothing of its answer for so long is not waited for.
const STALL_TIME_MAX: Duration = Duration::from_secs(1);
/// The ping between the two.
const PING: [u8; 8] = *b"farewell";

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    None,
    /// The client has been told, and a ping asks whether it knows.
    Announced(Instant),
    /// It has, or has not answered in time.
    Heard,
    /// No stream after this one is served.
    Said(u32),
}

impl Farewell {
    pub(crate) fn is_said(self) -> bool {
        matches!(self, Farewell::Said(_))
    }

    /// What to call the last stream that is served, if `newest` is the newest that has come: never more than was said before.
    pub(crate) fn last_stream(self, newest: u32) -> u32 {
        match self {
            Farewell::Said(last) => last.min(newest),
            _ => newest,
        }
    }

    /// Whether `stream` is still served.
    pub(crate) fn serves(self, stream: u32) -> bool {
        !matches!(self, Farewell::Said(last) if stream > last)
    }
}

impl Stream {
    /// Whether an answer is under way: one that the service owes, or that the client is taking. A stream in both directions does not
    /// count.
    fn is_answering(&mut self, now: Instant) -> bool {
        match &self.role {
            Role::Answer => true,
            Role::Unary { .. } | Role::Http { .. } => false,
            Role::Handler(handler) if !handler.single => false,
            Role::Handler(_) | Role::Output => now.duration_since(self.is_at_a_standstill_since(now)) < STALL_TIME_MAX,
        }
    }
}

impl Http2 {
    /// Whether a client is in the middle of an answer, on a connection that is to end.
    pub(crate) fn is_answering(&mut self, now: Instant) -> bool {
        let is_writing = self.stuck.is_some_and(|since| now.duration_since(since) < STALL_TIME_MAX);
        // All are looked at, so that each knows how long it has made no progress.
        let answering =
            self.streams.iter_mut().filter_map(|(_, stream)| stream.is_answering(now).then_some(())).count();
        is_writing || answering > 0
    }

    /// Takes no new streams before long; the connection closes when those that run are done.
    pub(crate) fn drain(&mut self, now: Instant) {
        if self.farewell == Farewell::None {
            self.farewell = Farewell::Announced(now);
            self.sender.go_away(WINDOW_BYTES_MAX, Reason::NO_ERROR, "");
            self.sender.ping(false, PING);
        }
    }

    /// An answer to a ping has come.
    pub(crate) fn answered(&mut self, data: [u8; 8]) {
        if data == PING && matches!(self.farewell, Farewell::Announced(_)) {
            self.farewell = Farewell::Heard;
        }
    }

    /// Waits no longer for the answer than it should.
    pub(crate) fn hasten_farewell(&mut self, now: Instant, waker: &Waker) {
        if let Farewell::Announced(since) = self.farewell
            && now.duration_since(since) >= ANSWER_TIME_MAX
        {
            self.farewell = Farewell::Heard;
            waker.wake_by_ref();
        }
    }

    /// Tells the client the last stream, once it has heard of the end.
    pub(crate) fn say_farewell(&mut self) {
        if self.farewell == Farewell::Heard {
            self.farewell = Farewell::Said(self.last_stream);
            self.sender.go_away(self.last_stream, Reason::NO_ERROR, "");
        }
    }
}
