//! The time that a request may take to come. A client may be silent for as long as it likes between the messages of a stream, but
//! what it has begun to send it must go on with.

use std::time::{Duration, Instant};

use crate::Limit;
use crate::connection::Http2;
use crate::stream::{Event, Role, Stream};
use crate::thread::Shared;

/// What must come of a message that has begun within each [`Options::body_timeout`](crate::Options::body_timeout), or the rest of it.
const PROGRESS_BYTES_MIN: u64 = 1024;

/// How far an unfinished message was at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    at: Instant,
    received_bytes: u64,
}

impl Mark {
    /// Where it stands now that `received_bytes` of the body have come; none if it has taken longer than `timeout` for too little.
    fn moved(before: Option<Mark>, now: Instant, received_bytes: u64, timeout: Duration) -> Option<Mark> {
        match before {
            Some(mark) if received_bytes - mark.received_bytes < PROGRESS_BYTES_MIN => {
                (now.duration_since(mark.at) < timeout).then_some(mark)
            }
            _ => Some(Mark { at: now, received_bytes }),
        }
    }
}

impl Stream {
    /// Whether the client has begun something and has to go on with it.
    fn is_owed_input(&self) -> bool {
        !self.input.ended
            && match &self.role {
                Role::Unary { .. } | Role::Http { .. } => true,
                // One that has no room does not read on; what is held then may be whole. A call of one message is begun with its headers.
                Role::Handler(handler) => !handler.starved && (handler.single || self.input.decoder.held_bytes() > 0),
                Role::Answer | Role::Output => false,
            }
    }

    /// Notes how far the message is that has begun. False if it takes too long.
    fn keeps_coming(&mut self, now: Instant, timeout: Duration) -> bool {
        if !self.is_owed_input() {
            self.input.mark = None;
            return true;
        }
        let moved = Mark::moved(self.input.mark, now, self.input.received_bytes, timeout);
        self.input.mark = moved;
        moved.is_some()
    }
}

impl Http2 {
    /// Gives up requests that have stopped coming. True if there were any.
    pub(crate) fn give_up_requests(&mut self, shared: &Shared) -> bool {
        // What is incomplete is counted there. A client that is not read cannot go on.
        if self.gathered_bytes == 0 || self.is_choked() {
            return false;
        }
        let timeout = shared.options.body_timeout;
        let mut any = false;
        for (_, stream) in &mut self.streams {
            if !stream.keeps_coming(shared.now, timeout) {
                shared.stats.hit(Limit::BodyTime);
                self.inbox.push_back((stream.signal.clone(), Event::Late));
                any = true;
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_in_each_interval_is_wanted() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let timeout = 20 * second;
        let at = |before, seconds: u32, bytes| Mark::moved(before, now + seconds * second, bytes, timeout);
        let begun = at(None, 0, 0);
        assert!(begun.is_some());
        // A trickle is the same as nothing.
        let trickled = at(begun, 19, 1_000);
        assert_eq!(trickled.map(|mark| mark.at), Some(now));
        assert!(at(trickled, 20, 1_023).is_none());
        // Enough begins a new interval.
        let moved = at(trickled, 20, 1_024);
        assert_eq!(moved.map(|mark| mark.at), Some(now + 20 * second));
        assert!(at(moved, 39, 1_024).is_some() && at(moved, 40, 2_000).is_none());
    }
}
