//! The time that requests spend in each stage.
//!
//! A write waits in the queue, is written to the log of this member, waits until enough members have it, and is applied. The time at
//! which it was queued is known of each write; the other times are of batches, and cost one reading of the clock for many.

use contain::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use telemetry::metrics::{Histogram, Page};

/// Syncs of the log that are remembered until what they covered is applied.
const SYNCS_MAX: usize = 1024;
const NAME: &str = "cairn_request_stage_duration_seconds";

/// Twenty buckets from 10 us on.
type Stage = Histogram<20, 10_000>;

/// The stages of a write whose time is over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    /// From its arrival until consensus took it.
    pub(crate) queue: Duration,
    /// Until it was in this member's log, durably.
    pub(crate) log_sync: Duration,
    /// Until enough members had it.
    pub(crate) replication: Duration,
    /// Until it was applied.
    pub(crate) apply: Duration,
}

/// The histograms, and what is needed to fill them.
#[derive(Default)]
pub(crate) struct Stages {
    queue: Stage,
    log_sync: Stage,
    replication: Stage,
    apply: Stage,
    /// Linearizable reads: until the leader has said up to where the store must be, and the store is there.
    pub(crate) read_index: Stage,
    /// Collecting and encoding the answer.
    pub(crate) read: Stage,
    /// Answers of other threads, above all of writes: until the batch of which they are part is in the sockets.
    pub(crate) send: Stage,
    /// The last index of each sync of the log, and its end.
    syncs: Mutex<VecDeque<(u64, Instant)>>,
}

impl Stages {
    /// Everything up to `index` is in the log.
    pub(crate) fn synced(&self, index: u64, at: Instant) {
        let mut syncs = lock(&self.syncs);
        // Another leader's entries take the places of those that were there.
        while syncs.back().is_some_and(|(last, _)| *last >= index) {
            syncs.pop_back();
        }
        if syncs.len() >= SYNCS_MAX {
            syncs.pop_front();
        }
        syncs.push_back((index, at));
    }

    /// When the entries from `index` on were in the log; to be asked in order.
    pub(crate) fn synced_at(&self, indexes: impl Iterator<Item = u64>, mut found: impl FnMut(Option<Instant>)) {
        let mut syncs = lock(&self.syncs);
        for index in indexes {
            while syncs.front().is_some_and(|(last, _)| *last < index) {
                syncs.pop_front();
            }
            found(syncs.front().map(|(_, at)| *at));
        }
    }

    /// Counts a write.
    pub(crate) fn written(&self, written: &Written) {
        self.queue.observe(written.queue);
        self.log_sync.observe(written.log_sync);
        self.replication.observe(written.replication);
        self.apply.observe(written.apply);
    }

    pub(super) fn write(&self, page: &mut Page) {
        page.family(NAME, "histogram", "Where requests spend their time.");
        for (op, stage, histogram) in [
            ("write", "queue", &self.queue),
            ("write", "log_sync", &self.log_sync),
            ("write", "replication", &self.replication),
            ("write", "apply", &self.apply),
            ("read", "read_index", &self.read_index),
            ("read", "range", &self.read),
            ("any", "send", &self.send),
        ] {
            histogram.write_labelled(page, NAME, &[("op", op), ("stage", stage)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_time_of_its_sync() {
        let stages = Stages::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        stages.synced(3, at(1));
        stages.synced(5, at(2));
        // Another leader's.
        stages.synced(4, at(3));
        stages.synced(9, at(4));
        let mut found = Vec::new();
        stages.synced_at([2, 3, 4, 5, 9, 10].into_iter(), |at| found.push(at));
        assert_eq!(found, [Some(at(1)), Some(at(1)), Some(at(3)), Some(at(4)), Some(at(4)), None]);
    }
}
