//! How long a member is left alone that could not be reached: gRPC's connection back-off, so that many clients do not wear out a member
//! that has just come back, or log files with handshakes that fail.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The pause after the first failure.
const BASE: Duration = Duration::from_secs(1);
/// By how much each is longer than the one before.
const FACTOR: f64 = 1.6;
/// By what part it may be longer or shorter, so that clients do not come together.
const JITTER: f64 = 0.2;
/// The longest, before jitter.
const LONGEST: Duration = Duration::from_secs(120);

/// The pause after so many failures in a row.
pub(crate) fn after(failures: u32) -> Duration {
    pause(failures, RandomState::new().hash_one(failures))
}

fn pause(failures: u32, random: u64) -> Duration {
    let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
    let seconds = (BASE.as_secs_f64() * FACTOR.powi(exponent)).min(LONGEST.as_secs_f64());
    // From -1 to 1.
    let part = random as f64 / u64::MAX as f64 * 2.0 - 1.0;
    Duration::from_secs_f64(seconds * (1.0 + JITTER * part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_two_minutes() {
        for (failures, seconds) in
            [(0, 1.0), (1, 1.0), (2, 1.6), (3, 2.56), (10, 68.719), (11, 109.951), (12, 120.0), (u32::MAX, 120.0)]
        {
            let found = |random| pause(failures, random).as_secs_f64();
            for (random, jitter) in [(0, 0.8), (u64::MAX / 2, 1.0), (u64::MAX, 1.2)] {
                let wanted: f64 = seconds * jitter;
                assert!((found(random) - wanted).abs() < 0.001 * wanted, "{failures}: {}", found(random));
            }
        }
        let some: Vec<Duration> = (0..10).map(|_| after(1)).collect();
        assert!(some.iter().any(|pause| *pause != some[0]), "{some:?}");
    }
}
