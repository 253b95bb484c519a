//! Linearizable reads that wait, behind a lock of their own: they end in time even when consensus is stuck in the store's disk.

use super::inbox::Read;
use contain::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The reads that wait.
#[derive(Default)]
pub(super) struct Reads {
    table: Mutex<replica::ReadIndex<Read>>,
    /// How many reads wait. Written under the lock; while it is 0, consensus need not take the lock.
    count: AtomicUsize,
}

impl Reads {
    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Calls `look` with the table under its lock. `look` must not run a read.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut replica::ReadIndex<Read>) -> T) -> T {
        let mut table = lock(&self.table);
        let found = look(&mut table);
        self.count.store(table.len(), Ordering::Relaxed);
        found
    }
}
