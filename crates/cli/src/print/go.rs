//! Values in the forms of Go's `fmt`, `strconv`, `time` and of the library by which etcd's tools write sizes.

pub(crate) use flags::duration_text as duration;
use std::fmt::Write;

/// A text in quotes, as `%q` writes it. What is not UTF-8 is written byte by byte.
pub(crate) fn quote(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\u{7}' => out.push_str("\\a"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{b}' => out.push_str("\\v"),
                c if c < ' ' || c == '\u{7f}' => put(&mut out, format_args!("\\x{:02x}", u32::from(c))),
                c if is_printable(c) => out.push(c),
                c if u32::from(c) < 0x10000 => put(&mut out, format_args!("\\u{:04x}", u32::from(c))),
                c => put(&mut out, format_args!("\\U{:08x}", u32::from(c))),
            }
        }
        for byte in chunk.invalid() {
            put(&mut out, format_args!("\\x{byte:02x}"));
        }
    }
    out.push('"');
    out
}

/// Whether a character that is no control character is shown as it is.
fn is_printable(c: char) -> bool {
    // The standard library escapes what has no look of its own, and marks that hang on the character before, which have.
    let mut escaped = c.escape_debug();
    let is_plain = escaped.next() == Some(c) || matches!(c, '\'');
    is_plain || (!c.is_whitespace() && unicode_mark(c))
}

/// Combining marks of the scripts in common use.
fn unicode_mark(c: char) -> bool {
    matches!(u32::from(c), 0x300..=0x36f | 0x483..=0x489 | 0x591..=0x5c7 | 0x610..=0x61a | 0x64b..=0x65f | 0x900..=0x903
        | 0x93a..=0x94f | 0x1ab0..=0x1aff | 0x1dc0..=0x1dff | 0x20d0..=0x20f0 | 0x3099..=0x309a | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f)
}

/// Writing to a string cannot fail.
pub(crate) fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

/// What the operating system says, without the number of it.
pub(crate) fn io(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => {
            let text = error.to_string();
            let text = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text);
            let mut chars = text.chars();
            chars.next().map_or(String::new(), |first| first.to_lowercase().collect::<String>() + chars.as_str())
        }
        None => error.to_string(),
    }
}

/// A number of bytes in powers of 1,000, as etcd's tools write it.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 10 {
        return format!("{count} B");
    }
    let step = count.ilog10() as usize / 3;
    let value = (count as f64 / 1000_f64.powi(step as i32) * 10.0 + 0.5).floor() / 10.0;
    if value < 10.0 { format!("{value:.1} {}", UNITS[step]) } else { format!("{value:.0} {}", UNITS[step]) }
}

/// Bytes as `\x61\x62`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 4);
    bytes.iter().for_each(|byte| put(&mut out, format_args!("\\x{byte:02x}")));
    out
}

/// Bytes in base64, with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = ALPHABET[(group >> (18 - 6 * place)) as usize & 63];
            out.push(if place > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn texts_are_quoted() {
        assert_eq!(quote(b"a\"b\\\n\0\x7f"), r#""a\"b\\\n\x00\x7f""#);
        assert_eq!(quote("schön \u{200b}\u{301}".as_bytes()), "\"schön \\u200b\u{301}\"");
        assert_eq!(quote(b"\xff\xc3("), r#""\xff\xc3(""#);
    }

    #[test]
    fn durations_sizes_and_base64_look_as_in_go() {
        let cases = [(0, "0s"), (999, "999ns"), (1_500, "1.5µs"), (16_441_287, "16.441287ms"), (2_000_000_000, "2s")];
        for (nanos, text) in cases.into_iter().chain([(61_500_000_000, "1m1.5s"), (3_600_000_000_000, "1h0m0s")]) {
            assert_eq!(duration(Duration::from_nanos(nanos)), text);
        }
        for (count, text) in [(0, "0 B"), (9, "9 B"), (16_384, "16 kB"), (24_576, "25 kB"), (1_500, "1.5 kB")] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(bytes(2_147_483_648), "2.1 GB");
        for (plain, coded) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("abcd", "YWJjZA==")] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
