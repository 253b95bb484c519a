//! Durations as Go writes them: `1h30m`, `100ms`, `-1.5s`.

use std::time::Duration;

/// Nanoseconds of a Go duration, which may be negative; `None` for what is none or needs more than 64 bits.
pub(super) fn nanoseconds(text: &str) -> Option<i64> {
    flags::parse_nanoseconds(text).ok()
}

/// A Go duration that is not negative.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    nanoseconds(text).and_then(|nanoseconds| u64::try_from(nanoseconds).ok()).map(Duration::from_nanos)
}

/// A bare number of hours, or a duration.
pub(super) fn hours_or_duration(text: &str) -> Option<Duration> {
    match text.parse::<u64>() {
        Ok(hours) => hours.checked_mul(3600).map(Duration::from_secs),
        Err(_) => parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations() {
        assert_eq!(parse("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse("100ms"), Some(Duration::from_millis(100)));
        assert_eq!(parse("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse(".5s"), Some(Duration::from_millis(500)));
        assert_eq!(
            (nanoseconds("-1m"), nanoseconds("+1us"), nanoseconds("-0")),
            (Some(-60_000_000_000), Some(1_000), Some(0))
        );
        assert_eq!(parse("9223372036854775807ns"), Some(Duration::from_nanos(i64::MAX as u64)));
        for bad in ["", "5", "-", "1x", "s", ".s", "1..5s", "9223372036854775808ns", "99999999999999999999h", "-1s"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(hours_or_duration("2"), Some(Duration::from_secs(7200)));
        assert_eq!(hours_or_duration("10s"), Some(Duration::from_secs(10)));
    }
}
