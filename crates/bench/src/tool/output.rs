//! Standard output.

use std::io::Write;

/// Prints `text`. A reader that has closed the pipe is no error.
pub fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
