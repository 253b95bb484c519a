//! The published store, as one read sees it.

use super::view::{View, Visit};
use crate::index::{Index, NEWEST, Scan};
use crate::log::RwLockReadGuard;
use crate::log::read;
use crate::store::Store;
use crate::types::Loc;
use crate::upkeep::Pin;
use api::KeyRange;
use api::limits::READ_STRIDE_KEYS;
use std::cell::{Cell, RefCell};

/// A read of the published store at the revision it had when the read began.
///
/// A short read holds the index lock throughout, so that counts come from the tree. After a stride of keys it pins what it needs, and
/// continues in strides that filter by revision.
pub(crate) struct ReadView<'a> {
    store: &'a Store,
    current: i64,
    compact: i64,
    generation: u64,
    /// A snapshot was installed that no longer has what the read needs.
    overtaken: Cell<bool>,
    guard: RefCell<Option<RwLockReadGuard<'a, Index>>>,
    /// Asked between two strides whether to go on.
    wanted: &'a dyn Fn() -> bool,
    /// The client no longer wants the answer.
    given_up: Cell<bool>,
    /// Keys that may still be looked at under this hold of the lock.
    left: Cell<usize>,
    pins: RefCell<Vec<Pin<'a>>>,
}

impl<'a> ReadView<'a> {
    pub(crate) fn open(store: &'a Store) -> ReadView<'a> {
        ReadView::open_while(store, &|| true)
    }

    /// The same for a read that is given up once it is not `wanted`.
    pub(crate) fn open_while(store: &'a Store, wanted: &'a dyn Fn() -> bool) -> ReadView<'a> {
        let guard = read(&store.index);
        // Revisions are published under the write lock: this one is what the index holds.
        let (current, compact) = (store.revision(), store.compact_revision());
        ReadView {
            store,
            current,
            compact,
            generation: store.generation(),
            overtaken: Cell::new(false),
            wanted,
            given_up: Cell::new(false),
            guard: RefCell::new(Some(guard)),
            left: Cell::new(READ_STRIDE_KEYS),
            pins: RefCell::default(),
        }
    }

    /// Keeps revision `at`, which is readable now, readable after the lock is released.
    pub(crate) fn pin(&self, at: i64) {
        assert!(self.guard.borrow().is_some(), "a read pins while it holds the index");
        self.pins.borrow_mut().push(self.store.pins.pin(at));
    }

    /// Lets go of the index once a stride of keys was looked at.
    fn pause(&self, at: i64) {
        self.left.set(READ_STRIDE_KEYS);
        let needed = at.min(self.current);
        if !self.pins.borrow().iter().any(|pin| pin.revision() <= needed) {
            self.pin(needed);
        }
        self.guard.take();
        if !(self.wanted)() {
            self.given_up.set(true);
        }
        (self.store.options.pause)();
    }

    /// The index, to be read at revision `at`.
    fn guard(&self, at: i64) -> RwLockReadGuard<'a, Index> {
        self.guard.take().unwrap_or_else(|| {
            let guard = read(&self.store.index);
            // A pin keeps versions from being pruned, but not a snapshot from replacing the whole state. At the same revision the
            // snapshot holds the same.
            if self.store.generation() != self.generation && at < self.store.compact_revision() {
                self.overtaken.set(true);
            }
            guard
        })
    }

    /// Keys of a range that a walk looks at, live or not.
    pub(crate) fn count_keys(&self, range: KeyRange<'_>) -> u64 {
        let guard = self.guard(self.current);
        let keys = guard.count_keys(range);
        self.guard.replace(Some(guard));
        keys
    }

    /// Whether the read must begin again: a snapshot was installed meanwhile that was compacted past the revision.
    pub(crate) fn is_overtaken(&self) -> bool {
        self.overtaken.get()
    }

    /// Whether the read ended early, because its client no longer wants the answer.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.get()
    }
}

impl Store {
    /// What to read the index at for a range at revision `at`: the newest state as long as that is the same. Asked while the index is held.
    pub(crate) fn index_revision(&self, range: KeyRange<'_>, at: i64) -> i64 {
        let is_newest = at == self.revision() && !self.unpublished.touches(range);
        if is_newest { NEWEST } else { at }
    }
}

