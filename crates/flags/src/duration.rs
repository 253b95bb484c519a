//! Times as Go writes them.

use std::time::Duration;

/// A time as Go writes it: `1.5s`, `300ms`, `2h45m`. One before now, `-1s`, is over, as is none.
///
/// # Errors
/// Those of [`parse_nanoseconds`].
pub fn parse_duration(value: &str) -> Result<Duration, String> {
    parse_nanoseconds(value).map(|nanos| Duration::from_nanos(nanos.max(0).cast_unsigned()))
}

/// Nanoseconds of a time as Go writes it, which may be negative.
///
/// # Errors
/// Those of Go, also for what is longer than its times can be.
pub fn parse_nanoseconds(value: &str) -> Result<i64, String> {
    let bad = || format!("time: invalid duration {value:?}");
    let (is_negative, mut rest) = match value.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, value.strip_prefix('+').unwrap_or(value)),
    };
    if rest == "0" {
        return Ok(0);
    }
    let mut total = 0_u128;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = &rest[..digits];
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(bad());
        }
        let nanos: u128 = match &rest[..unit] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err(format!("time: missing unit in duration {value:?}")),
            other => return Err(format!("time: unknown unit {other:?} in duration {value:?}")),
        };
        rest = &rest[unit..];
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| bad())? };
        // Digits after those that count are cut off.
        let fraction = &fraction[..fraction.len().min(18)];
        let part = match fraction {
            "" => 0,
            digits => digits.parse::<u128>().map_err(|_| bad())? * nanos / 10_u128.pow(digits.len() as u32),
        };
        total =
            whole.checked_mul(nanos).and_then(|nanos| nanos.checked_add(part)?.checked_add(total)).ok_or_else(bad)?;
        if total > i64::MIN.unsigned_abs().into() {
            return Err(bad());
        }
    }
    let total = i128::try_from(total).map_err(|_| bad())?;
    i64::try_from(if is_negative { -total } else { total }).map_err(|_| bad())
}

/// A time as `Duration.String` writes it.
pub fn duration_text(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let fraction = |value: u128, unit: u128, name: &str| {
        let (whole, rest) = (value / unit, value % unit);
        let digits = unit.ilog10() as usize;
        let rest = format!("{rest:0digits$}");
        let rest = rest.trim_end_matches('0');
        if digits == 0 || rest.is_empty() { format!("{whole}{name}") } else { format!("{whole}.{rest}{name}") }
    };
    match nanos {
        0 => "0s".into(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => fraction(nanos, 1_000, "µs"),
        1_000_000..1_000_000_000 => fraction(nanos, 1_000_000, "ms"),
        _ => {
            let minutes = nanos / 60_000_000_000;
            let seconds = fraction(nanos % 60_000_000_000, 1_000_000_000, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        for (text, ms) in [("1.5s", 1_500), ("300ms", 300), ("2h45m", 9_900_000), ("0", 0), ("1m0.5s", 60_500)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(parse_duration("-1m.5s"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("9223372036854775807ns"), Ok(Duration::from_nanos(i64::MAX as u64)));
        assert_eq!(parse_duration("-9223372036854775808ns"), Ok(Duration::ZERO));
        for (text, nanos) in
            [("-1m", -60_000_000_000), ("+1us", 1_000), ("-0", 0), ("-9223372036854775808ns", i64::MIN)]
        {
            assert_eq!(parse_nanoseconds(text), Ok(nanos), "{text}");
        }
        assert_eq!(parse_duration("0.0000000019s"), Ok(Duration::from_nanos(1)));
        let over =
            ["9223372036854775808ns", "-9223372036854775809ns", "5000000000000000h", "2562048h", "-", "+-1s", ".s"];
        for text in ["", "s", "1", "1x", "1.2.3s"].into_iter().chain(over) {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
