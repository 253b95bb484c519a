//! Linearizable reads end in time, whatever they wait for.

use super::Node;
use super::inbox::Read;
use crate::overload::Class;
use api::Error;
use std::sync::atomic::Ordering;
use telemetry::logging::{self, Pace, Value};

/// A read index that takes longer is worth a line; etcd asks again after this time.
const READ_INDEX_SLOW_MS: u64 = 500;
/// Time between two of these lines.
const READ_INDEX_LINE_MS: u64 = 1_000;

impl Node {
    /// Adds reads to the waiting ones while consensus is stuck. Reads above the limit of the queue are refused.
    pub(super) fn add_reads(&self, reads: Vec<Read>) {
        if reads.is_empty() {
            return;
        }
        let max = self.config.queues.of(Class::Read);
        let refused = self.reads.with(|table| table.add(reads, max, self.now_ms()));
        self.end_reads(refused, Error::TooManyRequests);
    }

    /// Ends the reads whose time is over, whether they wait for a leader, for its answer, or for the store.
    pub(super) fn expire_reads(&self, now_ms: u64) {
        if self.reads.count() == 0 {
            return;
        }
        let timeout = self.config.request_timeout();
        let before_ms = now_ms.checked_sub(timeout.as_millis() as u64);
        let (late, since_ms) =
            self.reads.with(|table| (before_ms.map(|before_ms| table.expire(before_ms)), table.unanswered_since_ms()));
        self.tell_of_unanswered(now_ms, since_ms);
        let Some(late) = late else { return };
        if late.is_unasked {
            static PACE: Pace = Pace::new();
            if let Some(left_out) = PACE.line() {
                logging::warn(
                    "timed out waiting for read index response (local node might have slow network)",
                    &[("timeout", Value::Shown(&format_args!("{timeout:?}"))), ("lines-left-out", left_out.into())],
                );
            }
            self.metrics.slow_read_indexes.fetch_add(1, Ordering::Relaxed);
        }
        self.end_reads(late.reads, Error::Timeout);
    }

    /// Says that reads wait for the leader, now and then for as long as they do.
    fn tell_of_unanswered(&self, now_ms: u64, since_ms: Option<u64>) {
        let Some(waited_ms) = since_ms.map(|since_ms| now_ms.saturating_sub(since_ms)) else { return };
        let last_ms = self.reads_told_ms.load(Ordering::Relaxed);
        if waited_ms < READ_INDEX_SLOW_MS || now_ms.saturating_sub(last_ms) < READ_INDEX_LINE_MS {
            return;
        }
        self.reads_told_ms.store(now_ms, Ordering::Relaxed);
        logging::warn(
            "waiting for ReadIndex response took too long, retrying",
            &[
                ("waited", Value::Shown(&format_args!("{waited_ms}ms"))),
                ("reads", self.reads.count().into()),
                ("retry-timeout", Value::Shown(&format_args!("{READ_INDEX_SLOW_MS}ms"))),
            ],
        );
    }

    /// Ends reads with an error.
    pub(super) fn end_reads(&self, reads: Vec<Read>, error: Error) {
        for read in reads {
            let is_refusal = error == Error::TooManyRequests;
            read(Err(if is_refusal { self.refuse(Class::Read) } else { error }));
        }
    }
}
