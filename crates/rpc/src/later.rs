//! Adding to the present time without overflow.

use std::time::{Duration, Instant};

/// Longer waits count as this long.
pub(crate) const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The time `by` after `from`. If the clock cannot represent it, a century after `from`.
pub(crate) fn later(from: Instant, by: Duration) -> Instant {
    from.checked_add(by).or_else(|| from.checked_add(CENTURY)).unwrap_or(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_too_far_away() {
        let now = Instant::now();
        assert_eq!(later(now, Duration::from_secs(1)), now + Duration::from_secs(1));
        assert_eq!(later(now, Duration::MAX), now + CENTURY);
    }
}
