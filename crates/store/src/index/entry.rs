//! The versions of one key.

use std::collections::VecDeque;
use std::slice;

use crate::mistake::Mistake;
use crate::types::{Loc, Revision, Version};

/// Older versions in one allocation. Bounds what a push copies and what a reader's search touches, even for a key with a million
/// versions.
const CHUNK: usize = 128;

/// A [`Version`] without the padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    main: i64,
    create: i64,
    version: i64,
    sub: u32,
    segment: u32,
    offset: u32,
    len: u32,
}

impl Packed {
    fn new(version: Version) -> Packed {
        let Version { rev, create, version, loc } = version;
        let Loc { segment, offset, len } = loc;
        Packed { main: rev.main, create, version, sub: rev.sub, segment, offset, len }
    }

    fn rev(&self) -> Revision {
        Revision { main: self.main, sub: self.sub }
    }

    fn loc(&self) -> Loc {
        Loc { segment: self.segment, offset: self.offset, len: self.len }
    }

    fn unpack(&self) -> Version {
        Version { rev: self.rev(), create: self.create, version: self.version, loc: self.loc() }
    }
}

/// All versions of a key that has several, or one with a large number in it: the newest in place, the older ones behind a pointer.
pub(super) struct Entry {
    newest: Packed,
    older: Option<Box<History>>,
}

/// What [`Entry::prune`] did.
pub(super) struct Pruned {
    /// Versions looked at or dropped, at least one.
    pub(super) visited: usize,
    /// Nothing more to drop from this key.
    pub(super) finished: bool,
    /// No version is left: the key goes.
    pub(super) emptied: bool,
}

impl Entry {
    pub(super) fn new(version: Version) -> Entry {
        Entry { newest: Packed::new(version), older: None }
    }

    pub(super) fn push(&mut self, version: Version) {
        assert!(version.rev > self.newest.rev(), "a version is not newer than those before it");
        let older = std::mem::replace(&mut self.newest, Packed::new(version));
        self.older.get_or_insert_default().push(older);
    }

    pub(super) fn newest(&self) -> Version {
        self.newest.unpack()
    }

    /// The newest version, if there is no other.
    pub(super) fn only(&self) -> Option<Version> {
        self.older.is_none().then(|| self.newest())
    }

    pub(super) fn is_live(&self) -> bool {
        self.newest.version != 0
    }

    /// The live version at main revision `at`.
    pub(super) fn at(&self, at: i64) -> Option<Version> {
        self.last(|packed| packed.main <= at)
    }

    /// The version written at exactly `rev`, tombstone or not.
    pub(super) fn exact(&self, rev: Revision) -> Option<Version> {
        let packed = if self.newest.rev() <= rev {
            &self.newest
        } else {
            self.older.as_ref()?.last(|packed| packed.rev() <= rev)?
        };
        (packed.rev() == rev).then(|| packed.unpack())
    }

    /// Changes where the version of `rev` is stored; false if there is no such version.
    pub(super) fn relocate(&mut self, rev: Revision, loc: Loc) -> bool {
        let found = if self.newest.rev() == rev {
            Some(&mut self.newest)
        } else {
            self.older.as_mut().and_then(|older| older.exact_mut(rev))
        };
        let Some(packed) = found else { return false };
        (packed.segment, packed.offset, packed.len) = (loc.segment, loc.offset, loc.len);
        true
    }

    /// Drops at most `max` versions that no read at `compact` or later needs, oldest first.
    pub(super) fn prune(&mut self, compact: i64, max: usize, dead: &mut dyn FnMut(Loc, bool)) -> Pruned {
        let mut visited = 0;
        while let Some(older) = &mut self.older {
            let due = older.due(compact, self.newest.main);
            let take = due.min(max - visited);
            older.drop_front(take, dead);
            visited += take;
            if older.is_empty() {
                self.older = None;
            }
            if take < due || (take > 0 && visited == max) {
                // `take == due` may be the end as well, but finding out would be one visit more.
                return Pruned { visited, finished: false, emptied: false };
            }
            if take == 0 {
                break;
            }
        }
        let newest = &self.newest;
        let emptied = self.older.is_none() && unneeded(newest, compact);
        if emptied {
            dead(newest.loc(), true);
        }
        Pruned { visited: visited + 1, finished: true, emptied }
    }

