//! How far the store is, and a read that waits for it.

use crate::mistake::Mistake;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The index that was applied last. Whoever applies sets it, anybody reads it, and consensus may wait for one index.
#[derive(Default)]
pub struct Applied {
    applied: AtomicU64,
    /// The least index that a read waits for, one more than itself so that 0 is nobody.
    awaited: AtomicU64,
}

impl Applied {
    /// Notes what was applied; answers whether a read waits for it.
    pub fn set(&self, index: u64) -> bool {
        self.applied.store(index, Ordering::SeqCst);
        let awaited = self.awaited.load(Ordering::SeqCst);
        awaited != 0 && awaited <= index + 1
    }

    /// Has [`Applied::set`] tell when it gets to `index`, if there is one. `false` when it is there already.
    pub fn wait_for(&self, index: Option<u64>) -> bool {
        let early = Mistake::LooksBeforeAwaiting.is_planted().then(|| self.index());
        self.awaited.store(index.map_or(0, |index| index + 1), Ordering::SeqCst);
        index.is_none_or(|index| early.unwrap_or_else(|| self.applied.load(Ordering::SeqCst)) < index)
    }

    /// The index that was applied last.
    pub fn index(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }
}
