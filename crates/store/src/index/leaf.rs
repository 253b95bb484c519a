//! The lowest level of the tree: keys with their versions.

use super::entries::{Entries, Versions, low_bits};
use super::keys::{self, HEAP_BYTES_MAX, KEYS_MAX, KeyBlock};
use super::node::{JOINED_MAX, Node, Pushed, Split};
use crate::types::Version;

/// Up to [`KEYS_MAX`] keys and their versions.
pub(super) struct Leaf {
    /// Bit i: the newest version of key i is not a tombstone.
    live: u64,
    pub(super) keys: KeyBlock,
    pub(super) entries: Entries,
}

impl Leaf {
    /// A leaf of these keys, which are as many as the entries.
    pub(super) fn new(keys: KeyBlock, entries: Entries) -> Leaf {
        assert!(keys.len() == entries.len(), "a leaf needs one entry per key");
        let live = entries.iter().enumerate().map(|(i, entry)| u64::from(entry.is_live()) << i).sum();
        Leaf { live, keys, entries }
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<Versions<'_>> {
        self.keys.find(key).ok().map(|at| self.entries.get(at))
    }

    /// Live keys.
    pub(super) fn live(&self) -> u64 {
        self.live.count_ones().into()
    }

    /// Which keys are live, a bit each.
    pub(super) fn live_bits(&self) -> u64 {
        self.live
    }

    /// Whether the newest version of key `at` is not a tombstone.
    pub(super) fn is_live(&self, at: usize) -> bool {
        self.live >> at & 1 == 1
    }

    /// Keys up to the `n`th live one, and with it; all of them if fewer are live.
    pub(super) fn keys_until(&self, n: u64) -> u64 {
        let mut live = self.live;
        (1..n.min(KEYS_MAX as u64 + 1)).for_each(|_| live &= live.saturating_sub(1));
        if live == 0 { self.entries.len() as u64 } else { u64::from(live.trailing_zeros()) + 1 }
    }

    /// Live keys before position `at`.
    pub(super) fn live_before(&self, at: usize) -> u64 {
        (self.live & low_bits(at)).count_ones().into()
    }

    /// Adds a version. `is_last` says that no leaf follows this one.
    pub(super) fn push(&mut self, key: &[u8], version: Version, is_last: bool) -> Pushed {
        let is_live = !version.is_tombstone();
        let at = match self.keys.find(key) {
            Ok(at) => {
                self.entries.push(at, version);
                let was_live = self.is_live(at);
                self.live = self.live & !(1 << at) | u64::from(is_live) << at;
                return Pushed { live: i64::from(is_live) - i64::from(was_live), inserted: false, split: None };
            }
            Err(at) => at,
        };
        let split = match self.cut_for(at, key, is_last) {
            None => {
                self.insert(at, key, version);
                None
            }
            Some(cut) => {
                let mut right = self.split_off(cut);
                if at < cut || cut == 0 {
                    self.insert(at, key, version);
                } else {
                    right.insert(at - cut, key, version);
                }
                let separator = keys::separator(self.keys.parts(self.keys.len() - 1), right.keys.parts(0));
                Some(Split { separator, right: Node::Leaf(Box::new(right)) })
            }
        };
        Pushed { live: is_live.into(), inserted: true, split }
    }

    /// Keeps the keys whose bit is set in `mask`.
    pub(super) fn retain(&mut self, mask: u64) {
        let (mut live, mut kept) = (0, 0);
        for i in (0..self.entries.len()).filter(|i| mask >> i & 1 == 1) {
            live |= (self.live >> i & 1) << kept;
            kept += 1;
        }
        self.live = live;
        self.entries.retain(mask);
        self.keys.retain(mask);
    }

    /// Takes over all of `right`, the leaf after this one, if that leaves room in the joined leaf.
    pub(super) fn join(&mut self, right: &mut Leaf) -> bool {
        let Some(keys) = self.keys.join(None, &right.keys, JOINED_MAX) else { return false };
        self.live |= right.live << self.entries.len();
        self.entries.append(&mut right.entries);
        self.keys = keys;
        true
    }

    /// Where this leaf must be cut before `key` can go to position `at`; `None` if there is room.
    fn cut_for(&self, at: usize, key: &[u8], is_last: bool) -> Option<usize> {
        let len = self.keys.len();
        if len > 0 && self.keys.bytes_with(key) > HEAP_BYTES_MAX {
            // A key outside the prefix lies before or after all others. It gets a leaf of its own rather than unpack their prefix.
            let is_outside = !key.starts_with(self.keys.prefix());
            return Some(if is_outside || len == 1 { at } else { self.keys.middle() });
        }
        // Keys that arrive in order leave full leaves behind.
        (len == KEYS_MAX).then_some(if is_last && at == len { len } else { len / 2 })
    }

    fn insert(&mut self, at: usize, key: &[u8], version: Version) {
        self.keys.insert(at, key);
        self.entries.insert(at, version);
        let low = low_bits(at);
        self.live = self.live & low | (self.live & !low) << 1 | u64::from(!version.is_tombstone()) << at;
    }

    fn split_off(&mut self, at: usize) -> Leaf {
        let right = Leaf::new(self.keys.slice(at, self.keys.len()), self.entries.split_off(at));
        self.keys = self.keys.slice(0, at);
        self.live &= low_bits(at);
        right
    }
}
