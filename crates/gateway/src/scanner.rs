//! Finds where one JSON value ends and the next begins, and errors of syntax, byte by byte as the text arrives. The error texts are
//! those that clients of etcd know, which are those of Go's `encoding/json`.

/// Objects and arrays inside each other. A transaction takes three levels, and [`api::limits::TXN_NESTING_MAX`] of them are taken.
pub(crate) const DEPTH_MAX: usize = 1_000;

/// What a byte means for the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Blank before the value.
    Blank,
    /// It belongs to the value, which is not complete.
    Inside,
    /// It is the value's last.
    Last,
    /// The value has ended before it.
    Behind,
}

/// The state of reading one value. After [`Step::Last`] or [`Step::Behind`] it is ready for the next.
#[derive(Debug)]
pub(crate) struct Scanner {
    state: State,
    /// Whether each of the values that are open is an object.
    open: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begin,
    /// Behind `[`.
    ElementOrEnd,
    /// Behind `{`.
    KeyOrEnd,
    /// Behind `,` in an object.
    Key,
    AfterKey,
    AfterValue,
    Text {
        is_key: bool,
    },
    Escape {
        is_key: bool,
    },
    Hex {
        is_key: bool,
        left: u8,
    },
    /// In `true`, `false` or `null`: the word, and what of it is still to come.
    Word(&'static str, &'static [u8]),
    Minus,
    Zero,
    Digits,
    Dot,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Scanner {
    pub(crate) fn new() -> Scanner {
        Scanner { state: State::Begin, open: Vec::new() }
    }

    /// Whether a value has begun.
    pub(crate) fn is_inside(&self) -> bool {
        self.state != State::Begin || !self.open.is_empty()
    }

    /// Whether the value is whole if nothing more comes: only a number can be.
    pub(crate) fn can_end(&self) -> bool {
        self.open.is_empty()
            && matches!(self.state, State::Zero | State::Digits | State::Fraction | State::ExponentDigits)
    }

    /// Takes the next byte.
    pub(crate) fn step(&mut self, byte: u8) -> Result<Step, String> {
        if self.open.is_empty() && self.state == State::Begin && is_blank(byte) {
            return Ok(Step::Blank);
        }
        let next = match (self.state, byte) {
            (State::Text { is_key: true }, b'"') => State::AfterKey,
            (State::Text { is_key: false }, b'"') => return Ok(self.close_value()),
            (State::Text { is_key }, b'\\') => State::Escape { is_key },
            (State::Text { .. }, 0..b' ') => return Err(unexpected(byte, "in string literal")),
            (State::Text { .. }, _) => return Ok(Step::Inside),
            (State::Escape { is_key }, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                State::Text { is_key }
            }
            (State::Escape { is_key }, b'u') => State::Hex { is_key, left: 4 },
            (State::Escape { .. }, _) => return Err(unexpected(byte, "in string escape code")),
            (State::Hex { is_key, left }, _) if byte.is_ascii_hexdigit() => match left {
                0 | 1 => State::Text { is_key },
                _ => State::Hex { is_key, left: left.saturating_sub(1) },
            },
            (State::Hex { .. }, _) => return Err(unexpected(byte, "in \\u hexadecimal character escape")),
            (State::Word(word, left), _) => match left {
                [expected, rest @ ..] if byte == *expected => match rest {
                    [] => return Ok(self.close_value()),
                    _ => State::Word(word, rest),
                },
                [expected, ..] => {
                    let expected = char::from(*expected);
                    return Err(unexpected(byte, &format!("in literal {word} (expecting '{expected}')")));
                }
                // It would have been closed.
                [] => return Err(unexpected(byte, &format!("in literal {word}"))),
            },
            (State::Minus, b'0') => State::Zero,
            (State::Minus, b'1'..=b'9') | (State::Digits, b'0'..=b'9') => State::Digits,
            (State::Minus, _) => return Err(unexpected(byte, "in numeric literal")),
            (State::Zero | State::Digits, b'.') => State::Dot,
            (State::Zero | State::Digits | State::Fraction, b'e' | b'E') => State::Exponent,
            (State::Dot | State::Fraction, b'0'..=b'9') => State::Fraction,
            (State::Dot, _) => return Err(unexpected(byte, "after decimal point in numeric literal")),
            (State::Exponent, b'+' | b'-') => State::ExponentSign,
            (State::Exponent | State::ExponentSign | State::ExponentDigits, b'0'..=b'9') => State::ExponentDigits,
            (State::Exponent | State::ExponentSign, _) => {
                return Err(unexpected(byte, "in exponent of numeric literal"));
            }
            (State::Zero | State::Digits | State::Fraction | State::ExponentDigits, _) => {
                return self.behind_number(byte);
            }
            _ if is_blank(byte) => return Ok(Step::Inside),
            (State::Begin | State::ElementOrEnd, _) => return self.begin_value(byte),
            (State::KeyOrEnd | State::Key, b'"') => State::Text { is_key: true },
            (State::KeyOrEnd, b'}') => return Ok(self.close_container()),
            (State::KeyOrEnd | State::Key, _) => {
                return Err(unexpected(byte, "looking for beginning of object key string"));
            }
            (State::AfterKey, b':') => State::Begin,
            (State::AfterKey, _) => return Err(unexpected(byte, "after object key")),
            (State::AfterValue, _) => return self.between(byte),
        };
        self.state = next;
        Ok(Step::Inside)
    }

    fn begin_value(&mut self, byte: u8) -> Result<Step, String> {
        self.state = match byte {
            b'{' | b'[' => {
                if self.open.len() == DEPTH_MAX {
                    return Err("exceeded max depth".into());
                }
                self.open.push(byte == b'{');
                if byte == b'{' { State::KeyOrEnd } else { State::ElementOrEnd }
            }
            b']' if self.state == State::ElementOrEnd => return Ok(self.close_container()),
            b'"' => State::Text { is_key: false },
            b't' => State::Word("true", b"rue"),
            b'f' => State::Word("false", b"alse"),
            b'n' => State::Word("null", b"ull"),
            b'-' => State::Minus,
            b'0' => State::Zero,
            b'1'..=b'9' => State::Digits,
            _ => return Err(unexpected(byte, "looking for beginning of value")),
        };
        Ok(Step::Inside)
    }

    /// What stands after a value in an object or array.
    fn between(&mut self, byte: u8) -> Result<Step, String> {
        match (self.open.last(), byte) {
            (Some(true), b'}') | (Some(false), b']') => return Ok(self.close_container()),
            (Some(true), b',') => self.state = State::Key,
            (Some(false), b',') => self.state = State::Begin,
            (Some(true), _) => return Err(unexpected(byte, "after object key:value pair")),
            (_, _) => return Err(unexpected(byte, "after array element")),
        }
        Ok(Step::Inside)
    }

    fn behind_number(&mut self, byte: u8) -> Result<Step, String> {
        if self.open.is_empty() {
            self.state = State::Begin;
            return Ok(Step::Behind);
        }
        self.state = State::AfterValue;
        if is_blank(byte) { Ok(Step::Inside) } else { self.between(byte) }
    }

    fn close_container(&mut self) -> Step {
        self.open.pop();
        self.close_value()
    }

    fn close_value(&mut self) -> Step {
        if self.open.is_empty() {
            self.state = State::Begin;
            return Step::Last;
        }
        self.state = State::AfterValue;
        Step::Inside
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn unexpected(byte: u8, place: &str) -> String {
    // As Go quotes it, which takes the byte for a letter.
    let shown = match byte {
        b'\'' => "\\'".to_string(),
        b'"' => "\"".to_string(),
        7 => "\\a".to_string(),
        8 => "\\b".to_string(),
        0xb => "\\v".to_string(),
        0xc => "\\f".to_string(),
        b'\t' | b'\n' | b'\r' | b'\\' => char::from(byte).escape_debug().to_string(),
        0..0x20 | 0x7f => format!("\\x{byte:02x}"),
        0x80..=0xa0 | 0xad => format!("\\u{byte:04x}"),
        _ => char::from(byte).to_string(),
    };
    format!("invalid character '{shown}' {place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of `text`, and what ends them if it is not the end of the text.
    fn split(text: &str) -> (Vec<&str>, Option<String>) {
        let (mut scanner, mut values, mut from) = (Scanner::new(), Vec::new(), 0);
        let mut at = 0;
        while at < text.len() {
            match scanner.step(text.as_bytes()[at]) {
                Ok(Step::Blank) => from = at + 1,
                Ok(Step::Inside) => {}
                Ok(Step::Last) => {
                    values.push(&text[from..=at]);
                    from = at + 1;
                }
                Ok(Step::Behind) => {
                    values.push(&text[from..at]);
                    from = at;
                    continue;
                }
                Err(error) => return (values, Some(error)),
            }
            at += 1;
        }
        if scanner.can_end() {
            values.push(&text[from..]);
        } else if scanner.is_inside() {
            return (values, Some("unexpected EOF".into()));
        }
        (values, None)
    }

    #[test]
    fn values_are_told_apart() {
        let text = "{\"a\":[1,-2.5e+3,{}],\"b\":\"}\\\"\"} [] 12 \"x\"true0null\n{\"c\" : null }";
        let values =
            ["{\"a\":[1,-2.5e+3,{}],\"b\":\"}\\\"\"}", "[]", "12", "\"x\"", "true", "0", "null", "{\"c\" : null }"];
        assert_eq!(split(text), (values.to_vec(), None));
    }

    #[test]
    fn faults_are_named() {
        for (text, error) in [
            ("hello", "invalid character 'h' looking for beginning of value"),
            ("{", "unexpected EOF"),
            ("{a", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\" 1", "invalid character '1' after object key"),
            ("{\"a\":1 2", "invalid character '2' after object key:value pair"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("[1 2", "invalid character '2' after array element"),
            ("[1}", "invalid character '}' after array element"),
            ("[,", "invalid character ',' looking for beginning of value"),
            ("\"\n", "invalid character '\\n' in string literal"),
            ("\"\\x", "invalid character 'x' in string escape code"),
            ("\"\\u12g", "invalid character 'g' in \\u hexadecimal character escape"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("-a", "invalid character 'a' in numeric literal"),
            ("1.a", "invalid character 'a' after decimal point in numeric literal"),
            ("1ea", "invalid character 'a' in exponent of numeric literal"),
            ("\0", "invalid character '\\x00' looking for beginning of value"),
            ("\u{7f}", "invalid character '\\x7f' looking for beginning of value"),
            ("\u{e9}", "invalid character 'Ã' looking for beginning of value"),
        ] {
            assert_eq!(split(text), (Vec::new(), Some(error.into())), "{text}");
        }
        assert_eq!(split(&"[".repeat(DEPTH_MAX + 1)).1.as_deref(), Some("exceeded max depth"));
        assert_eq!(split(&format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX))).1, None);
    }
}
