//! What the entries of one stride have written so far, before it is in the index.

use crate::types::{Loc, Version};
use api::KeyRange;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The newest staged version of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    pub(crate) version: Version,
    /// Whether the index, which knows nothing of the stride, has the key alive.
    live_in_index: bool,
    /// The pair of the revision before the one that has written the version.
    before: Option<Loc>,
}

/// Staged versions by key.
#[derive(Default)]
pub(crate) struct Overlay {
    staged: BTreeMap<Bytes, Staged>,
}

impl Overlay {
    pub(crate) fn clear(&mut self) {
        self.staged.clear();
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Version> {
        if self.staged.is_empty() { None } else { self.staged.get(key).map(|staged| staged.version) }
    }

    /// Notes a write. `previous` is what the key was before it, from here or from the index. Returns where the pair is as the revision
    /// before this one left it: a transaction may change a key twice.
    pub(crate) fn insert(&mut self, key: Bytes, version: Version, previous: Option<&Version>) -> Option<Loc> {
        let live = previous.filter(|previous| !previous.is_tombstone());
        let first = Staged { version, live_in_index: live.is_some(), before: live.map(|live| live.loc) };
        let staged = self.staged.entry(key).and_modify(|staged| {
            if staged.version.rev.main != version.rev.main {
                staged.before = first.before;
            }
            staged.version = version;
        });
        staged.or_insert(first).before
    }

    /// Staged keys of a range, in order, tombstones included.
    pub(crate) fn range<'a>(&'a self, range: KeyRange<'a>) -> impl Iterator<Item = (&'a Bytes, &'a Version)> {
        let bounds = (Bound::Included(range.start()), range.upper());
        let staged = if range.is_empty() { None } else { Some(self.staged.range::<[u8], _>(bounds)) };
        staged.into_iter().flatten().map(|(key, staged)| (key, &staged.version))
    }

    /// How many more keys of a range are alive here than in the index.
    pub(crate) fn live_delta(&self, range: KeyRange<'_>) -> i64 {
        if self.staged.is_empty() || range.is_empty() {
            return 0;
        }
        let staged = self.staged.range::<[u8], _>((Bound::Included(range.start()), range.upper()));
        staged.map(|(_, staged)| i64::from(!staged.version.is_tombstone()) - i64::from(staged.live_in_index)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Loc, Revision};

    fn version(main: i64, version: i64) -> Version {
        let loc = Loc { segment: 0, offset: main as u32, len: 0 };
        Version { rev: Revision { main, sub: 0 }, create: 1, version, loc }
    }

    #[test]
    fn a_pair_is_known_as_the_revision_before_left_it() {
        let mut overlay = Overlay::default();
        let mut before = |(main, number), previous: Option<(i64, i64)>| {
            let previous = previous.map(|(main, number)| version(main, number));
            let found = overlay.insert("key".into(), version(main, number), previous.as_ref());
            found.map(|loc| loc.offset)
        };
        // Deleted, put and deleted again by one revision; then put by the next.
        assert_eq!(before((5, 0), Some((4, 3))), Some(4));
        assert_eq!(before((5, 1), Some((5, 0))), Some(4));
        assert_eq!(before((5, 0), Some((5, 1))), Some(4));
        assert_eq!(before((6, 1), Some((5, 0))), None);
        assert_eq!(before((6, 2), Some((6, 1))), None);
        assert_eq!(before((7, 3), Some((6, 2))), Some(6));
    }

    #[test]
    fn counts_against_the_index() {
        let mut overlay = Overlay::default();
        let all = KeyRange::From(b"\0");
        overlay.insert("old".into(), version(5, 0), Some(&version(4, 1)));
        assert_eq!(overlay.live_delta(all), -1);
        overlay.insert("old".into(), version(6, 1), Some(&version(5, 0)));
        assert_eq!(overlay.live_delta(all), 0);
        overlay.insert("new".into(), version(7, 1), None);
        overlay.insert("gone".into(), version(8, 1), Some(&version(3, 0)));
        assert_eq!((overlay.live_delta(all), overlay.live_delta(KeyRange::One(b"new"))), (2, 1));
        assert_eq!(overlay.live_delta(KeyRange::Span(b"z", b"a")), 0);
        assert_eq!(overlay.range(KeyRange::Span(b"z", b"a")).count(), 0);
        assert_eq!(overlay.get(b"old").map(|version| version.rev.main), Some(6));
        assert_eq!(overlay.range(KeyRange::Span(b"h", b"p")).count(), 2);
    }
}
