//! What is shown while it goes on, and waiting with an end.

use super::view::plain;
use crate::failure::{Failure, Outcome, code};
use crate::print::{self, go};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// Waits that are not longer are not told.
const SOON: Duration = Duration::from_secs(1);

/// What a look has brought.
pub(super) enum Look<T> {
    There(T),
    /// Not yet: how things are.
    NotYet(String),
}

/// Where it is said how far things have come: lines on the standard output, and on a terminal how long a wait takes.
pub(super) struct Screen {
    is_seen: bool,
    /// The longest wait.
    timeout: Duration,
    /// Before each line: which step this is.
    step: std::cell::RefCell<String>,
}

impl Screen {
    pub(super) fn new(timeout: Duration) -> Screen {
        let is_seen = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Screen { is_seen, timeout, step: std::cell::RefCell::default() }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Lines from here on belong to this step.
    pub(super) fn begin(&self, step: impl Into<String>) {
        *self.step.borrow_mut() = step.into();
    }

    /// A line.
    pub(super) fn say(&self, text: &str) -> Outcome {
        self.clear();
        print::out(format!("{}{text}\n", self.prefix()).as_bytes())
    }

    /// A text of several lines.
    pub(super) fn show(&self, text: &str) -> Outcome {
        self.clear();
        print::out(text.as_bytes())
    }

    fn prefix(&self) -> String {
        let step = self.step.borrow();
        if step.is_empty() { String::new() } else { format!("[{step}] ") }
    }

    fn clear(&self) {
        if self.is_seen {
            flags::say_part!("\r\x1b[K");
        }
    }

    /// Looks again and again until what is waited for is there; fails after the longest wait, with what was seen last.
    pub(super) async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Outcome<Look<T>>) -> Outcome<T> {
        let started = Instant::now();
        let mut is_said = false;
        loop {
            let left = self.timeout.saturating_sub(started.elapsed());
            let seen = match tokio::time::timeout(left, look()).await {
                Ok(seen) => seen?,
                Err(_) => Look::NotYet("no answer".into()),
            };
            let reason = match seen {
                Look::There(found) => {
                    self.clear();
                    return Ok(found);
                }
                Look::NotYet(reason) => plain(&reason),
            };
            if started.elapsed() >= self.timeout {
                self.clear();
                let text = format!(
                    "{}waited {} until {what}, in vain: {reason} (--timeout)",
                    self.prefix(),
                    go::duration(self.timeout)
                );
                return Err(Failure::new(code::LATE, text));
            }
            // What is there soon needs no line.
            if !is_said && (started.elapsed() >= SOON || self.timeout <= SOON) {
                self.say(&format!("waiting until {what}, for {} at most: {reason}", go::duration(self.timeout)))?;
                is_said = true;
            }
            if self.is_seen {
                let waited = Duration::from_secs(started.elapsed().as_secs());
                flags::say_part!("\r\x1b[K{}{} so far: {reason}", self.prefix(), go::duration(waited));
            }
            tokio::time::sleep(PAUSE.min(left)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_end() {
        let screen = Screen::new(Duration::from_millis(300));
        screen.begin("1/3");
        let mut looks = 0;
        let found = screen.until("it is there", async || {
            looks += 1;
            Ok(if looks > 1 { Look::There(looks) } else { Look::NotYet("not yet".into()) })
        });
        assert_eq!(found.await, Ok(2));
        let never: Outcome = screen.until("it is there", async || Ok(Look::NotYet("gone\x1b".into()))).await;
        let failure = never.expect_err("nothing is there");
        assert_eq!(failure.code, code::LATE);
        assert_eq!(failure.text, "[1/3] waited 300ms until it is there, in vain: \"gone\\x1b\" (--timeout)");
        let hangs: Outcome = screen.until("it answers", async || std::future::pending().await).await;
        assert!(hangs.expect_err("nothing answers").text.contains("no answer"));
        let fails: Outcome = screen.until("it is there", async || Err(Failure::new(7, "differs"))).await;
        assert_eq!(fails.expect_err("it failed").code, 7);
    }
}
