//! A rate limit for log lines that clients and peers can cause.

use contain::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Lines of one kind in each [`WHILE`].
const LINES_MAX: u32 = 10;
const WHILE: Duration = Duration::from_secs(10);

/// The rate limit of one kind of line.
#[derive(Debug)]
pub struct Pace(Mutex<State>);

#[derive(Debug)]
struct State {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::new()
    }
}

impl Pace {
    /// One that has let no line pass yet.
    pub const fn new() -> Pace {
        Pace(Mutex::new(State { since: None, lines: 0, left_out: 0 }))
    }

    /// Some, with how many were left out since the last, if a line may be written.
    pub fn line(&self) -> Option<u64> {
        self.line_at(Instant::now())
    }

    fn line_at(&self, now: Instant) -> Option<u64> {
        let mut state = lock(&self.0);
        if state.since.is_none_or(|since| now.duration_since(since) >= WHILE) {
            (state.since, state.lines) = (Some(now), 0);
        }
        if state.lines == LINES_MAX {
            state.left_out += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_line_says_how_many_were_left_out() {
        let (pace, start) = (Pace::new(), Instant::now());
        let at = |ms| pace.line_at(start + Duration::from_millis(ms));
        assert_eq!((0..50).filter_map(at).collect::<Vec<_>>(), [0; 10]);
        assert_eq!(at(9_999), None);
        assert_eq!(at(10_000), Some(41));
        assert_eq!(at(10_001), Some(0));
    }
}
