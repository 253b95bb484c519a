//! Reading from and writing to the terminal.

use crate::failure::Outcome;
use std::io::{BufRead, IsTerminal};

/// Whether a person reads the output.
pub(crate) fn is_seen() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// The first word of the next line of the standard input; an empty line has none.
pub(crate) fn word() -> Outcome<String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.split_whitespace().next().unwrap_or_default().to_string())
}
