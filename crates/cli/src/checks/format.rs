//! Figures and verdicts as text.

use std::time::Duration;

/// A time with three digits: `231 µs`, `1.85 ms`.
pub(super) fn time(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    let (value, unit) = match time.as_nanos() {
        0..1_000 => return format!("{} ns", time.as_nanos()),
        1_000..1_000_000 => (nanos / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

fn digits(value: f64) -> String {
    match value {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Bytes in powers of 1,024: `73.4 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let step = (count.ilog2() / 10) as usize;
    let value = count as f64 / 1024_f64.powi(i32::try_from(step).unwrap_or(6));
    let value = if value.fract() == 0.0 { format!("{value:.0}") } else { digits(value) };
    format!("{value} {}", UNITS[step - 1])
}

/// A whole number with commas between the thousands.
pub(crate) fn number(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Columns of figures below their headings, each as wide as it must be; the first is a column of names.
pub(super) fn columns(headings: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column).map(String::as_str)).chain([headings[column]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut out = String::from(" ");
        for (column, (cell, width)) in cells.zip(&widths).enumerate() {
            let space = " ".repeat(width - cell.chars().count());
            out += &if column == 0 { format!(" {cell}{space}") } else { format!("   {space}{cell}") };
        }
        out.trim_end().to_string() + "\n"
    };
    let mut out = line(&mut headings.iter().copied());
    for row in rows {
        out += &line(&mut row.iter().map(String::as_str));
    }
    out
}

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grade {
    Pass,
    Warn,
    Fail,
    /// Told, not judged.
    Info,
}

impl Grade {
    pub(super) fn name(self) -> &'static str {
        match self {
            Grade::Pass => "PASS",
            Grade::Warn => "WARN",
            Grade::Fail => "FAIL",
            Grade::Info => "INFO",
        }
    }

    /// Its name, in colour where a person looks.
    pub(crate) fn shown(self) -> String {
        let colour = match self {
            Grade::Pass => "32",
            Grade::Warn => "33",
            Grade::Fail => "31",
            Grade::Info => "36",
        };
        if crate::terminal::is_seen() { format!("\x1b[1;{colour}m{}\x1b[0m", self.name()) } else { self.name().into() }
    }

    pub(super) fn of(is_good: bool) -> Grade {
        if is_good { Grade::Pass } else { Grade::Fail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let shown = |nanos: u64| time(Duration::from_nanos(nanos));
        assert_eq!([shown(0), shown(999), shown(1_000), shown(12_340)], ["0 ns", "999 ns", "1.00 µs", "12.3 µs"]);
        assert_eq!([shown(231_400), shown(1_850_000), shown(61_000_000_000)], ["231 µs", "1.85 ms", "61.0 s"]);
        assert_eq!([bytes(1023), bytes(1024), bytes(1 << 28)], ["1023 B", "1 KiB", "256 MiB"]);
        assert_eq!([bytes(78_832_107_520), bytes(u64::MAX)], ["73.4 GiB", "16 EiB"]);
        assert_eq!([number(7.0), number(999.6), number(1_234_567.0)], ["7", "1,000", "1,234,567"]);
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let rows = [vec!["write".into(), "1.23 µs".into()], vec!["fdatasync".into(), "9 ms".into()]];
        assert_eq!(
            columns(&["", "p50"], &rows),
            "                  p50\n  write       1.23 µs\n  fdatasync      9 ms\n"
        );
    }
}
