//! The `grpc-timeout` header.

use std::time::Duration;

use crate::later::CENTURY;

/// Reads `grpc-timeout`: up to eight digits and a unit. The error is the sentence that Go servers answer with.
pub fn parse(value: &[u8]) -> Result<Duration, String> {
    let quoted = || format!("{:?}", String::from_utf8_lossy(value));
    if value.len() < 2 {
        return Err(format!("transport: timeout string is too short: {}", quoted()));
    }
    if value.len() > 9 {
        return Err(format!("transport: timeout string is too long: {}", quoted()));
    }
    let Some((unit, digits)) = value.split_last() else { return Ok(Duration::ZERO) };
    let unit: fn(u64) -> Duration = match unit {
        b'H' => |count| Duration::from_secs(count.saturating_mul(3600)),
        b'M' => |count| Duration::from_secs(count.saturating_mul(60)),
        b'S' => Duration::from_secs,
        b'm' => Duration::from_millis,
        b'u' => Duration::from_micros,
        b'n' => Duration::from_nanos,
        _ => return Err(format!("transport: timeout unit is not recognized: {}", quoted())),
    };
    let mut count = 0_u64;
    for &digit in digits {
        let Some(digit) = char::from(digit).to_digit(10) else {
            let text = String::from_utf8_lossy(digits);
            return Err(format!("strconv.ParseUint: parsing {text:?}: invalid syntax"));
        };
        // At most eight digits: no overflow.
        count = count.saturating_mul(10).saturating_add(u64::from(digit));
    }
    Ok(unit(count).min(CENTURY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read() {
        for (text, nanos) in [
            ("1H", 3_600_000_000_000_u64),
            ("2M", 120_000_000_000),
            ("3S", 3_000_000_000),
            ("4m", 4_000_000),
            ("5u", 5_000),
            ("6n", 6),
            ("0n", 0),
            ("99999999n", 99_999_999),
        ] {
            assert_eq!(parse(text.as_bytes()), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        assert_eq!(parse(b"99999999H"), Ok(CENTURY));
    }

    #[test]
    fn malformed_values_are_named() {
        for (text, error) in [
            ("", "transport: timeout string is too short: \"\""),
            ("1", "transport: timeout string is too short: \"1\""),
            ("123456789S", "transport: timeout string is too long: \"123456789S\""),
            ("12x", "transport: timeout unit is not recognized: \"12x\""),
            ("-1S", "strconv.ParseUint: parsing \"-1\": invalid syntax"),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(error.to_string()), "{text}");
        }
    }
}
