//! Text in HTML and SVG.

/// `text`, escaped for content and attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // A parser would reject control characters.
            letter if letter.is_control() && letter != '\n' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// The beginning of `text`, at most `letters` long.
pub(super) fn clip(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_text() {
        assert_eq!(escape("<script>'&\"\u{0}"), "&lt;script&gt;&#39;&amp;&quot;\u{fffd}");
        assert_eq!((clip("abc", 3), clip("abcd", 3)), ("abc".into(), "ab…".into()));
    }
}
