//! Lines of `txn` and `watch -i`, taken apart into words.

use crate::raw;

/// The words of a line: in double quotes with escapes, in single quotes as they are, or without blanks. None if a quote has no end.
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let (mut words, mut rest) = (Vec::new(), line.trim_start());
    while let Some(first) = rest.chars().next() {
        let (word, behind) = match first {
            '"' => unquote(rest)?,
            '\'' => {
                let (word, behind) = rest[1..].split_once('\'')?;
                (word.to_string(), behind)
            }
            _ => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (rest[..end].to_string(), &rest[end..])
            }
        };
        words.push(word);
        rest = behind.trim_start();
    }
    Some(words)
}

/// Reads a text in double quotes, with Go's escapes, and what stands behind it.
pub(crate) fn unquote(text: &str) -> Option<(String, &str)> {
    let mut out = Vec::new();
    let mut chars = text.strip_prefix('"')?.char_indices();
    while let Some((place, c)) = chars.next() {
        match c {
            '"' => return Some((raw::text(&out), &text[place + 2..])),
            '\\' => {
                let (_, escape) = chars.next()?;
                let digits = match escape {
                    'x' => Some(2),
                    'u' => Some(4),
                    'U' => Some(8),
                    _ => None,
                };
                if let Some(count) = digits {
                    let mut number = 0_u32;
                    for _ in 0..count {
                        number = number.checked_mul(16)? + chars.next()?.1.to_digit(16)?;
                    }
                    match escape {
                        'x' => out.push(number as u8),
                        _ => push(&mut out, char::from_u32(number)?),
                    }
                    continue;
                }
                push(
                    &mut out,
                    match escape {
                        'a' => '\u{7}',
                        'b' => '\u{8}',
                        'f' => '\u{c}',
                        'n' => '\n',
                        'r' => '\r',
                        't' => '\t',
                        'v' => '\u{b}',
                        '\\' | '"' => escape,
                        _ => return None,
                    },
                );
            }
            c => push(&mut out, c),
        }
    }
    None
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found() {
        let words = |line: &str| split(line).expect("words");
        assert_eq!(words(r#"put "a b" 'c "d' --lease=5"#), ["put", "a b", "c \"d", "--lease=5"]);
        assert_eq!(words(r#"  put "a\n\x41ä" ""  "#), ["put", "a\nAä", ""]);
        assert_eq!(words(""), Vec::<String>::new());
        assert_eq!((split("put \"a"), split("put 'a"), split(r#"put "\q""#)), (None, None, None));
        assert_eq!(unquote(r#""k") > "0""#), Some(("k".into(), ") > \"0\"")));
    }
}
