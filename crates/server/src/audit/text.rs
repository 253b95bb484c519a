//! Keys and names as text: bounded, and without anything that could be taken for something else.

use std::fmt::Write;

/// Bytes of a key or name that are shown.
pub(super) const SHOWN_BYTES_MAX: usize = 256;

/// The bytes as text. What is no text, and control characters, become `\xNN`; a backslash becomes two, so that it stays clear which of
/// them were there.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let shown = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes);
    let mut text = String::with_capacity(shown.len());
    for chunk in shown.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                control if control.is_control() => {
                    let mut encoded = [0; 4];
                    hex(&mut text, control.encode_utf8(&mut encoded).as_bytes());
                }
                other => text.push(other),
            }
        }
        hex(&mut text, chunk.invalid());
    }
    text
}

fn hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_apart() {
        for (bytes, shown) in [
            (&b"a/b"[..], "a/b"),
            (b"\x00\xffa\n", "\\x00\\xffa\\x0a"),
            (b"\\x00", "\\\\x00"),
            ("\u{e9}\u{85}".as_bytes(), "\u{e9}\\xc2\\x85"),
            (b"", ""),
        ] {
            assert_eq!(escaped(bytes), shown);
        }
        assert_eq!(escaped(&[b'k'; 5000]).len(), SHOWN_BYTES_MAX);
    }
}
