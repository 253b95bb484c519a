//! Numbers as people read them. None of them is ever longer than a dozen characters.

/// The kind of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A rate per second.
    Rate,
    /// A time in microseconds.
    Time,
    /// A ratio.
    Ratio,
}

impl Unit {
    /// A value in full.
    pub(crate) fn long(self, value: f64) -> String {
        match self {
            Unit::Rate => format!("{}/s", rate(value)),
            Unit::Time => time_us(value),
            Unit::Ratio => ratio(value),
        }
    }

    /// A value in few letters.
    pub(crate) fn short(self, value: f64) -> String {
        match self {
            Unit::Rate => short(value),
            Unit::Ratio => format!("{}x", short(value)),
            _ if value == 0.0 => "0".into(),
            _ => self.long(value),
        }
    }
}

/// 12, 1,234, 123,456, 12.3 M.
pub(crate) fn rate(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "?".into(),
        ..10.0 => significant(value),
        ..10e6 => thousands(value.round() as u64),
        _ => with_prefix(value, " "),
    }
}

/// A number of things.
pub(crate) fn count(value: u64) -> String {
    if value < 1_000_000_000_000 { thousands(value) } else { with_prefix(value as f64, " ") }
}

/// Microseconds, as µs, ms, s or min.
pub(crate) fn time_us(us: f64) -> String {
    match us {
        _ if !us.is_finite() => "?".into(),
        ..999.5 => format!("{} µs", significant(us)),
        ..999.5e3 => format!("{} ms", significant(us / 1e3)),
        ..120e6 => format!("{} s", significant(us / 1e6)),
        ..1e12 => format!("{} min", thousands((us / 60e6).round() as u64)),
        _ => format!("{} s", with_prefix(us / 1e6, "")),
    }
}

/// Bytes, in powers of ten.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        _ if !bytes.is_finite() => "?".into(),
        ..1e3 => format!("{} B", significant(bytes)),
        ..1e6 => format!("{} kB", significant(bytes / 1e3)),
        ..1e9 => format!("{} MB", significant(bytes / 1e6)),
        ..1e15 => format!("{} GB", significant(bytes / 1e9)),
        _ => format!("{bytes:.0e} B"),
    }
}

/// A ratio as text.
pub(crate) fn ratio(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "?".into(),
        0.0 | 0.0095..10e6 => format!("{}x", if value < 9.995 { format!("{value:.2}") } else { rate(value) }),
        _ => format!("{value:.0e}x"),
    }
}

fn short(value: f64) -> String {
    if value.is_finite() { with_prefix(value, "") } else { "?".into() }
}

fn with_prefix(value: f64, blank: &str) -> String {
    match value {
        ..999.5 => significant(value),
        ..999.5e3 => format!("{}{blank}k", significant(value / 1e3)),
        ..999.5e6 => format!("{}{blank}M", significant(value / 1e6)),
        ..999.5e9 => format!("{}{blank}G", significant(value / 1e9)),
        _ => format!("{value:.0e}"),
    }
}

/// About three significant digits, without trailing zeros behind the point.
fn significant(value: f64) -> String {
    let digits = match value {
        ..0.0005 => return if value == 0.0 { "0".into() } else { format!("{value:.0e}") },
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    let digits = if value < 0.095 { 3 } else { digits };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_whatever_they_are() {
        assert_eq!(
            [0.0, 0.5, 7.25, 1234.4, 123_456.0, 12_345_678.0].map(rate),
            ["0", "0.5", "7.25", "1,234", "123,456", "12.3 M"]
        );
        assert_eq!(
            [0.2, 85.4, 1000.0, 12_340.0, 2.5e6, 7.2e9].map(time_us),
            ["0.2 µs", "85.4 µs", "1 ms", "12.3 ms", "2.5 s", "120 min"]
        );
        assert_eq!([12.0, 35e6, 1.9e9].map(bytes), ["12 B", "35 MB", "1.9 GB"]);
        assert_eq!([0.08, 1.0, 25.15, 1902.86].map(ratio), ["0.08x", "1.00x", "25x", "1,903x"]);
        assert_eq!([999.0, 1000.0, 120_400.0].map(|value| Unit::Rate.short(value)), ["999", "1k", "120k"]);
        for value in [0.0, 1e-300, 1e-9, 0.01, 1.0, 1e7, 1e15, 1e30, f64::MAX, f64::INFINITY, f64::NAN] {
            for unit in [Unit::Rate, Unit::Time, Unit::Ratio] {
                for text in [unit.long(value), unit.short(value)] {
                    assert!(
                        !text.contains("NaN") && !text.contains("inf") && text.len() <= 14,
                        "{value:e} {unit:?} {text}"
                    );
                }
            }
        }
        assert_eq!(count(u64::MAX).len(), 4);
    }
}
