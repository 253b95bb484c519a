//! The format of a line.

use super::{Format, Level, Value};
use std::fmt::Write as _;
use std::panic::Location;
use std::time::{SystemTime, UNIX_EPOCH};

/// One line, with its end.
pub(super) fn line(
    format: Format,
    level: Level,
    message: &str,
    fields: &[(&str, Value<'_>)],
    caller: &Location<'_>,
) -> String {
    let mut text = String::with_capacity(160);
    let at = timestamp(SystemTime::now());
    let file = caller.file().strip_prefix("crates/").unwrap_or(caller.file());
    match format {
        Format::Json => {
            let _ = write!(
                text,
                "{{\"level\":\"{}\",\"ts\":\"{at}\",\"caller\":\"{file}:{}\",\"msg\":",
                level.name(),
                caller.line()
            );
            quote(&mut text, message);
        }
        Format::Console => {
            let _ = write!(text, "{at}\t{}\t{file}:{}\t{message}", level.name(), caller.line());
            if !fields.is_empty() {
                text.push_str("\t{");
            }
        }
    }
    for (place, (name, value)) in fields.iter().enumerate() {
        if format == Format::Json || place > 0 {
            text.push_str(if format == Format::Json { "," } else { ", " });
        }
        quote(&mut text, name);
        text.push_str(if format == Format::Json { ":" } else { ": " });
        match value {
            Value::Text(value) => quote(&mut text, value),
            Value::Shown(value) => quote(&mut text, &value.to_string()),
            Value::Number(value) => drop(write!(text, "{value}")),
            Value::Id(value) => drop(write!(text, "\"{value:x}\"")),
            Value::Flag(value) => drop(write!(text, "{value}")),
            Value::List(values) => list(&mut text, values),
        }
    }
    match format {
        Format::Json => text.push('}'),
        Format::Console if !fields.is_empty() => text.push('}'),
        Format::Console => {}
    }
    text.push('\n');
    text
}

/// Appends a list of JSON strings.
fn list(text: &mut String, values: &[String]) {
    text.push('[');
    for (place, value) in values.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        quote(text, value);
    }
    text.push(']');
}

/// Appends `value` as a JSON string.
pub fn quote(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            control if (control as u32) < 0x20 => drop(write!(text, "\\u{:04x}", control as u32)),
            other => text.push(other),
        }
    }
    text.push('"');
}

/// The beginning of a name or key that a client chose, as much of it as a line may have.
pub fn shortened(text: &str) -> &str {
    text.get(..text.floor_char_boundary(SHOWN_BYTES_MAX)).unwrap_or(text)
}

/// Bytes of a name or key in a line.
const SHOWN_BYTES_MAX: usize = 256;

/// UTC in the form `2026-08-20T12:00:00.123456Z`.
pub fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Days to a date, with years that begin in March so that the leap day is a year's last.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", since.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn long_names_are_cut_off() {
        assert_eq!(shortened("ann"), "ann");
        assert_eq!(shortened(&"a".repeat(30_000)).len(), 256);
        // No character is cut in two.
        assert_eq!(shortened(&format!("a{}", "\u{e9}".repeat(200))).len(), 255);
    }

    #[test]
    fn json_lines() {
        let urls = ["a".to_string(), "b\"".to_string()];
        let fields = [
            ("path", Value::from("a\"b\n")),
            ("n", Value::from(3u64)),
            ("ok", Value::from(true)),
            ("urls", Value::List(&urls)),
            ("none", Value::List(&[])),
        ];
        let text = line(Format::Json, Level::Info, "hello", &fields, Location::caller());
        assert!(text.starts_with("{\"level\":\"info\",\"ts\":\"20"));
        assert!(
            text.ends_with(
                "\"msg\":\"hello\",\"path\":\"a\\\"b\\n\",\"n\":3,\"ok\":true,\"urls\":[\"a\",\"b\\\"\"],\"none\":[]}\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn dates() {
        let at = |seconds| timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000000Z");
        assert_eq!(at(1_798_761_599), "2026-12-31T23:59:59.000000Z");
    }
}