impl View for ReadView<'_> {
    fn current(&self) -> i64 {
        self.current
    }

    fn compact_revision(&self) -> i64 {
        self.compact
    }

    fn scan(&self, range: KeyRange<'_>, at: i64, visit: Visit<'_>) {
        if let KeyRange::One(key) = range {
            let guard = self.guard(at);
            if let Some(version) = guard.get(key, at) {
                let _ = visit(key, &version);
            }
            self.left.set(self.left.get().saturating_sub(1));
            self.guard.replace(Some(guard));
        } else if !range.is_empty() {
            let mut after: Option<Box<[u8]>> = None;
            while !self.is_given_up() {
                let guard = self.guard(at);
                if self.is_overtaken() {
                    return;
                }
                let mut left = self.left.get();
                let seen = self.store.index_revision(range, at);
                let end = guard.scan_within(range, seen, after.as_deref(), &mut left, visit);
                self.guard.replace(Some(guard));
                self.left.set(left);
                let Scan::More(last) = end else { break };
                self.pause(at);
                after = Some(last);
            }
        }
        if self.left.get() == 0 {
            self.pause(at);
        }
    }

    fn count(&self, range: KeyRange<'_>, at: i64) -> Option<u64> {
        let guard = self.guard(at);
        // The tree counts the newest versions.
        let count = (self.store.index_revision(range, at) == NEWEST).then(|| guard.count_live(range));
        self.guard.replace(Some(guard));
        count
    }

    fn stored<R>(&self, loc: Loc, read: impl FnOnce(&[u8]) -> R) -> R {
        self.store.segments.with(loc, read)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::read::range::walk;
    use crate::{Opened, Options, Response, Sink, Work};
    use api::etcdserverpb::{CompactionRequest, DeleteRangeRequest, InternalRaftRequest, PutRequest};
    use api::{Error, Message, raftpb};
    use disk::sim::SimDisk;
    use std::path::Path;
    use std::sync::Arc;

    struct Nobody;

    impl Sink for Nobody {
        fn done(&mut self, _: u64, _: u64, result: Result<Response, Error>) {
            result.unwrap();
        }
        fn conf_change(&mut self, _: u64, _: raftpb::ConfChange) {}
        fn over_quota(&mut self, _response: &Response) {}
    }

    /// A store with `keys` keys.
    fn filled(keys: usize) -> Opened {
        let mut opened = crate::open(Arc::new(SimDisk::new()), Path::new("store"), Options::default()).unwrap();
        let put = |key| PutRequest { key: format!("{key:05}").into(), ..Default::default() };
        let puts = (0..keys).map(|key| InternalRaftRequest { put: Some(put(key)), ..Default::default() });
        puts.for_each(|request| apply(&mut opened.applier, request));
        opened
    }

    fn apply(applier: &mut crate::Applier, request: InternalRaftRequest) {
        let index = Some(applier.applied_index() + 1);
        let data = Some(request.encode_to_vec().into());
        applier.apply(&[raftpb::Entry { index, data, ..Default::default() }], &mut Nobody).unwrap();
    }

    #[test]
    fn a_paused_read_notices_a_snapshot_that_does_not_have_what_it_needs() {
        let keys = 2 * READ_STRIDE_KEYS;
        for (back, is_overtaken) in [(1, false), (0, true)] {
            let (mut receiver, mut sender) = (filled(keys), filled(keys));
            let put = PutRequest { key: "00000".into(), ..Default::default() };
            apply(&mut sender.applier, InternalRaftRequest { put: Some(put), ..Default::default() });
            let compaction = CompactionRequest { revision: sender.store.revision() - back, physical: false };
            apply(&mut sender.applier, InternalRaftRequest { compaction: Some(compaction), ..Default::default() });
            while sender.store.maintain(1 << 20).unwrap().work == Work::Busy {}
            let export = sender.applier.export();
            let mut intake = crate::Intake::begin(&receiver.store, 1, &export.checkpoint().unwrap()).unwrap();
            for (segment, mut at, length) in intake.needed() {
                while at < length {
                    let bytes = export.read(segment, at, usize::MAX).unwrap();
                    intake.write(segment, at, &bytes).unwrap();
                    at += bytes.len() as u64;
                }
            }
            let ready = intake.finish().unwrap();

            let store = Arc::clone(&receiver.store);
            let live = ReadView::open(&store);
            let all = KeyRange::From(b"\0");
            let at = live.current();
            assert_eq!((walk(&live, all, at), live.is_overtaken()), (keys as u64, false));
            receiver.applier.install(ready).unwrap();
            let walked = walk(&live, all, at);
            assert_eq!(live.is_overtaken(), is_overtaken, "{walked} keys at {at}");
            assert!(is_overtaken || walked == keys as u64);
        }
    }

    #[test]
    fn what_a_paused_read_needs_is_not_pruned() {
        let Opened { store, mut applier, .. } =
            crate::open(Arc::new(SimDisk::new()), Path::new("store"), Options::default()).unwrap();
        let mut apply = |request: InternalRaftRequest| {
            let index = Some(applier.applied_index() + 1);
            let data = Some(request.encode_to_vec().into());
            applier.apply(&[raftpb::Entry { index, data, ..Default::default() }], &mut Nobody).unwrap();
        };
        let keys = 2 * READ_STRIDE_KEYS;
        for key in 0..keys {
            let put = PutRequest { key: format!("{key:05}").into(), ..Default::default() };
            apply(InternalRaftRequest { put: Some(put), ..Default::default() });
        }
        let all = KeyRange::From(b"\0");
        let live = ReadView::open(&store);
        let at = live.current();
        assert_eq!(live.count(all, at), Some(keys as u64));
        assert_eq!(walk(&live, all, at), keys as u64);

        let delete = DeleteRangeRequest { key: "\0".into(), range_end: "\0".into(), prev_kv: false };
        apply(InternalRaftRequest { delete_range: Some(delete), ..Default::default() });
        let compaction = CompactionRequest { revision: at + 1, physical: false };
        apply(InternalRaftRequest { compaction: Some(compaction), ..Default::default() });
        while store.maintain(1 << 20).unwrap().work == Work::Busy {}
        assert_eq!(store.maintain(1 << 20).unwrap().work, Work::Waiting);
        assert_eq!(live.count(all, at), None, "the tree counts another revision now");
        assert_eq!(walk(&live, all, at), keys as u64);

        drop(live);
        while store.maintain(1 << 20).unwrap().work == Work::Busy {}
        assert_eq!((store.compacted(), store.usage().keys), (at + 1, 0));
    }
}
