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

    fn hoards(&mut self, now: Instant, most: Duration) -> bool {
        let since = self.is_at_a_standstill_since(now);
        self.out.held_bytes() > HELD_BYTES_SHARE && now.duration_since(since) >= most
    }
}

impl Http2 {
    /// Whether a stream holds more than a little and has let nothing through for as long as a client may, while others wait for
    /// memory that it may have.
    pub(crate) fn hoards(&mut self, shared: &Shared) -> bool {
        if self.held_bytes.saturating_add(self.streamed_bytes) <= HELD_BYTES_SHARE {
            return false;
        }
        // All are looked at, so that the time of each is known once it matters.
        let (now, most) = (shared.now, shared.options.write_timeout);
        let hoarding = self.streams.iter_mut().filter_map(|(_, stream)| stream.hoards(now, most).then_some(())).count();
        hoarding > 0 && shared.service.is_short_of_memory(self.peer.address)
    }
}
