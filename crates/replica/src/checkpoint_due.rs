//! When a checkpoint of the store is written.

use std::time::Duration;

/// How often checkpoints are written.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointPace {
    /// After this many applied entries,
    pub entries: u64,
    /// but never sooner than this after the last one,
    pub gap: Duration,
    /// and never later than this when something changed.
    pub age_max: Duration,
}

/// The checkpoint that is there or being written, and when the next one is due. One is written at a time.
pub struct CheckpointDue {
    pace: CheckpointPace,
    index: u64,
    taken: Duration,
}

impl CheckpointDue {
    /// There is one of the entry `index`.
    pub fn new(pace: CheckpointPace, index: u64, now: Duration) -> CheckpointDue {
        CheckpointDue { pace, index, taken: now }
    }

    /// Whether the state as of `applied` is to be captured, if that is possible. `wants` makes it due sooner.
    pub fn is_due(&self, applied: u64, wants: bool, now: Duration) -> bool {
        let age = now.saturating_sub(self.taken);
        let behind = applied.saturating_sub(self.index);
        let is_due = wants || behind >= self.pace.entries || (behind > 0 && age >= self.pace.age_max);
        is_due && age >= self.pace.gap
    }

    /// It was captured as of `index`, or a snapshot was installed, which is as good.
    pub fn taken(&mut self, index: u64, now: Duration) {
        self.index = index;
        self.taken = now;
    }

    /// Whether something was applied that it does not have.
    pub fn is_behind(&self, applied: u64) -> bool {
        applied > self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_by_entries_or_by_age() {
        let seconds = Duration::from_secs;
        let pace = CheckpointPace { entries: 100, gap: seconds(3), age_max: seconds(60) };
        let mut due = CheckpointDue::new(pace, 50, seconds(0));
        assert!(!due.is_due(149, false, seconds(59)));
        assert!(due.is_due(150, false, seconds(3)) && !due.is_due(150, false, seconds(2)));
        assert!(due.is_due(51, false, seconds(60)) && !due.is_due(50, false, seconds(600)));
        assert!(due.is_due(50, true, seconds(3)), "somebody wants it");
        due.taken(150, seconds(10));
        assert!(!due.is_due(249, false, seconds(20)) && due.is_behind(151) && !due.is_behind(150));
    }
}
