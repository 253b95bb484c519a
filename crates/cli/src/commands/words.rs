//! Splitting lines of `txn` and `watch -i` into words.

use crate::raw;

/// The words of a line: in double quotes with escapes, in single quotes as they are, or without blanks. A quote without an end reaches to
/// the end of the line, escapes as they are. None if an escape is none.
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let (mut words, mut rest) = (Vec::new(), line.trim());
    while let Some(first) = rest.chars().next() {
        let (word, behind) = match first {
            '"' | '\'' if closing(rest, first).is_none() => {
                // The quote alone is nothing.
                if rest.len() > 1 {
                    words.push(rest[1..].to_string());
                }
                break;
            }
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

/// Where the quote ends that `text` begins with.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().skip(1).find_map(|(place, c)| {
        let ends = c == quote && !is_escaped;
        is_escaped = c == '\\' && quote == '"' && !is_escaped;
        ends.then_some(place)
    })
}

/// Reads a text in double quotes, with Go's escapes, or in backquotes, without; and what stands after it.
pub(crate) fn unquote(text: &str) -> Option<(String, &str)> {
    if let Some(plain) = text.strip_prefix('`') {
        return plain.split_once('`').map(|(word, behind)| (word.to_string(), behind));
    }
    let mut out = Vec::new();
    let mut chars = text.strip_prefix('"')?.char_indices();
    while let Some((place, c)) = chars.next() {
        match c {
            '"' => return Some((raw::text(&out), &text[place + 2..])),
            '\\' => {
                let (_, escape) = chars.next()?;
                let digits = match escape {
                    'x' => Some(2),
                    '0'..='7' => {
                        let mut number = escape.to_digit(8)?;
                        for _ in 0..2 {
                            number = number * 8 + chars.next()?.1.to_digit(8)?;
                        }
                        out.push(u8::try_from(number).ok()?);
                        continue;
                    }
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
        assert_eq!(split(r#"put "\q""#), None);
        assert_eq!(words("put \"a\\tb c"), ["put", "a\\tb c"], "no end, no escapes");
        assert_eq!(
            (words("put 'a b"), words("put \""), words("put k'a\r")),
            (vec!["put".into(), "a b".into()], vec!["put".into()], vec!["put".into(), "k'a".into()])
        );
        assert_eq!(words(r#"put "\377" "a\"b"c"#), ["put", &raw::text(b"\xff"), "a\"b", "c"]);
        for wrong in [r#""\400""#, r#""\8""#, r#""\18""#] {
            assert_eq!(unquote(wrong), None, "{wrong}");
        }
        assert_eq!(unquote("`a\\n` x"), Some(("a\\n".into(), " x")));
        assert_eq!(unquote(r#""k") > "0""#), Some(("k".into(), ") > \"0\"")));
    }
}
