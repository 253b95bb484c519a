//! Times as people write them.

use chrono::{DateTime, NaiveDateTime, SecondsFormat};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A time in milliseconds since 1970: `2026-11-24T12:00:00.250Z`, the same with an offset, or without either, which is UTC.
pub fn parse(text: &str) -> Option<u64> {
    let with_offset = DateTime::parse_from_rfc3339(text).map(|time| time.timestamp_millis());
    let found = with_offset.ok().or_else(|| {
        let forms = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"];
        let plain = forms.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
        plain.map(|time| time.and_utc().timestamp_millis())
    });
    found.and_then(|ms| u64::try_from(ms).ok())
}

/// A time as [`parse`] reads it.
pub fn shown(ms: u64) -> String {
    let time = i64::try_from(ms).ok().and_then(DateTime::from_timestamp_millis);
    time.map_or_else(|| format!("{ms} ms"), |time| time.to_rfc3339_opts(SecondsFormat::Millis, true))
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_shown() {
        let ms = 1_764_000_000_250;
        assert_eq!(shown(ms), "2025-11-24T16:00:00.250Z");
        assert_eq!(parse(&shown(ms)), Some(ms));
        for same in ["2025-11-24T17:00:00.250+01:00", "2025-11-24T16:00:00.250", "2025-11-24 16:00:00.25"] {
            assert_eq!(parse(same), Some(ms), "{same}");
        }
        for wrong in ["", "yesterday", "2025-11-24", "1969-01-01T00:00:00Z"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
