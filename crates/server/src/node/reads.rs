//! Linearizable reads that wait, behind a lock of their own: they end in time even when consensus is stuck in the store's disk.

use super::Node;
use super::inbox::Read;
use api::Error;
use contain::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The reads that wait.
#[derive(Default)]
pub(super) struct Reads {
    table: Mutex<replica::ReadIndex<Read>>,
    /// How many there are. Changes under the lock, and keeps consensus away from it while there are none.
    count: AtomicUsize,
}

impl Reads {
    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Looks at them under their lock. `look` must not run any of them.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut replica::ReadIndex<Read>) -> T) -> T {
        let mut table = lock(&self.table);
        let found = look(&mut table);
        self.count.store(table.len(), Ordering::Relaxed);
        found
    }

    /// Takes reads while consensus is stuck; more than may wait are refused.
    pub(super) fn add(&self, node: &Node, reads: Vec<Read>) {
        if reads.is_empty() {
            return;
        }
        let max = node.config.queues.of(crate::overload::Class::Read);
        let refused = self.with(|table| table.add(reads, max, node.now_ms()));
        node.end_reads(refused, Error::TooManyRequests);
    }

    /// Ends the reads whose time is over, whatever they wait for: a leader, its answer, or the store.
    pub(super) fn expire(&self, node: &Node, now_ms: u64) {
        let timeout_ms = node.config.request_timeout().as_millis() as u64;
        let Some(before_ms) = now_ms.checked_sub(timeout_ms).filter(|_| self.count() > 0) else { return };
        let late = self.with(|table| table.expire(before_ms));
        if late.is_unasked {
            node.metrics.slow_read_indexes.fetch_add(1, Ordering::Relaxed);
        }
        node.end_reads(late.reads, Error::Timeout);
    }
}

impl Node {
    /// Ends reads without an answer.
    pub(super) fn end_reads(&self, reads: Vec<Read>, error: Error) {
        for read in reads {
            let is_refusal = error == Error::TooManyRequests;
            read(Err(if is_refusal { self.refuse(crate::overload::Class::Read) } else { error }));
        }
    }
}
