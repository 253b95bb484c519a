//! Up to when a member has applied all that was committed.

use std::sync::Mutex;

/// Remembers a moment and what was known to be committed then, until that is applied.
#[derive(Default)]
pub(crate) struct CaughtUp(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    at_ms: u64,
    committed: u64,
    /// The last moment of which everything is applied; 0 if there was none yet.
    reached_ms: u64,
}

impl CaughtUp {
    /// The last moment at which nothing was known to be committed that is not applied by now; 0 if there is none. `committed` was read
    /// after the clock, and `applied` after that.
    pub(crate) fn until_ms(&self, now_ms: u64, committed: u64, applied: u64) -> u64 {
        let mut seen = contain::lock(&self.0);
        if applied >= seen.committed {
            seen.reached_ms = seen.at_ms;
            (seen.at_ms, seen.committed) = (now_ms, committed);
        }
        if applied >= seen.committed {
            seen.reached_ms = seen.at_ms;
        }
        seen.reached_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_applied_yet_counts_for_nothing() {
        let caught_up = CaughtUp::default();
        assert_eq!(caught_up.until_ms(1_000, 50, 20), 0, "behind from the start");
        assert_eq!(caught_up.until_ms(2_000, 60, 49), 0);
        assert_eq!(caught_up.until_ms(3_000, 70, 50), 1_000, "as of the first look");
        assert_eq!(caught_up.until_ms(4_000, 90, 69), 1_000);
        assert_eq!(caught_up.until_ms(5_000, 90, 90), 5_000, "level");
        assert_eq!(caught_up.until_ms(6_000, 90, 90), 6_000);
        assert_eq!(caught_up.until_ms(7_000, 91, 90), 6_000);
        // The clock was set back.
        assert_eq!(caught_up.until_ms(500, 91, 91), 500);
    }
}
