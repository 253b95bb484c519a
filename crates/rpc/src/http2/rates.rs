//! Rate limits: how much a client may send in a second of what costs the server work and brings the client nothing.

use std::time::{Duration, Instant};

use crate::Limit;

/// What one connection may send in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// Frames that carry nothing. The default costs a few milliseconds.
    pub idle_frames: u32,
    /// Streams that the client gives up. Clients with short deadlines do that in good faith by the ten thousand when the server is
    /// overloaded, and must not be made to connect again then.
    pub resets: u32,
    /// Streams that the server has to reset because the client breaks a rule. None does so in good faith for long.
    pub forced_resets: u32,
    /// Pieces of a body of a few bytes. A request in such pieces is odd, but each of them gets somewhere.
    pub tiny_data: u32,
    /// Window updates, which cost little: a client that reads much in small steps sends many.
    pub window_updates: u32,
}

impl Default for RateLimits {
    fn default() -> RateLimits {
        RateLimits {
            idle_frames: 20_000,
            resets: 50_000,
            forced_resets: 1_000,
            tiny_data: 100_000,
            window_updates: 500_000,
        }
    }
}

impl RateLimits {
    /// The limit that is counted under this name; none if it is no rate.
    pub fn named(&mut self, name: &str) -> Option<&mut u32> {
        Some(match name {
            "idle_frames" => &mut self.idle_frames,
            "resets" => &mut self.resets,
            "forced_resets" => &mut self.forced_resets,
            "tiny_data" => &mut self.tiny_data,
            "window_updates" => &mut self.window_updates,
            _ => return None,
        })
    }
}

/// What one client has sent in the current second.
#[derive(Debug)]
pub(crate) struct Rates {
    limits: RateLimits,
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

impl Rates {
    pub(crate) fn new(limits: RateLimits, now: Instant) -> Rates {
        Rates { limits, second: now, counts: [0; 5] }
    }

    /// Counts `times` more. The error names the limit it went over.
    pub(crate) fn count(&mut self, now: Instant, cost: Cost, times: u32) -> Result<(), Limit> {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.counts) = (now, [0; 5]);
        }
        let (count, most, limit) = self.entry(cost);
        *count = count.saturating_add(times);
        if *count > most { Err(limit) } else { Ok(()) }
    }

    /// What has come of it, and how much may.
    fn entry(&mut self, cost: Cost) -> (&mut u32, u32, Limit) {
        let [idle_frames, resets, forced_resets, tiny_data, window_updates] = &mut self.counts;
        match cost {
            Cost::IdleFrame => (idle_frames, self.limits.idle_frames, Limit::IdleFrames),
            Cost::Reset => (resets, self.limits.resets, Limit::Resets),
            Cost::ForcedReset => (forced_resets, self.limits.forced_resets, Limit::ForcedResets),
            Cost::TinyData => (tiny_data, self.limits.tiny_data, Limit::TinyData),
            Cost::WindowUpdate => (window_updates, self.limits.window_updates, Limit::WindowUpdates),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_counted_by_the_second() {
        let now = Instant::now();
        let mut rates = Rates::new(RateLimits::default(), now);
        for cost in [Cost::IdleFrame, Cost::Reset, Cost::ForcedReset, Cost::TinyData, Cost::WindowUpdate] {
            let (_, most, limit) = rates.entry(cost);
            assert_eq!(RateLimits::default().named(limit.name()), Some(&mut most.clone()));
            assert!((0..most).all(|_| rates.count(now, cost, 1).is_ok()));
            assert_eq!(rates.count(now, cost, 1), Err(limit));
        }
        assert_eq!(rates.count(now + Duration::from_secs(1), Cost::ForcedReset, 1), Ok(()));
    }
}
