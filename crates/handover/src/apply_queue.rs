//! Committed entries on their way from consensus to the apply thread. [`ApplyQueue`] decides which go there.

use crate::mistake::Mistake;
use crate::sync::{Condvar, Mutex, lock};
use api::raftpb::Entry;
use replica::ApplyQueue;
use std::sync::PoisonError;

/// An [`ApplyQueue`] that consensus fills and the apply thread empties. `T` is a point in time.
pub struct SharedApplyQueue<T> {
    queue: Mutex<Queue<T>>,
    /// The apply thread waits for a batch.
    wake: Condvar,
    /// Consensus waits for there to be nothing left.
    idle: Condvar,
}

struct Queue<T> {
    /// With the time since when the first entry of a batch was committed.
    entries: ApplyQueue<T>,
    stop: bool,
}

impl<T> SharedApplyQueue<T> {
    /// An empty queue; up to so many entries are applied in place.
    pub fn new(in_place_entries_max: usize) -> SharedApplyQueue<T> {
        SharedApplyQueue {
            queue: Mutex::new(Queue { entries: ApplyQueue::new(in_place_entries_max), stop: false }),
            wake: Condvar::new(),
            idle: Condvar::new(),
        }
    }

    /// Queues what was committed, or gives it back to be applied in place, before anything else is offered.
    pub fn offer(&self, entries: Vec<Entry>, now: impl FnOnce() -> T) -> Option<Vec<Entry>> {
        let in_place = lock(&self.queue).entries.offer(entries, now);
        if in_place.is_none() {
            self.wake.notify_one();
        }
        in_place
    }

    /// Bytes of the entries that wait.
    pub fn bytes(&self) -> usize {
        lock(&self.queue).entries.bytes()
    }

    /// Whether nothing waits to be applied, nor is being applied.
    pub fn is_idle(&self) -> bool {
        lock(&self.queue).entries.is_idle()
    }

    /// The same. If it is not, the `tell` of [`SharedApplyQueue::run`] is called when that has changed.
    pub fn is_idle_or_tells(&self) -> bool {
        lock(&self.queue).entries.is_idle_or_tells()
    }

    /// Waits until everything is applied.
    pub fn wait_idle(&self) {
        let mut queue = lock(&self.queue);
        while !queue.entries.is_idle() {
            queue = self.idle.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has [`SharedApplyQueue::run`] return once everything is applied.
    pub fn stop(&self) {
        lock(&self.queue).stop = true;
        self.wake.notify_one();
    }

    /// The apply thread: has `apply` called with each batch and the time since when it has been waiting.
    pub fn run(&self, mut apply: impl FnMut(Vec<Entry>, T), tell: impl Fn()) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some((entries, since)) = queue.entries.take() {
                if Mistake::DoneBeforeApplied.is_planted() {
                    queue.entries.done();
                }
                drop(queue);
                apply(entries, since);
                queue = lock(&self.queue);
                let is_awaited = queue.entries.done();
                self.idle.notify_all();
                if is_awaited {
                    tell();
                }
            } else if queue.stop {
                return;
            } else {
                if Mistake::ApplierSleepsAfterLook.is_planted() {
                    drop(queue);
                    queue = lock(&self.queue);
                }
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
