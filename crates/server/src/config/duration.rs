//! Durations as Go writes them: `1h30m`, `100ms`, `1.5s`.

use std::time::Duration;

/// A Go duration that is not negative.
pub(super) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number * seconds;
        rest = &rest[unit..];
    }
    (!text.is_empty()).then_some(())?;
    Duration::try_from_secs_f64(total).ok()
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
        for bad in ["", "5", "-1s", "1x", "s", "99999999999999999999h"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(hours_or_duration("2"), Some(Duration::from_secs(7200)));
        assert_eq!(hours_or_duration("10s"), Some(Duration::from_secs(10)));
    }
}
