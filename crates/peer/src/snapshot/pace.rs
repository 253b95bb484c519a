//! The pace at which this member sends snapshots: slow enough that other work on its machine, disk and network hardly notices, and fast
//! enough that a snapshot arrives while the entries after it still fit into memory; otherwise the follower would need the next one.

use crate::handler::LogUsage;
use std::time::{Duration, Instant};

/// Bytes per second, of all transfers together. A gigabyte takes ten seconds.
const USUAL_RATE: u64 = 96 << 20;
/// The share of the log's memory that may be in use when the snapshot has arrived, because checking the snapshot takes
/// time, too.
const LOG_SHARE: f64 = 0.75;
/// How often the growth of the log is measured.
const LOOK: Duration = Duration::from_millis(250);
/// A measurement older than this is not used.
const FORGET: Duration = Duration::from_secs(2);
/// A sleep that took too long is compensated up to this time.
const LATE_MAX: Duration = Duration::from_millis(5);

/// Decides when the next bytes may be sent.
#[derive(Default)]
pub(super) struct Pace {
    /// The time at which the bytes sent so far are within the rate.
    free_at: Option<Instant>,
    /// The last measurement of the log's memory, and its time.
    seen: Option<(Instant, u64)>,
    /// Growth of the log in bytes per second.
    growth: f64,
}

impl Pace {
    /// How long to wait before `bytes` of the `left` ones that a receiver still needs are sent.
    pub(super) fn wait(&mut self, bytes: u64, left: u64, log: LogUsage, now: Instant) -> Duration {
        self.look(log, now);
        let late_at = now.checked_sub(LATE_MAX).unwrap_or(now);
        let begin = self.free_at.map_or(now, |at| at.max(late_at));
        let costs = Duration::try_from_secs_f64(bytes as f64 / self.rate(left, log)).unwrap_or_default();
        self.free_at = begin.checked_add(costs);
        begin.saturating_duration_since(now)
    }

    /// The rate in bytes per second.
    fn rate(&self, left: u64, log: LogUsage) -> f64 {
        let room = log.max_bytes as f64 * LOG_SHARE - log.used_bytes as f64;
        let needed = if room > 0.0 { left as f64 * self.growth / room } else { f64::INFINITY };
        needed.max(USUAL_RATE as f64)
    }

    fn look(&mut self, log: LogUsage, now: Instant) {
        let passed = self.seen.map(|(at, _)| now.saturating_duration_since(at));
        match (self.seen, passed) {
            (Some((_, before)), Some(passed)) if passed < FORGET => {
                if passed < LOOK {
                    return;
                }
                let growth = log.used_bytes.saturating_sub(before) as f64 / passed.as_secs_f64();
                // The average smooths a load that comes in waves.
                self.growth = if self.growth == 0.0 { growth } else { 0.75 * self.growth + 0.25 * growth };
            }
            _ => self.growth = 0.0,
        }
        self.seen = Some((now, log.used_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 256 << 20;
    const PIECE: u64 = 128 << 10;

    /// How long it takes to send `total` bytes while the log grows by `growth` bytes per second. Only the sleeps
    /// advance the clock.
    fn seconds(total: u64, growth: f64) -> f64 {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        let (mut now, mut left) = (begun, total);
        while left > 0 {
            let used_bytes = (growth * (now - begun).as_secs_f64()) as u64;
            let log = LogUsage { used_bytes, max_bytes: ROOM };
            now += pace.wait(PIECE.min(left), left, log, now);
            left = left.saturating_sub(PIECE);
        }
        (now - begun).as_secs_f64()
    }

    #[test]
    fn a_snapshot_takes_its_time() {
        let took = seconds(960 << 20, 0.0);
        assert!((9.9..10.1).contains(&took), "{took}");
    }

    #[test]
    fn it_is_there_before_the_log_is_full() {
        for growth in [1e6, 10e6, 30e6, 100e6] {
            let took = seconds(4 << 30, growth);
            assert!(took * growth < ROOM as f64 * 0.85, "{took} seconds while the log grows by {growth}");
        }
    }

    #[test]
    fn two_share_the_rate() {
        let log = LogUsage { used_bytes: 0, max_bytes: ROOM };
        let (mut pace, now) = (Pace::default(), Instant::now());
        let waits: Vec<Duration> = (0..4).map(|_| pace.wait(USUAL_RATE, USUAL_RATE, log, now)).collect();
        assert_eq!(waits, [0, 1, 2, 3].map(Duration::from_secs));
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let log = LogUsage { used_bytes: 0, max_bytes: ROOM };
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.wait(PIECE, PIECE, log, now);
        let later = now + Duration::from_secs(3);
        let waits: Vec<Duration> = (0..100).map(|_| pace.wait(PIECE, PIECE, log, later)).collect();
        assert!(waits.iter().filter(|wait| wait.is_zero()).count() <= 5, "{waits:?}");
    }
}
