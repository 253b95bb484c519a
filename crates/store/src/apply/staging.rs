//! The store with the writes of the stride that is being applied.

use super::overlay::Overlay;
use crate::index::{NEWEST, Path, Scan};
use crate::log::{Log, read};
use crate::mistake::Mistake;
use crate::read::{View, Visit};
use crate::store::Store;
use crate::types::{Loc, Version};
use api::KeyRange;
use api::limits::READ_STRIDE_KEYS;
use std::ops::ControlFlow;

/// What an entry reads while it is applied.
pub(crate) struct Staging<'a> {
    pub(crate) store: &'a Store,
    pub(crate) overlay: &'a Overlay,
    pub(crate) log: &'a Log,
    /// The revision being written, or the last one written.
    pub(crate) current: i64,
    pub(crate) compact: i64,
}

impl Staging<'_> {
    /// The newest version of a key, a tombstone included.
    pub(crate) fn latest(&self, key: &[u8]) -> Option<Version> {
        self.latest_on(None, key)
    }

    /// The same of a key to which the way may be known.
    pub(crate) fn latest_on(&self, path: Option<Path>, key: &[u8]) -> Option<Version> {
        self.overlay.get(key).or_else(|| read(&self.store.index).latest_on(path, key))
    }

    /// Visits what is in the index. Nothing else publishes revisions or moves the compact revision meanwhile, so no pin is needed.
    fn scan_index(&self, range: KeyRange<'_>, at: i64, visit: Visit<'_>) {
        let mut after: Option<Box<[u8]>> = None;
        loop {
            let end = read(&self.store.index).scan(range, at, after.as_deref(), READ_STRIDE_KEYS, &mut *visit);
            let Scan::More(last) = end else { return };
            after = Some(last);
        }
    }
}

impl View for Staging<'_> {
    fn current(&self) -> i64 {
        self.current
    }

    fn compact_revision(&self) -> i64 {
        self.compact
    }

    fn scan(&self, range: KeyRange<'_>, at: i64, visit: Visit<'_>) {
        if range.is_empty() {
            return;
        }
        if at < self.current {
            // The applier commits what a request names before it lets the request read it.
            assert!(at <= self.store.revision(), "revision {at} is read before it is installed");
            return self.scan_index(range, at, visit);
        }
        if let KeyRange::One(key) = range {
            if let Some(version) = self.latest(key).filter(|version| !version.is_tombstone()) {
                let _ = visit(key, &version);
            }
            return;
        }
        let mut staged = self.overlay.range(range).peekable();
        let mut stopped = false;
        self.scan_index(range, NEWEST, &mut |key, version| {
            while let Some((staged_key, staged_version)) = staged.next_if(|(staged_key, _)| staged_key[..] <= *key) {
                let is_key = staged_key == key;
                if !staged_version.is_tombstone() && visit(staged_key, staged_version).is_break() {
                    stopped = true;
                    return ControlFlow::Break(());
                }
                let shows_deleted = Mistake::SeesKeysDeletedInStride.is_planted() && staged_version.is_tombstone();
                if is_key && !shows_deleted {
                    return ControlFlow::Continue(());
                }
            }
            let flow = visit(key, version);
            stopped = flow.is_break();
            flow
        });
        if !stopped {
            let live = staged.filter(|(_, version)| !version.is_tombstone());
            let _ = live.map(|(key, version)| visit(key, version)).find(ControlFlow::is_break);
        }
    }

    fn count(&self, range: KeyRange<'_>, at: i64) -> Option<u64> {
        let installed = self.store.revision();
        if at < self.current && at != installed {
            return None;
        }
        let count = read(&self.store.index).count_live(range);
        let delta = if at < self.current { 0 } else { self.overlay.live_delta(range) };
        Some(count.saturating_add_signed(delta))
    }

    fn stored<R>(&self, loc: Loc, read: impl FnOnce(&[u8]) -> R) -> R {
        match self.log.pending(loc) {
            Some(bytes) => read(bytes),
            None => self.store.segments.with(loc, read),
        }
    }
}
