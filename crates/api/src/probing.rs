//! What `GET /raft/probing` of a member's peer port answers: its time, as JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The member's time in an answer.
pub fn read(answer: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(answer).ok()?;
    let (_, rest) = text.split_once("\"Now\":\"")?;
    parse(rest.split_once('"')?.0)
}

/// A time as RFC 3339 has it, with any offset: `2026-08-20T12:00:00.123+02:00`.
#[expect(clippy::arithmetic_side_effects, reason = "numbers of at most four digits, and places in a text")]
fn parse(text: &str) -> Option<SystemTime> {
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        let digits = text.get(range)?;
        if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let zone_at = 19 + text.get(19..)?.find(['Z', '+', '-'])?;
    let fraction: f64 = match text.get(19..zone_at)? {
        "" => 0.0,
        digits => format!("0{digits}").parse().ok()?,
    };
    let offset = match *text.as_bytes().get(zone_at)? {
        b'Z' => 0,
        sign => {
            let seconds = number(zone_at + 1..zone_at + 3)? * 3600 + number(zone_at + 4..zone_at + 6)? * 60;
            if sign == b'-' { -(seconds as i64) } else { seconds as i64 }
        }
    };
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(0.0..1.0).contains(&fraction) {
        return None;
    }
    // Years that begin in March have their leap day at the end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let since_epoch = (days * 86_400 + hour * 3600 + minute * 60 + second).checked_sub(719_469 * 86_400)?;
    let since_epoch = since_epoch.checked_add_signed(-offset)?;
    Some(UNIX_EPOCH + Duration::from_secs(since_epoch) + Duration::from_secs_f64(fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let at = |text| parse(text).map(|time| time.duration_since(UNIX_EPOCH).expect("after it").as_millis());
        assert_eq!(at("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(at("2000-02-29T00:00:00Z"), Some(951_782_400_000));
        assert_eq!(at("2026-12-31T23:59:59.5Z"), Some(1_798_761_599_500));
        assert_eq!(at("2027-01-01T01:29:59.500000001+01:30"), Some(1_798_761_599_500));
        assert_eq!(at("2026-12-31T22:59:59-01:00"), Some(1_798_761_599_000));
        for bad in ["", "2026-12-31", "2026-12-31T23:59:59", "2026-00-31T23:59:59Z", "+026-12-31T23:59:59Z", "\u{e9}"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(at("9999-99-99T99:99:99Z"), None);
    }
}
