//! The clock of leases, tokens and time-outs.

#[cfg(feature = "test-support")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counts from the start of the member.
pub(super) struct Clock {
    started: Instant,
    /// How far tests have advanced the clock.
    #[cfg(feature = "test-support")]
    ahead_ms: AtomicU64,
}

impl Clock {
    pub(super) fn start() -> Clock {
        Clock {
            started: Instant::now(),
            #[cfg(feature = "test-support")]
            ahead_ms: AtomicU64::new(0),
        }
    }

    /// The current time in the replica's form.
    pub(super) fn now(&self) -> replica::Now {
        let now = Instant::now();
        replica::Now { at: now.duration_since(self.started), ms: self.at_ms(now) }
    }

    /// The instant that belongs to a [`replica::Now::at`].
    pub(super) fn at(&self, at: Duration) -> Instant {
        self.started + at
    }

    /// Milliseconds from the start to `now`.
    pub(super) fn at_ms(&self, now: Instant) -> u64 {
        let elapsed_ms = now.duration_since(self.started).as_millis() as u64;
        #[cfg(feature = "test-support")]
        let elapsed_ms = elapsed_ms + self.ahead_ms.load(Ordering::Relaxed);
        elapsed_ms
    }

    /// The moment at which the clock showed `ms`.
    pub(super) fn moment(&self, ms: u64) -> Instant {
        #[cfg(feature = "test-support")]
        let ms = ms.saturating_sub(self.ahead_ms.load(Ordering::Relaxed));
        self.started + Duration::from_millis(ms)
    }

    #[cfg(feature = "test-support")]
    pub(super) fn advance(&self, ms: u64) {
        self.ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }
}
