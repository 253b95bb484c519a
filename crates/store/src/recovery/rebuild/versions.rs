//! The versions that a finished compaction leaves, out of all records that are still in the log.

use super::{LeasedKeys, Share, Source};
use crate::index::{Loader, Part};
use crate::log::record_bytes;
use crate::types::Version;

/// Takes records sorted by key and revision, loads what the index holds of them, and accounts for live bytes.
pub(super) struct Versions<'a> {
    sources: &'a [Source],
    compact: i64,
    loader: Loader,
    shares: Vec<Share>,
    leased: LeasedKeys,
    /// The current key and its records so far, oldest first, each with its lease.
    key: Vec<u8>,
    records: Vec<(Version, i64)>,
}

/// A part of the index, and what belongs to it.
pub(super) struct Loaded {
    pub(super) part: Part,
    pub(super) shares: Vec<Share>,
    pub(super) leased: LeasedKeys,
}

impl<'a> Versions<'a> {
    pub(super) fn new(sources: &'a [Source], compact: i64) -> Versions<'a> {
        Versions {
            sources,
            compact,
            loader: Loader::default(),
            shares: sources.iter().map(|_| Share::default()).collect(),
            leased: LeasedKeys::default(),
            key: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Adds the next record. The version's place has the position of the segment in place of its id.
    pub(super) fn push(&mut self, key: &[u8], version: Version, lease: i64) {
        if key != self.key {
            self.close();
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        self.records.push((version, lease));
    }

    pub(super) fn finish(mut self) -> Loaded {
        self.close();
        Loaded { part: self.loader.finish(), shares: self.shares, leased: self.leased }
    }

    /// Loads the versions of the current key.
    fn close(&mut self) {
        self.drop_compacted();
        if let Some((version, lease)) = self.records.last()
            && *lease != 0
            && !version.is_tombstone()
        {
            self.leased.push(&self.key, *lease);
        }
        for (mut version, _) in self.records.drain(..) {
            let at = version.loc.segment as usize;
            self.shares[at].live += record_bytes(version.loc.len as usize) as u64;
            version.loc.segment = self.sources[at].entry.id;
            self.loader.push(&self.key, version);
        }
    }

    /// Drops what a read at the compaction's revision or later does not need: everything before the newest version of that
    /// time, and that one too if it is a tombstone from before.
    fn drop_compacted(&mut self) {
        let past = self.records.iter().take_while(|(version, _)| version.rev.main <= self.compact).count();
        let Some((newest, _)) = past.checked_sub(1).and_then(|at| self.records.get(at)) else { return };
        let unneeded = newest.is_tombstone() && newest.rev.main < self.compact;
        let dropped = if unneeded { past } else { past - 1 };
        for (version, _) in self.records.drain(..dropped) {
            if version.is_tombstone() {
                let share = &mut self.shares[version.loc.segment as usize];
                share.graves += record_bytes(version.loc.len as usize) as u64;
            }
        }
    }
}
