//! Hashes over the history, equal on all members and equal to etcd's for the same history.

use crate::index::Scan as IndexScan;
use crate::log::{Scan, lock, read};
use crate::read::Unread;
use crate::snapshot::image::RevisionKey;
use crate::store::Store;
use crate::types::Revision;
use api::etcdserverpb::HashKvResponse;
use api::limits::READ_STRIDE_KEYS;
use api::{Error, KeyRange};
use std::ops::ControlFlow;
use std::sync::Mutex;

/// Hashes of finished compactions that are kept, as many as etcd keeps: members compare them.
const CACHED_MAX: usize = 10;
/// Bytes read between two looks whether the hash of a request is still wanted, and whether others should go first.
const SLICE_BYTES: u64 = 256 << 10;
/// Every key.
const ALL: KeyRange<'static> = KeyRange::From(&[]);

/// A hash over the records that a read at `revision` or a watch from `compact_revision` on could see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvHash {
    pub(crate) hash: u32,
    pub(crate) compact_revision: i64,
    pub(crate) revision: i64,
}

/// Hashes of finished compactions: over what the compaction found, with the compact revision before it. What later compactions
/// drop cannot be hashed again.
#[derive(Default)]
pub(crate) struct HashCache {
    hashes: Mutex<Vec<KvHash>>,
}

impl HashCache {
    pub(crate) fn insert(&self, hash: KvHash) {
        let mut hashes = lock(&self.hashes);
        hashes.push(hash);
        if hashes.len() > CACHED_MAX {
            hashes.remove(0);
        }
    }

    pub(crate) fn clear(&self) {
        lock(&self.hashes).clear();
    }

    fn get(&self, revision: i64) -> Option<KvHash> {
        lock(&self.hashes).iter().find(|hash| hash.revision == revision).copied()
    }
}

/// What is hashed on behalf of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A request.
    Request,
    /// A compaction to the hashed revision, about to prune.
    Compaction,
}

/// A hash being computed, in steps.
///
/// Counted are all records after the compact revision up to `revision`, and of those before it each that is still what a read at
/// `revision` sees of its key. When such a read sees nothing at all, etcd's rule lets everything through that the compaction has
/// left.
pub(crate) struct Hasher {
    compact_revision: i64,
    revision: i64,
    purpose: Purpose,
    phase: Phase,
    crc: u32,
}

enum Phase {
    /// Walking the index: which revision it is walked at, what was kept so far, and where the walk is.
    Keep { at: i64, kept: Vec<Revision>, found: bool, after: Option<Box<[u8]>> },
    /// Reading records: which of the old ones count, from where in that list.
    Read { kept: Vec<Revision>, next: usize, scan: Scan },
}

impl Hasher {
    /// `compact_revision` and what is after it must stay readable until the hash is done.
    pub(crate) fn new(compact_revision: i64, revision: i64, purpose: Purpose) -> Hasher {
        let phase = Phase::Keep { at: revision, kept: Vec::new(), found: false, after: None };
        Hasher { compact_revision, revision, purpose, phase, crc: crc32c::crc32c(RevisionKey::BUCKET.as_bytes()) }
    }

    /// Works through about `bytes_max` bytes; the hash once it is done.
    pub(crate) fn step(&mut self, store: &Store, bytes_max: u64) -> Option<KvHash> {
        let mut budget = bytes_max;
        while let Phase::Keep { .. } = self.phase {
            self.keep(store);
            budget = budget.saturating_sub(READ_STRIDE_KEYS as u64 * 16);
            if budget == 0 {
                return None;
            }
        }
        let Phase::Read { kept, next, scan } = &mut self.phase else { return None };
        while let Some(record) = scan.advance() {
            let rev = record.rev;
            if rev.main > self.revision {
                break;
            }
            if rev.main <= self.compact_revision {
                while kept.get(*next).is_some_and(|kept| *kept < rev) {
                    *next += 1;
                }
                if kept.get(*next) != Some(&rev) {
                    continue;
                }
            }
            let stored = record.bytes();
            self.crc = crc32c::crc32c_append(self.crc, &RevisionKey::new(rev, record.tombstone));
            self.crc = crc32c::crc32c_append(self.crc, stored);
            budget = budget.saturating_sub(stored.len() as u64 + 64);
            if budget == 0 {
                return None;
            }
        }
        Some(KvHash { hash: self.crc, compact_revision: self.compact_revision, revision: self.revision })
    }

    /// One stride of the index.
    fn keep(&mut self, store: &Store) {
        let Phase::Keep { at, kept, found, after } = &mut self.phase else { return };
        // Revisions begin at 2.
        if self.compact_revision >= 2 {
            let index = read(&store.index);
            let walked = index.scan(ALL, *at, after.as_deref(), READ_STRIDE_KEYS, &mut |_, version| {
                *found = true;
                if version.rev.main <= self.compact_revision {
                    kept.push(version.rev);
                }
                ControlFlow::Continue(())
            });
            drop(index);
            if let IndexScan::More(last) = walked {
                *after = Some(last);
                return;
            }
            let found = *found || (self.purpose == Purpose::Compaction && deletes_at(store, self.revision));
            if !found && *at > self.compact_revision {
                // Everything is deleted at `revision`: what the last compaction kept counts.
                self.phase = Phase::Keep { at: self.compact_revision, kept: Vec::new(), found: true, after: None };
                return;
            }
        }
        let mut kept = std::mem::take(kept);
        kept.sort_unstable();
        let from = kept.first().map_or(self.compact_revision.saturating_add(1), |first| first.main);
        self.phase = Phase::Read { kept, next: 0, scan: store.segments.scan(from) };
    }
}

