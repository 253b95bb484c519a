//! Times of reading and of sending answers.

use std::time::Duration;
use telemetry::metrics::{Histogram, Page};

/// What reading and sending took.
#[derive(Default)]
pub(crate) struct Reads {
    /// Ranges, by success.
    ranges: [Histogram<20, 100_000>; 2],
    /// Of the whole store, and of its keys.
    pub(crate) hash: Histogram<15, 10_000_000>,
    pub(crate) hash_kv: Histogram<15, 10_000_000>,
    /// Sending watchers what happened: the whole answer, and its share for each event.
    pub(crate) watch_send: Histogram,
    pub(crate) watch_send_event: Histogram,
    /// Answering what watchers ask.
    pub(crate) watch_control: Histogram,
    pub(crate) watch_progress: Histogram,
}

impl Reads {
    /// Counts one range.
    pub(crate) fn range(&self, ok: bool, took: Duration) {
        self.ranges[usize::from(ok)].observe(took);
    }

    pub(super) fn write(&self, page: &mut Page) {
        let name = "etcd_server_range_duration_seconds";
        page.family(name, "histogram", "Collecting and encoding the answers to ranges.");
        for (success, histogram) in ["false", "true"].into_iter().zip(&self.ranges) {
            if !histogram.is_empty() {
                histogram.write_labelled(page, name, &[("success", success)]);
            }
        }
        self.hash.write(page, "etcd_mvcc_hash_duration_seconds", "Hashing the whole store.");
        self.hash_kv.write(page, "etcd_mvcc_hash_rev_duration_seconds", "Hashing the keys at a revision.");
        let loop_name = |part: &str| format!("etcd_debugging_server_watch_send_loop_{part}_seconds");
        self.watch_send.write(page, &loop_name("watch_stream_duration"), "Sending watchers what happened.");
        self.watch_send_event.write(
            page,
            &loop_name("watch_stream_duration_per_event"),
            "The same, by the events in an answer.",
        );
        self.watch_control.write(page, &loop_name("control_stream_duration"), "Answering what watchers ask.");
        self.watch_progress.write(page, &loop_name("progress_duration"), "Telling watchers how far they are.");
    }
}
