//! The key index: every key with its versions, in order, in memory.
//!
//! An order-statistics B+tree. Each branch knows how many keys are below each child, and how many of them are *live* (newest version
//! not a tombstone), so counting a range costs two descents. Values are not here: a [`Version`] says where its bytes are in the revision log.
//!
//! A lock guards the tree, and readers hold it for short strides ([`Index::scan`] and [`Index::prune`] take an allowance). Readers ask
//! for a revision, and pass over later versions.

mod branch;
mod build;
mod entries;
mod entry;
mod fetch;
mod keys;
mod leaf;
mod node;
mod path;
mod prune;
mod scan;

#[cfg(test)]
mod check;
#[cfg(test)]
mod tests;

use api::KeyRange;

pub(crate) use build::{Loader, Part};
pub(crate) use fetch::FETCHED_TOGETHER;
pub(crate) use path::Path;
pub(crate) use scan::{NEWEST, Scan};

use crate::types::{Loc, Revision, Version};
use entries::Versions;
use keys::KeyBlock;
use node::{Node, Split};

/// All keys, live or not, with the versions that are not compacted away.
pub(crate) struct Index {
    root: Node,
    keys: usize,
    live: u64,
    /// Counts how often keys came or went: only then anything has another place.
    shape: u64,
}

impl Default for Index {
    fn default() -> Index {
        Index::new()
    }
}

impl Index {
    /// An index without keys.
    pub(crate) fn new() -> Index {
        Index { root: Node::empty(), keys: 0, live: 0, shape: 0 }
    }

    /// Adds a version, which must be newer than all versions of this key.
    pub(crate) fn push(&mut self, key: &[u8], version: Version) {
        assert!(!key.is_empty(), "a key is never empty");
        let pushed = self.root.push(key, version, true);
        self.keys += usize::from(pushed.inserted);
        self.shape += u64::from(pushed.inserted);
        self.live = node::adjusted(self.live, pushed.live);
        if let Some(Split { separator, right }) = pushed.split {
            let mut separators = KeyBlock::new();
            separators.insert(0, &separator);
            let left = std::mem::replace(&mut self.root, Node::empty());
            self.root = Node::branch(separators, vec![left, right]);
        }
    }

    /// The newest version, a tombstone included.
    pub(crate) fn latest(&self, key: &[u8]) -> Option<Version> {
        self.entry(key).map(|versions| versions.newest())
    }

    /// The version that a read at main revision `at` sees; `None` if the key did not exist then.
    pub(crate) fn get(&self, key: &[u8], at: i64) -> Option<Version> {
        self.entry(key)?.at(at)
    }

    /// The version written at exactly `rev`, a tombstone included.
    pub(crate) fn version_at(&self, key: &[u8], rev: Revision) -> Option<Version> {
        self.entry(key)?.exact(rev)
    }

    /// How many keys of `range` are live now.
    pub(crate) fn count_live(&self, range: KeyRange<'_>) -> u64 {
        match range {
            KeyRange::One(key) => self.entry(key).is_some_and(|versions| versions.is_live()).into(),
            KeyRange::Span(start, end) => self.root.rank(end).live.saturating_sub(self.root.rank(start).live),
            KeyRange::From(start) => self.live - self.root.rank(start).live,
        }
    }

    /// How many keys of `range` a walk looks at: those that are not live too.
    pub(crate) fn count_keys(&self, range: KeyRange<'_>) -> u64 {
        match range {
            KeyRange::One(_) => 1,
            KeyRange::Span(start, end) => self.root.rank(end).keys.saturating_sub(self.root.rank(start).keys),
            KeyRange::From(start) => self.keys as u64 - self.root.rank(start).keys,
        }
    }

    /// How many keys of `range` a walk looks at until it has come to so many live ones: those that are not live too.
    pub(crate) fn count_keys_until(&self, range: KeyRange<'_>, live: u64) -> u64 {
        let before = self.root.rank(range.start());
        let until = self.root.keys_until(before.live.saturating_add(live));
        until.saturating_sub(before.keys).min(self.count_keys(range))
    }

    /// Notes that the version of `key` written at `rev` has been moved to `loc`; false if it is no longer here.
    pub(crate) fn relocate(&mut self, key: &[u8], rev: Revision, loc: Loc) -> bool {
        let leaf = self.root.leaf_of_mut(key);
        let Ok(at) = leaf.keys.find(key) else { return false };
        leaf.entries.relocate(at, rev, loc)
    }

    /// Number of keys, those whose newest version is a tombstone included.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    /// Number of live keys.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    fn entry(&self, key: &[u8]) -> Option<Versions<'_>> {
        self.root.leaf_of(key).find(key)
    }
}
