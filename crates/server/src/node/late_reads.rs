//! Linearizable reads end in time, whatever they wait for.

use super::Node;
use super::inbox::Read;
use crate::overload::Class;
use api::Error;
use std::sync::atomic::Ordering;

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
        let timeout_ms = self.config.request_timeout().as_millis() as u64;
        let Some(before_ms) = now_ms.checked_sub(timeout_ms).filter(|_| self.reads.count() > 0) else { return };
        let late = self.reads.with(|table| table.expire(before_ms));
        if late.is_unasked {
            self.metrics.slow_read_indexes.fetch_add(1, Ordering::Relaxed);
        }
        self.end_reads(late.reads, Error::Timeout);
    }

    /// Ends reads with an error.
    pub(super) fn end_reads(&self, reads: Vec<Read>, error: Error) {
        for read in reads {
            let is_refusal = error == Error::TooManyRequests;
            read(Err(if is_refusal { self.refuse(Class::Read) } else { error }));
        }
    }
}
