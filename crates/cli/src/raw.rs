//! Words of a command line as bytes: keys and values need not be text.
//!
//! Command lines are handled as text. A byte that is not UTF-8 is represented by the character [`FIRST`] plus the byte. The few characters
//! that would look the same are represented in that way too, byte by byte. So nothing is lost, and nothing is ambiguous.

use crate::failure::{Failure, Outcome, code};
use bytes::Bytes;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The character for the byte 0, near the end of the last private plane.
const FIRST: u32 = 0x10_fe00;
/// The character for the byte 255.
const LAST: u32 = FIRST + 255;

/// The text for a word.
pub(crate) fn word(word: &OsStr) -> String {
    text(word.as_bytes())
}

/// The text for bytes.
pub(crate) fn text(bytes: &[u8]) -> String {
    let escaped = |byte: &u8| char::from_u32(FIRST + u32::from(*byte));
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match u32::from(c) {
                FIRST..=LAST => out.extend(c.encode_utf8(&mut [0; 4]).as_bytes().iter().filter_map(escaped)),
                _ => out.push(c),
            }
        }
        out.extend(chunk.invalid().iter().filter_map(escaped));
    }
    out
}

/// The bytes of a text that [`text`] made.
pub(crate) fn bytes(text: &str) -> Bytes {
    if !text.chars().any(|c| (FIRST..=LAST).contains(&u32::from(c))) {
        return Bytes::copy_from_slice(text.as_bytes());
    }
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u32::from(c) {
            code @ FIRST..=LAST => out.push((code - FIRST) as u8),
            _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.into()
}

/// The bytes of a message in which such texts are, as they were given or quoted: what a debug form has made of a byte is shown as Go
/// shows it, `\xff`.
pub(crate) fn message(text: &str) -> Bytes {
    let mut parts = text.split("\\u{10f");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let digits = part.split_once('}').filter(|(digits, _)| digits.len() == 3);
        let code = digits.and_then(|(digits, _)| u32::from_str_radix(digits, 16).ok()).map(|digits| 0x10_f000 + digits);
        match code {
            Some(code @ FIRST..=LAST) => out += &format!("\\x{:02x}{}", code - FIRST, &part[4..]),
            _ => out += &format!("\\u{{10f{part}"),
        }
    }
    bytes(&out)
}

/// The same as text, as the API has names.
pub(crate) fn string(text: &str) -> Outcome<String> {
    // In the words of the library that etcd's tool sends requests with.
    let refused = "rpc error: code = Internal desc = grpc: error while marshaling: string field contains invalid UTF-8";
    String::from_utf8(bytes(text).into()).map_err(|_| Failure::new(code::ERROR, refused))
}

/// The same as the name of a file.
pub(crate) fn path(text: &str) -> PathBuf {
    OsString::from_vec(bytes(text).into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let odd = "\u{10fe41}".as_bytes();
        for case in [&b"plain"[..], b"", b"\xff\x00\xc3(", "ü€".as_bytes(), odd, &[odd, b"\xfe"].concat()] {
            assert_eq!(bytes(&text(case)), case);
        }
        assert_eq!(text(b"plain"), "plain");
        assert_eq!(string(&text(odd)).as_deref(), Ok("\u{10fe41}"));
        assert!(string(&text(b"\xff")).is_err());
        let quoted = format!("parsing {:?}: {}", text(b"a\xff\xfe"), text(b"\xfd"));
        assert_eq!(message(&quoted), &b"parsing \"a\\xff\\xfe\": \xfd"[..]);
        assert_eq!(message("\\u{10fdff} \\u{10f"), "\\u{10fdff} \\u{10f");
        assert_eq!(path(&text(b"a\xff")).as_os_str().as_bytes(), b"a\xff");
        assert_ne!(text(odd), text(b"A"));
    }
}
