//! A progress bar. Drawn only on a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How wide the bar is, in characters.
const WIDTH: u64 = 40;
/// Time between two drawings.
const STEP: Duration = Duration::from_millis(100);

/// How far something has come.
pub(crate) struct Bar {
    is_seen: bool,
    drawn_at: Option<Instant>,
}

impl Bar {
    pub(crate) fn new() -> Bar {
        let is_seen = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Bar { is_seen, drawn_at: None }
    }

    /// Draws `done` of `total`; `text` says it in words.
    pub(crate) fn draw(&mut self, done: u64, total: u64, text: &str) {
        if !self.is_seen || self.drawn_at.is_some_and(|at| at.elapsed() < STEP) {
            return;
        }
        self.drawn_at = Some(Instant::now());
        flags::say_part!("\r\x1b[K{}", line(done, total, text));
        // A terminal that is gone needs no bar.
        let _ = std::io::stderr().flush();
    }

    /// Takes the bar away, and leaves `text` in its place.
    pub(crate) fn end(self, text: &str) {
        if self.is_seen && self.drawn_at.is_some() {
            flags::say!("\r\x1b[K{text}");
        }
    }

    /// Takes the bar away.
    pub(crate) fn clear(self) {
        if self.is_seen && self.drawn_at.is_some() {
            flags::say_part!("\r\x1b[K");
        }
    }
}

fn line(done: u64, total: u64, text: &str) -> String {
    let (done, total) = (done.min(total), total.max(1));
    let share = |of: u64| (u128::from(done) * u128::from(of) / u128::from(total)) as u64;
    let filled = share(WIDTH) as usize;
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(WIDTH as usize - filled));
    format!("{bar} {:3} %  {text}", share(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_what_is_done() {
        assert_eq!(line(1, 2, "half"), format!("{}{}  50 %  half", "█".repeat(20), "░".repeat(20)));
        assert_eq!(line(9, 3, ""), format!("{} 100 %  ", "█".repeat(40)));
        assert!(line(0, 0, "").contains("  0 %"));
    }
}
