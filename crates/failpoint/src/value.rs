//! What a term has in its brackets.

/// The value of a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No brackets, or nothing in them.
    Nothing,
    /// A quoted text.
    Text(String),
    /// A number; milliseconds for `sleep`.
    Number(i64),
    /// `true` or `false`.
    Truth(bool),
}

impl Value {
    /// Reads `(...)` at the beginning of `text`: the value, and the bytes it takes. `None` if the brackets hold something else.
    pub(crate) fn read(text: &str) -> Option<(Value, usize)> {
        let Some(inside) = text.strip_prefix('(') else { return Some((Value::Nothing, 0)) };
        let (value, length) = match inside.strip_prefix('"') {
            Some(quoted) => quoted_text(quoted).map(|(text, length)| (Value::Text(text), length + 1))?,
            None => {
                let word = inside.split(')').next().unwrap_or_default();
                let value = match word {
                    "" => Value::Nothing,
                    "true" => Value::Truth(true),
                    "false" => Value::Truth(false),
                    number => Value::Number(number.parse().ok()?),
                };
                (value, word.len())
            }
        };
        inside.get(length..)?.starts_with(')').then_some((value, length + 2))
    }
}

/// The text up to the closing quote, and the bytes up to behind it.
fn quoted_text(text: &str) -> Option<(String, usize)> {
    let mut read = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((read, at + 1)),
            '\\' => read.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                same @ ('"' | '\\') => same,
                _ => return None,
            }),
            other => read.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_brackets_hold() {
        let text = |text: &str| Value::Text(text.into());
        for (written, value, length) in [
            ("", Value::Nothing, 0),
            ("->panic", Value::Nothing, 0),
            ("()", Value::Nothing, 2),
            ("(100)->x", Value::Number(100), 5),
            ("(-3)", Value::Number(-3), 4),
            ("(true)", Value::Truth(true), 6),
            ("(\"1s\")", text("1s"), 6),
            (r#"("a \"b\" \\ )")"#, text("a \"b\" \\ )"), 16),
        ] {
            assert_eq!(Value::read(written), Some((value, length)), "{written}");
        }
        for wrong in ["(", "(10s)", "(\"", "(\"a", "(\"a\"", "(\"\\x\")", "(99999999999999999999)", "(tru)"] {
            assert_eq!(Value::read(wrong), None, "{wrong}");
        }
    }
}
