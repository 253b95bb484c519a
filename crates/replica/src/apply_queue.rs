//! Committed entries between consensus and the store: applied in place, or queued for the thread that applies.
//!
//! The thread that takes the turn of consensus applies a few entries itself: handing them over would cost more. More entries are
//! queued, so that the next batch can be written to the log meanwhile. Once something is queued or being applied, all later entries are
//! queued too.
//!
//! The caller applies what [`ApplyQueue::offer`] gives back at once, and has its apply thread take [`ApplyQueue::take`], apply it, and
//! report [`ApplyQueue::done`].

use api::raftpb::Entry;
use std::collections::VecDeque;

/// Batches up to this size are applied in place when nothing is being applied.
pub const APPLY_IN_PLACE_ENTRIES_MAX: usize = 16;
/// A batch that waits takes in more entries up to this size: the apply thread may be behind by millions. In one batch, these would be copied
/// whenever it grows, while consensus waits, and reads of what came first would wait for what came last.
const BATCH_ENTRIES_MAX: usize = 8_192;
/// The same in bytes of their data.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// Committed entries that wait to be applied. `T` is a point in time.
pub struct ApplyQueue<T> {
    in_place_entries_max: usize,
    batches: VecDeque<Batch<T>>,
    /// Bytes of all that wait.
    bytes: usize,
    is_busy: bool,
    /// Whether consensus waits until the queue is idle.
    is_awaited: bool,
}

struct Batch<T> {
    entries: Vec<Entry>,
    /// When its first entry was committed.
    since: T,
    bytes: usize,
}

impl<T> Batch<T> {
    fn has_room_for(&self, entries: usize, bytes: usize) -> bool {
        self.entries.len().saturating_add(entries) <= BATCH_ENTRIES_MAX
            && self.bytes.saturating_add(bytes) <= BATCH_BYTES_MAX
    }
}

impl<T> ApplyQueue<T> {
    /// An empty queue.
    pub fn new(in_place_entries_max: usize) -> ApplyQueue<T> {
        ApplyQueue { in_place_entries_max, batches: VecDeque::new(), bytes: 0, is_busy: false, is_awaited: false }
    }

    /// Queues committed entries, or returns them for applying in place.
    pub fn offer(&mut self, mut entries: Vec<Entry>, now: impl FnOnce() -> T) -> Option<Vec<Entry>> {
        if entries.len() <= self.in_place_entries_max && self.is_idle() {
            return Some(entries);
        }
        let bytes = entries.iter().map(|entry| entry.data().len()).sum();
        self.bytes = self.bytes.saturating_add(bytes);
        match self.batches.back_mut() {
            Some(last) if last.has_room_for(entries.len(), bytes) => {
                last.entries.append(&mut entries);
                last.bytes = last.bytes.saturating_add(bytes);
            }
            _ => self.batches.push_back(Batch { entries, since: now(), bytes }),
        }
        None
    }

    /// The next batch, and since when it has been waiting. The batch counts as being applied until
    /// [`ApplyQueue::done`].
    pub fn take(&mut self) -> Option<(Vec<Entry>, T)> {
        let batch = self.batches.pop_front()?;
        self.bytes = self.bytes.saturating_sub(batch.bytes);
        self.is_busy = true;
        Some((batch.entries, batch.since))
    }

    /// Notes that the batch is applied. Returns whether the queue is idle now and consensus waits for that.
    pub fn done(&mut self) -> bool {
        self.is_busy = false;
        self.batches.is_empty() && std::mem::take(&mut self.is_awaited)
    }

    /// Whether no entry waits to be applied or is being applied.
    pub fn is_idle(&self) -> bool {
        self.batches.is_empty() && !self.is_busy
    }

    /// Like [`ApplyQueue::is_idle`]. If the queue is not idle, [`ApplyQueue::done`] returns true when it is.
    pub fn is_idle_or_tells(&mut self) -> bool {
        self.is_awaited = !self.is_idle();
        !self.is_awaited
    }

    /// Bytes of the entries that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: u64) -> Vec<Entry> {
        (1..=count).map(|index| Entry { index: Some(index), data: Some("data".into()), ..Entry::default() }).collect()
    }

    #[test]
    fn a_few_are_applied_in_place_unless_something_is_before_them() {
        let mut queue = ApplyQueue::new(2);
        assert_eq!(queue.offer(entries(2), || 1).map(|entries| entries.len()), Some(2));
        assert!(queue.offer(entries(3), || 2).is_none());
        assert!(queue.offer(entries(1), || 3).is_none(), "the others come first");
        assert_eq!((queue.bytes(), queue.is_idle()), (16, false));
        let (batch, since) = queue.take().expect("a batch");
        assert_eq!((batch.len(), since, queue.bytes()), (4, 2, 0));
        assert!(queue.offer(entries(1), || 4).is_none(), "they are being applied");
        assert!(!queue.is_idle_or_tells());
        assert!(!queue.done(), "one is left");
        assert!(queue.take().is_some() && queue.done(), "consensus is told");
        assert!(queue.is_idle_or_tells());
        assert!(queue.offer(entries(1), || 5).is_some());
    }

    #[test]
    fn a_batch_that_waits_grows_up_to_a_size() {
        let mut queue = ApplyQueue::new(2);
        let half = BATCH_ENTRIES_MAX as u64 / 2;
        for now in 1..=3 {
            assert!(queue.offer(entries(half), || now).is_none());
        }
        assert!(queue.offer(entries(2 * half + 1), || 4).is_none(), "they come as one batch");
        assert_eq!(queue.bytes() as u64, 4 * (5 * half + 1));
        let mut left = 5 * half + 1;
        for (count, since) in [(2 * half, 1), (half, 3), (2 * half + 1, 4)] {
            let (batch, waits_since) = queue.take().expect("a batch");
            left -= count;
            assert_eq!((batch.len() as u64, waits_since, queue.bytes() as u64), (count, since, 4 * left));
            assert!(!queue.done());
        }
        assert!(queue.is_idle());
        let large = || vec![Entry { data: Some(vec![0; BATCH_BYTES_MAX / 2].into()), ..Entry::default() }; 2];
        assert!(queue.offer(entries(3), || 5).is_none() && queue.offer(large(), || 6).is_none());
        assert!(queue.offer(large(), || 7).is_none());
        let batches: Vec<_> = std::iter::from_fn(|| queue.take()).map(|(batch, since)| (batch.len(), since)).collect();
        assert_eq!((batches, queue.bytes()), (vec![(3, 5), (2, 6), (2, 7)], 0));
    }
}
