//! Revisions that readers still need: pruning waits for the oldest.

use crate::log::lock;
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The pinned revisions and how many readers pin each.
#[derive(Default)]
pub(crate) struct Pins {
    counts: Mutex<BTreeMap<i64, usize>>,
}

/// Keeps every version that a read at this revision needs until it is dropped. A reader that pins must check the compact revision
/// *after* pinning: pruning looks at the pins after the compact revision moved.
pub(crate) struct Pin<'a> {
    pins: &'a Pins,
    revision: i64,
}

impl Pins {
    pub(crate) fn pin(&self, revision: i64) -> Pin<'_> {
        self.add(revision);
        Pin { pins: self, revision }
    }

    fn add(&self, revision: i64) {
        *lock(&self.counts).entry(revision).or_insert(0) += 1;
    }

    fn unpin(&self, revision: i64) {
        let mut counts = lock(&self.counts);
        let Some(count) = counts.get_mut(&revision) else { panic!("revision {revision} is not pinned") };
        *count -= 1;
        if *count == 0 {
            counts.remove(&revision);
        }
    }

    /// The oldest pinned revision.
    pub(crate) fn oldest(&self) -> Option<i64> {
        lock(&self.counts).keys().next().copied()
    }
}

/// A pin that goes with the store it pins.
pub(crate) struct OwnedPin {
    store: Arc<Store>,
    revision: i64,
}

impl OwnedPin {
    pub(crate) fn new(store: &Arc<Store>, revision: i64) -> OwnedPin {
        store.pins.add(revision);
        OwnedPin { store: Arc::clone(store), revision }
    }
}

impl Drop for OwnedPin {
    fn drop(&mut self) {
        self.store.pins.unpin(self.revision);
    }
}

impl Pin<'_> {
    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.pins.unpin(self.revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_pin_counts_until_its_last_reader_is_gone() {
        let pins = Pins::default();
        let (first, second, newer) = (pins.pin(3), pins.pin(3), pins.pin(9));
        drop(first);
        assert_eq!(pins.oldest(), Some(3));
        drop(second);
        assert_eq!(pins.oldest(), Some(9));
        drop(newer);
        assert_eq!(pins.oldest(), None);
    }
}