/// Whether revision `main` deletes something. A compaction there keeps that.
fn deletes_at(store: &Store, main: i64) -> bool {
    let mut scan = store.segments.scan(main);
    while let Some(record) = scan.advance() {
        if record.rev.main != main {
            return false;
        }
        if record.tombstone {
            return true;
        }
    }
    false
}

impl Store {
    /// The hash of the history up to a revision, 0 for the current one. Reads everything: for the slow pool.
    pub fn hash_kv(&self, revision: i64) -> Result<HashKvResponse, Error> {
        self.hash_kv_while(revision, &|| true).map_err(Unread::of_unbounded)
    }

    /// The same, given up once it is not `wanted`.
    pub fn hash_kv_while(&self, revision: i64, wanted: &dyn Fn() -> bool) -> Result<HashKvResponse, Unread> {
        let hash = match self.hashes.get(revision) {
            Some(hash) => hash,
            None => self.hash_at(revision, wanted)?,
        };
        Ok(self.answer(hash))
    }

    /// The hash at the current revision, which it would be if the history were compacted to `compact_revision`; `None` if it is
    /// compacted further already. Members that have compacted to different revisions can be compared by it. Reads everything.
    pub fn hash_kv_compacted(&self, compact_revision: i64) -> Option<u32> {
        let index = read(&self.index);
        let (current, own) = (self.revision(), self.compact_revision());
        if !(own..=current).contains(&compact_revision) {
            return None;
        }
        let _pin = self.pins.pin(own);
        drop(index);
        let mut hasher = Hasher::new(compact_revision, current, Purpose::Request);
        loop {
            if let Some(hash) = hasher.step(self, SLICE_BYTES) {
                return Some(hash.hash);
            }
            (self.options.rest)();
        }
    }

    /// The hashes of the last compactions, newest first.
    pub fn compaction_hashes(&self) -> Vec<HashKvResponse> {
        let mut hashes = lock(&self.hashes.hashes).clone();
        hashes.sort_unstable_by_key(|hash| std::cmp::Reverse(hash.revision));
        hashes.into_iter().map(|hash| self.answer(hash)).collect()
    }

    /// The hash of the compaction to `revision`, while it is kept.
    pub fn compaction_hash(&self, revision: i64) -> Option<u32> {
        self.hashes.get(revision).map(|hash| hash.hash)
    }

    fn answer(&self, hash: KvHash) -> HashKvResponse {
        HashKvResponse {
            header: crate::apply::header(self.revision()),
            hash: hash.hash,
            compact_revision: hash.compact_revision,
            hash_revision: hash.revision,
        }
    }

    fn hash_at(&self, revision: i64, wanted: &dyn Fn() -> bool) -> Result<KvHash, Unread> {
        loop {
            let generation = self.generation();
            let hash = self.try_hash_at(revision, wanted);
            // An installed snapshot may have been compacted further than this walk knew.
            if self.generation() == generation {
                return hash;
            }
        }
    }

    fn try_hash_at(&self, revision: i64, wanted: &dyn Fn() -> bool) -> Result<KvHash, Unread> {
        let index = read(&self.index);
        let (current, compact_revision) = (self.revision(), self.compact_revision());
        if revision > current {
            return Err(Error::FutureRev.into());
        }
        if revision > 0 && revision < compact_revision {
            return Err(Error::Compacted.into());
        }
        let _pin = self.pins.pin(compact_revision);
        drop(index);
        let revision = if revision == 0 { current } else { revision };
        let mut hasher = Hasher::new(compact_revision, revision, Purpose::Request);
        while wanted() {
            if let Some(hash) = hasher.step(self, SLICE_BYTES) {
                return Ok(hash);
            }
            (self.options.rest)();
        }
        Err(Unread::Unwanted)
    }

    /// A hash of everything that members share. For tests: it is no hash of etcd's.
    pub fn hash(&self) -> u32 {
        self.hash_while(&|| true).unwrap_or_default()
    }

    /// The same, given up once it is not `wanted`.
    pub fn hash_while(&self, wanted: &dyn Fn() -> bool) -> Result<u32, Unread> {
        let kv = match self.hash_at(0, wanted) {
            Ok(hash) => hash.hash,
            Err(Unread::Unwanted) => return Err(Unread::Unwanted),
            Err(_) => 0,
        };
        let mut crc = crc32c::crc32c(&kv.to_le_bytes());
        let mut add = |bytes: &[u8]| crc = crc32c::crc32c_append(crc, bytes);
        let mut leases = self.leases.list();
        leases.sort_unstable_by_key(|lease| lease.id);
        for lease in leases {
            for number in [lease.id, lease.ttl, lease.remaining_ttl] {
                add(&number.to_le_bytes());
            }
        }
        for alarm in self.alarms() {
            add(&alarm.member_id.to_le_bytes());
            add(&alarm.alarm.to_le_bytes());
        }
        add(format!("{:?}", self.members()).as_bytes());
        Ok(crc)
    }
}
