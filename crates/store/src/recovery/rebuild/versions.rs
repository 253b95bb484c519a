//! The versions that a finished compaction leaves, out of all records that are still in the log.

use super::place::{Decoded, Places};
use super::sort::Item;
use super::{Share, Source};
use crate::log::record_bytes;
use crate::types::Version;

/// Records that are brought into the cache together.
const TOUCHED: usize = 32;

/// Yields what the index holds, sorted by key and revision, and accounts for live bytes.
pub(super) struct Versions<'a> {
    items: &'a [Item],
    /// The next of the items.
    at: usize,
    places: &'a Places<'a>,
    sources: &'a [Source],
    compact: i64,
    shares: &'a mut [Share],
    /// The first record of the next key.
    ahead: Option<(Item, Decoded<'a>)>,
    /// What is left of the current key, newest first.
    key: &'a [u8],
    left: Vec<Version>,
    rest: fn(),
}

impl<'a> Versions<'a> {
    pub(super) fn new(
        items: &'a [Item],
        places: &'a Places<'a>,
        sources: &'a [Source],
        compact: i64,
        shares: &'a mut [Share],
        rest: fn(),
    ) -> Versions<'a> {
        let mut versions =
            Versions { items, at: 0, places, sources, compact, shares, ahead: None, key: &[], left: Vec::new(), rest };
        versions.ahead = versions.read();
        versions
    }

    /// The next record.
    fn read(&mut self) -> Option<(Item, Decoded<'a>)> {
        let item = *self.items.get(self.at)?;
        if self.at.is_multiple_of(TOUCHED) {
            (self.rest)();
            self.places.touch(self.items[self.at..].iter().take(TOUCHED).map(Item::place));
        }
        self.at += 1;
        Some((item, self.places.decode(item.place())))
    }

    /// Gathers the versions of the next key. False at the end.
    fn load(&mut self) -> bool {
        let Some((item, first)) = self.ahead.take() else { return false };
        self.key = first.key;
        self.left.push(first.version);
        while let Some((next, decoded)) = self.read() {
            if !(item.may_share_key(&next) && decoded.key == self.key) {
                self.ahead = Some((next, decoded));
                break;
            }
            self.left.push(decoded.version);
        }
        self.drop_compacted();
        self.left.reverse();
        true
    }

    /// Drops what a read at the compaction's revision or later does not need: everything before the newest version of that
    /// time, and that one too if it is a tombstone from before.
    fn drop_compacted(&mut self) {
        let past = self.left.iter().take_while(|version| version.rev.main <= self.compact).count();
        let Some(newest) = past.checked_sub(1).and_then(|at| self.left.get(at)) else { return };
        let unneeded = newest.is_tombstone() && newest.rev.main < self.compact;
        let dropped = if unneeded { past } else { past - 1 };
        for version in self.left.drain(..dropped) {
            if version.is_tombstone() {
                let share = &mut self.shares[version.loc.segment as usize];
                share.graves += record_bytes(version.loc.len as usize) as u64;
            }
        }
    }
}

impl<'a> Iterator for Versions<'a> {
    type Item = (&'a [u8], Version);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(mut version) = self.left.pop() {
                let at = version.loc.segment as usize;
                self.shares[at].live += record_bytes(version.loc.len as usize) as u64;
                version.loc.segment = self.sources[at].entry.id;
                return Some((self.key, version));
            }
            if !self.load() {
                return None;
            }
        }
    }
}