    fn last(&self, is_old: impl Fn(&Packed) -> bool) -> Option<Version> {
        let packed = if is_old(&self.newest) { &self.newest } else { self.older.as_ref()?.last(is_old)? };
        (packed.version != 0).then(|| packed.unpack())
    }

    /// Fetches where the older versions are.
    pub(super) fn fetch_older(&self) {
        if let Some(older) = &self.older {
            disk::fetch(slice::from_ref(&**older));
        }
    }

    /// Fetches the last of the older versions, which the next one follows.
    pub(super) fn fetch_last(&self) {
        if let Some(older) = &self.older {
            disk::fetch(older.recent.last().map_or(&[], slice::from_ref));
        }
    }

    /// All versions, oldest first.
    #[cfg(test)]
    pub(super) fn versions(&self) -> Vec<Version> {
        let older = self.older.iter().flat_map(|older| older.full.iter().flat_map(|full| full.iter().flatten()));
        let recent = self.older.iter().flat_map(|older| older.recent.iter());
        older.chain(recent).chain([&self.newest]).map(Packed::unpack).collect()
    }
}

/// A tombstone older than the compaction says nothing that a missing key does not. One at exactly that revision stays, for
/// a watcher that starts there.
fn unneeded(packed: &Packed, compact: i64) -> bool {
    packed.version == 0 && (packed.main < compact || Mistake::CompactsDeletes.is_planted() && packed.main == compact)
}

/// Older versions, oldest first: full chunks, then the chunk being filled. Never empty while an entry holds it.
#[derive(Default)]
struct History {
    #[allow(
        clippy::box_collection,
        reason = "few keys have this many versions, and the pointer is a third of the deque"
    )]
    full: Option<Box<VecDeque<Vec<Packed>>>>,
    recent: Vec<Packed>,
}

impl History {
    fn push(&mut self, packed: Packed) {
        if self.recent.len() == CHUNK {
            self.full.get_or_insert_default().push_back(std::mem::take(&mut self.recent));
        }
        if self.recent.capacity() == 0 {
            self.recent.reserve_exact(1);
        }
        self.recent.push(packed);
    }

    fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    /// The newest for which `is_old` holds; it holds for a front part of the history.
    fn last(&self, is_old: impl Fn(&Packed) -> bool) -> Option<&Packed> {
        let mut chunk = &self.recent;
        if let Some(full) = &self.full
            && !chunk.first().is_some_and(&is_old)
        {
            let after = full.partition_point(|chunk| chunk.first().is_some_and(&is_old));
            chunk = full.get(after.checked_sub(1)?)?;
        }
        let after = chunk.partition_point(is_old);
        chunk.get(after.checked_sub(1)?)
    }

    fn exact_mut(&mut self, rev: Revision) -> Option<&mut Packed> {
        let mut chunk = &mut self.recent;
        if let Some(full) = &mut self.full
            && chunk.first().is_none_or(|first| first.rev() > rev)
        {
            let after = full.partition_point(|chunk| chunk.first().is_some_and(|first| first.rev() <= rev));
            chunk = full.get_mut(after.checked_sub(1)?)?;
        }
        let at = chunk.binary_search_by_key(&rev, Packed::rev).ok()?;
        chunk.get_mut(at)
    }

    /// How many versions at the front of the oldest chunk a compaction drops; `newest` is the revision after the history's last.
    fn due(&self, compact: i64, newest: i64) -> usize {
        let (oldest, next) = match &self.full {
            Some(full) => (&full[0], full.get(1).unwrap_or(&self.recent).first()),
            None => (&self.recent, None),
        };
        let old = oldest.partition_point(|packed| packed.main <= compact);
        let next = next.map_or(newest, |packed| packed.main);
        match old.checked_sub(1) {
            None => 0,
            Some(_) if old == oldest.len() && next <= compact => old,
            Some(kept) => kept + usize::from(unneeded(&oldest[kept], compact)),
        }
    }

    /// Drops `n` versions of the oldest chunk.
    fn drop_front(&mut self, n: usize, dead: &mut dyn FnMut(Loc, bool)) {
        let oldest = match &mut self.full {
            Some(full) => &mut full[0],
            None => &mut self.recent,
        };
        oldest.drain(..n).for_each(|packed| dead(packed.loc(), packed.version == 0));
        if let Some(full) = &mut self.full {
            if full[0].is_empty() {
                full.pop_front();
            }
            if full.is_empty() {
                self.full = None;
            }
        }
    }
}
