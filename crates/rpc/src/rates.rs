//! How much of what costs the server and gets the client nothing it may send in a second.

use std::time::{Duration, Instant};

use crate::Limit;

/// Frames that carry nothing. So many cost a few milliseconds.
const IDLE_FRAMES_MAX: u32 = 20_000;
/// Streams that the client gives up. Clients with short deadlines do that in good faith by the ten thousand when the server is
/// overloaded, and must not be made to connect anew then.
const RESETS_MAX: u32 = 50_000;
/// Streams that the server has to reset because the client breaks a rule. None does so in good faith for long.
const FORCED_RESETS_MAX: u32 = 1_000;
/// Pieces of a body of a few bytes. A request in such pieces is odd, but each of them gets somewhere.
const TINY_DATA_MAX: u32 = 100_000;
/// Window updates, which cost little: a client that reads much in small steps sends many.
const WINDOW_UPDATES_MAX: u32 = 500_000;

/// What one client has sent in the current second.
#[derive(Debug)]
pub(crate) struct Rates {
    second: Instant,
    counts: [u32; 5],
}

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    IdleFrame,
    Reset,
    ForcedReset,
    TinyData,
    WindowUpdate,
}

impl Cost {
    fn bound(self) -> (u32, Limit) {
        match self {
            Cost::IdleFrame => (IDLE_FRAMES_MAX, Limit::IdleFrames),
            Cost::Reset => (RESETS_MAX, Limit::Resets),
            Cost::ForcedReset => (FORCED_RESETS_MAX, Limit::ForcedResets),
            Cost::TinyData => (TINY_DATA_MAX, Limit::TinyData),
            Cost::WindowUpdate => (WINDOW_UPDATES_MAX, Limit::IdleFrames),
        }
    }
}

impl Rates {
    pub(crate) fn new(now: Instant) -> Rates {
        Rates { second: now, counts: [0; 5] }
    }

    /// Counts `times` more. The error names the limit it went over.
    pub(crate) fn count(&mut self, now: Instant, cost: Cost, times: u32) -> Result<(), Limit> {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            *self = Rates::new(now);
        }
        let (most, limit) = cost.bound();
        let count = &mut self.counts[cost as usize];
        *count = count.saturating_add(times);
        if *count > most { Err(limit) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_counted_by_the_second() {
        let now = Instant::now();
        let mut rates = Rates::new(now);
        for cost in [Cost::IdleFrame, Cost::Reset, Cost::ForcedReset, Cost::TinyData, Cost::WindowUpdate] {
            let (most, limit) = cost.bound();
            assert!((0..most).all(|_| rates.count(now, cost, 1).is_ok()));
            assert_eq!(rates.count(now, cost, 1), Err(limit));
        }
        assert_eq!(rates.count(now + Duration::from_secs(1), Cost::ForcedReset, 1), Ok(()));
    }
}
