//! Log lines about clients that cannot be accepted: one now and then, however many they are.

use contain::lock;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// Time between two lines.
const LINES: Duration = Duration::from_secs(10);

/// Counts connections that were turned away, for the next line.
#[derive(Debug, Default)]
pub(crate) struct Door {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    count: u64,
    said: Option<Instant>,
}

impl Door {
    /// A connection was turned away, for this reason.
    pub(crate) fn turned_away(&self, why: &dyn fmt::Display) {
        if let Some(count) = self.count(Instant::now()) {
            logging::warn(
                "turned client connections away",
                &[("error", Value::Shown(&why)), ("connections-turned-away", count.into())],
            );
        }
    }

    /// Counts one. Some if it is time to say how many there were.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut state = lock(&self.state);
        state.count += 1;
        if state.said.is_some_and(|said| now.duration_since(said) < LINES) {
            return None;
        }
        state.said = Some(now);
        Some(std::mem::take(&mut state.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_few_and_count_all() {
        let (door, now) = (Door::default(), Instant::now());
        let said: Vec<u64> = (0..25).filter_map(|second| door.count(now + Duration::from_secs(second))).collect();
        assert_eq!(said, [1, 10, 10]);
    }
}
