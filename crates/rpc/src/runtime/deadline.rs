//! Deadlines of calls.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Instant;

use super::signal::Signal;

/// The deadlines of the calls of one thread. Calls that end early stay until their time comes or until they are the majority.
#[derive(Default)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Deadline>,
    /// How many there were after the last sweep.
    swept: usize,
}

struct Deadline {
    at: Instant,
    signal: Arc<Signal>,
}

/// Below this many entries a sweep is not worth it.
const SWEEP_MIN: usize = 1024;

impl Deadlines {
    pub(crate) fn push(&mut self, at: Instant, signal: Arc<Signal>) {
        if self.heap.len() >= SWEEP_MIN.max(self.swept.saturating_mul(2)) {
            self.heap.retain(|deadline| !deadline.signal.is_ended());
            self.swept = self.heap.len();
        }
        self.heap.push(Deadline { at, signal });
    }

    /// The next call whose time is up.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Arc<Signal>> {
        while self.heap.peek()?.at <= now {
            let Deadline { signal, .. } = self.heap.pop()?;
            if !signal.is_ended() {
                return Some(signal);
            }
        }
        None
    }

    /// When the earliest time is up.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|deadline| deadline.at)
    }
}

// The earliest is the greatest: `BinaryHeap` pops the greatest.
impl Ord for Deadline {
    fn cmp(&self, other: &Deadline) -> Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Deadline) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Deadline {
    fn eq(&self, other: &Deadline) -> bool {
        self.at == other.at
    }
}

impl Eq for Deadline {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::runtime::mailbox::Mailbox;

    #[test]
    fn ended_calls_are_swept_and_skipped() {
        let mailbox = Arc::new(Mailbox::new());
        let start = Instant::now();
        let mut deadlines = Deadlines::default();
        for index in 0..10 * SWEEP_MIN {
            let signal = Arc::new(Signal::new(mailbox.clone(), index));
            deadlines.push(start + Duration::from_millis(index as u64), signal.clone());
            if index % 100 != 0 {
                signal.end();
            }
        }
        assert!(deadlines.heap.len() <= 2 * SWEEP_MIN, "{} entries", deadlines.heap.len());
        assert_eq!(deadlines.pop(start).map(|signal| signal.connection()), Some(0));
        assert!(deadlines.pop(start + Duration::from_millis(99)).is_none());
        assert_eq!(deadlines.pop(start + Duration::from_millis(100)).map(|signal| signal.connection()), Some(100));
    }
}
