//! Whole numbers as Go's flags take them: decimal, or with a prefix (`0x`, `0o`, `0b`, `0`) in another base, then also with `_`
//! between digits.

/// Why a number is refused, in the words of Go's `flag` package.
pub(super) const SYNTAX: &str = "parse error";
/// Digits that say more than the type can hold.
pub(super) const RANGE: &str = "value out of range";

/// A number in `low..=high`.
pub(super) fn parse(text: &str, low: i128, high: i128) -> Result<i128, &'static str> {
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        // Go's unsigned numbers have no sign at all.
        Some(_) if low == 0 => return Err(SYNTAX),
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    let separated = body.contains('_');
    if separated && (radix == 10 || body.ends_with('_') || body.contains("__")) {
        return Err(SYNTAX);
    }
    let body = body.replace('_', "");
    if body.is_empty() || !body.chars().all(|digit| digit.is_digit(radix)) {
        return Err(SYNTAX);
    }
    let number = i128::from_str_radix(&body, radix).map_err(|_| RANGE)?;
    let number = if negative { -number } else { number };
    if (low..=high).contains(&number) { Ok(number) } else { Err(RANGE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_numbers() {
        let unsigned = |text| parse(text, 0, u64::MAX.into());
        assert_eq!(unsigned("18446744073709551615"), Ok(u64::MAX.into()));
        assert_eq!(unsigned("18446744073709551616"), Err(RANGE));
        assert_eq!(
            (unsigned("0x10"), unsigned("010"), unsigned("0b11"), unsigned("0o17")),
            (Ok(16), Ok(8), Ok(3), Ok(15))
        );
        assert_eq!((unsigned("0x_1_0"), unsigned("1_000"), unsigned("0")), (Ok(16), Err(SYNTAX), Ok(0)));
        for bad in ["", "-1", "+1", "x", "08", "1e9", "1.0", " 1", "0x", "99999999999999999999999999999999999999999999"]
        {
            assert!(unsigned(bad).is_err(), "{bad}");
        }
        assert_eq!(parse("-1", i64::MIN.into(), i64::MAX.into()), Ok(-1));
        assert_eq!(parse("--1", i64::MIN.into(), i64::MAX.into()), Err(SYNTAX));
    }
}
