//! Keys and names as text: bounded, and without anything that could be taken for something else.

use std::fmt::Write;

/// The first bytes as text. What is no text, and what is not seen or changes how its neighbours are seen, becomes `\xNN`; a backslash
/// becomes two, so that it stays clear which of them were there.
pub(super) fn escaped(bytes: &[u8], bytes_max: usize) -> String {
    let shown = bytes.get(..bytes_max).unwrap_or(bytes);
    let mut text = String::with_capacity(shown.len());
    for chunk in shown.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                control if is_unseen(control) => {
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

/// Control characters, ends of lines, characters without a width, and those that turn the direction of writing.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
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
            assert_eq!(escaped(bytes, 256), shown);
        }
        assert_eq!(escaped(&[b'k'; 5000], 40).len(), 40);
    }

    #[test]
    fn lines_and_directions_cannot_be_turned() {
        assert_eq!(
            escaped("a\u{202e}b\u{2028}c\u{2066}".as_bytes(), 256),
            "a\\xe2\\x80\\xaeb\\xe2\\x80\\xa8c\\xe2\\x81\\xa6"
        );
        assert_eq!(escaped("\u{5d0}\u{fc}".as_bytes(), 256), "\u{5d0}\u{fc}");
    }
}
