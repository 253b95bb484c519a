//! When a checkpoint of the store is written.

use std::time::Duration;

/// How often checkpoints are written.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointPace {
    /// Number of applied entries after which a checkpoint is due.
    pub entries: u64,
    /// Least time between two checkpoints.
    pub gap: Duration,
    /// With so many applied entries a start would take long: `gap_many` counts instead of `gap`.
    pub many: u64,
    /// Least time between two checkpoints then.
    pub gap_many: Duration,
    /// Longest time after the last checkpoint until the next one, if something changed.
    pub age_max: Duration,
}

/// The last checkpoint, complete or being written, and when the next one is due. One is written at a time.
pub struct CheckpointDue {
    pace: CheckpointPace,
    index: u64,
    taken: Duration,
}

impl CheckpointDue {
    /// Starts with a checkpoint as of the entry `index`.
    pub fn new(pace: CheckpointPace, index: u64, now: Duration) -> CheckpointDue {
        CheckpointDue { pace, index, taken: now }
    }

    /// Whether a checkpoint as of `applied` is due. `wants` makes it due sooner.
    pub fn is_due(&self, applied: u64, wants: bool, now: Duration) -> bool {
        let age = now.saturating_sub(self.taken);
        let behind = applied.saturating_sub(self.index);
        let is_due = wants || behind >= self.pace.entries || (behind > 0 && age >= self.pace.age_max);
        let gap = if behind >= self.pace.many { self.pace.gap_many } else { self.pace.gap };
        is_due && age >= gap
    }

    /// Notes that a checkpoint was captured as of `index`, or that a snapshot was installed, which is equivalent.
    pub fn taken(&mut self, index: u64, now: Duration) {
        self.index = index;
        self.taken = now;
    }

    /// Whether entries were applied that the checkpoint does not cover.
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
        let pace =
            CheckpointPace { entries: 100, gap: seconds(3), many: 500, gap_many: seconds(1), age_max: seconds(60) };
        let mut due = CheckpointDue::new(pace, 50, seconds(0));
        assert!(!due.is_due(149, false, seconds(59)));
        assert!(due.is_due(150, false, seconds(3)) && !due.is_due(150, false, seconds(2)));
        assert!(due.is_due(51, false, seconds(60)) && !due.is_due(50, false, seconds(600)));
        assert!(due.is_due(50, true, seconds(3)), "somebody wants it");
        assert!(due.is_due(550, false, seconds(1)) && !due.is_due(550, false, seconds(0)), "many entries");
        assert!(!due.is_due(549, false, seconds(2)));
        due.taken(150, seconds(10));
        assert!(!due.is_due(249, false, seconds(20)) && due.is_behind(151) && !due.is_behind(150));
    }
}
