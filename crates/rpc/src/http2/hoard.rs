//! Output that a client asked for and lets nothing of through, while others wait for the memory that it takes.

use std::time::{Duration, Instant};

use super::connection::Http2;
use super::stream::Stream;
use crate::runtime::held::HELD_BYTES_SHARE;
use crate::runtime::shared::Shared;

impl Stream {
    /// Since when nothing has left of what is queued, or nothing was queued; `now` if that has changed since this was asked last.
    pub(crate) fn is_at_a_standstill_since(&mut self, now: Instant) -> Instant {
        let state = (self.out.sent_bytes(), self.out.left() > 0);
        match self.sent {
            Some((before, since)) if before == state => since,
            _ => {
                self.sent = Some((state, now));
                now
            }
        }
    }

    /// Bytes that it holds and has let nothing of through for `most`.
    fn hoarded_bytes(&mut self, now: Instant, most: Duration) -> usize {
        let since = self.is_at_a_standstill_since(now);
        if now.duration_since(since) >= most { self.out.held_bytes() } else { 0 }
    }
}

impl Http2 {
    /// Whether a stream holds more than a little and has let nothing through for as long as a client may, while others wait for
    /// memory that it may have; or all its streams together, while all connections hold twice as much as they should.
    pub(crate) fn hoards(&mut self, shared: &Shared) -> bool {
        let share = self.held.share().min(HELD_BYTES_SHARE);
        if self.held_bytes.saturating_add(self.streamed_bytes) <= share {
            return false;
        }
        // All are looked at, so that the time of each is known once it matters.
        let (now, most) = (shared.now, shared.options.write_timeout);
        let (mut all, mut longest) = (0_usize, 0_usize);
        for (_, stream) in &mut self.streams {
            let hoarded = stream.hoarded_bytes(now, most);
            (all, longest) = (all.saturating_add(hoarded), longest.max(hoarded));
        }
        (all > share && self.held.sum().is_overcrowded())
            || (longest > HELD_BYTES_SHARE && shared.service.is_short_of_memory(self.peer.address))
    }
}
