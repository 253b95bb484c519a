//! The store as readers see it.

use crate::apply::quota;
use crate::index::Index;
use crate::log::RwLock;
use crate::log::{Segments, read};
use crate::mistake::Mistake;
use crate::options::Options;
use crate::read::{Allowance, Kvs, Plan, RangeAnswer, ReadView, Selected, Unpublished, Unread, View, read_revision};
use crate::snapshot::transfer::Shelf;
use crate::state::auth::Auth;
use crate::state::{Alarms, Leases, Members};
use crate::types::{Loc, Revision};
use crate::upkeep::checkpoint::Checkpoints;
use crate::upkeep::{HashCache, Maintenance, Pins};
use crate::watch::{History, Hub, Record, Wake, WatchStream};
use api::etcdserverpb::{AlarmMember, AlarmType, InternalRaftRequest, RangeRequest};
use api::{Error, KeyRange};
use bytes::Bytes;
use disk::Disk;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Everything readers share. One [`Applier`](crate::Applier) changes it.
pub struct Store {
    pub(crate) index: RwLock<Index>,
    pub(crate) unpublished: Unpublished,
    pub(crate) segments: Arc<Segments>,
    pub(crate) revision: AtomicI64,
    pub(crate) compact_revision: AtomicI64,
    pub(crate) pins: Pins,
    pub(crate) leases: Leases,
    pub(crate) alarms: RwLock<Alarms>,
    /// Alarms that are on, for the check at every write.
    pub(crate) alarm_count: AtomicUsize,
    pub(crate) auth: Auth,
    pub(crate) members: RwLock<Members>,
    pub(crate) hub: Hub,
    pub(crate) hashes: HashCache,
    pub(crate) maintenance: Maintenance,
    /// Held while a checkpoint is written: no thread that must not wait may take it.
    pub(crate) checkpoints: Mutex<Checkpoints>,
    pub(crate) oldest_checkpoint: AtomicU64,
    /// Segments of other members' snapshots whose transfer broke.
    pub(crate) shelf: Shelf,
    /// Counts the snapshots that were installed: each replaces everything. Changes under the write lock of the index.
    pub(crate) generation: AtomicU64,
    pub(crate) disk_is_low: AtomicBool,
    /// See [`Store::has_second_index`].
    pub(crate) second_indexes: Arc<AtomicUsize>,
    /// What keeps the store has said that there is no more memory for it.
    pub(crate) memory_is_low: AtomicBool,
    /// Free bytes of the disk, and those below which it is low, as of the last look.
    pub(crate) disk_free_bytes: AtomicU64,
    pub(crate) disk_reserve_bytes: AtomicU64,
    /// Free bytes that not even deletions may use, see [`Store::look_at_disk`].
    pub(crate) disk_floor: AtomicU64,
    /// Bytes that the copy of a rewrite may take, as of the last [`Store::look_at_disk`].
    pub(crate) copy_max_bytes: AtomicU64,
    /// What requests under way may add, see [`Store::claim_quota`].
    pub(crate) claimed_bytes: AtomicU64,
    /// The same of users and roles.
    pub(crate) claimed_users_bytes: AtomicU64,
    /// Alarms under way of IDs that no member has.
    pub(crate) claimed_alarms: AtomicU64,
    /// What is left for deletions, see [`Store::headroom_bytes`].
    pub(crate) headroom_bytes: AtomicU64,
    /// What was reserved of that and has been released since: it may be used by now.
    pub(crate) released_bytes: AtomicU64,
    /// What deletions under way have reserved, see [`Store::reserve_delete`].
    pub(crate) reserved_bytes: AtomicU64,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
}

/// What the store holds and takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of all revisions not yet compacted, and 64 for each lease and each alarm: what the quota is compared with.
    pub live_bytes: u64,
    /// Bytes that the revision log takes on disk.
    pub file_bytes: u64,
    /// Keys that exist now.
    pub keys: u64,
    /// Leases.
    pub leases: usize,
}

impl Store {
    /// The revision of the last write.
    pub fn revision(&self) -> i64 {
        self.revision.load(Ordering::Acquire)
    }

    /// The oldest revision that can be read; -1 before the first compaction.
    pub fn compact_revision(&self) -> i64 {
        self.compact_revision.load(Ordering::Acquire)
    }

    /// How often the whole state was replaced.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Answers a range request. Consistent at one revision however long it takes.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeAnswer, Error> {
        self.range_within(request, Allowance::UNBOUNDED).map_err(Unread::of_unbounded)
    }

    /// The same within an allowance.
    pub fn range_within(&self, request: &RangeRequest, allowance: Allowance<'_>) -> Result<RangeAnswer, Unread> {
        api::check::range(request)?;
        if is_point(request) {
            return Ok(self.point(request)?);
        }
        loop {
            let live = ReadView::open_while(self, allowance.wanted);
            let at = read_revision(request.revision, live.current(), live.compact_revision())?;
            let selected = Plan::new(request).select(&live, &self.segments, at, allowance.bytes_max);
            if live.is_given_up() {
                return Err(Unread::Unwanted);
            }
            if live.is_overtaken() {
                continue;
            }
            // The segments it refers to are held. Values are looked at without the index.
            drop(live);
            return selected.map(Selected::finish).ok_or(Unread::TooMuch);
        }
    }

    /// Memory that the places of a range's pairs are likely to take: what to allow it. No bound: it may be more when it is read.
    pub fn places_bytes(&self, request: &RangeRequest) -> u64 {
        if is_point(request) {
            return 0;
        }
        let plan = Plan::new(request);
        match plan.keys() {
            KeyRange::One(_) => plan.places_bytes(1),
            keys => plan.places_bytes(read(&self.index).count_live(keys)),
        }
    }

    /// One key, whole: what most reads are.
    fn point(&self, request: &RangeRequest) -> Result<RangeAnswer, Error> {
        let index = read(&self.index);
        let revision = self.revision();
        let at = read_revision(request.revision, revision, self.compact_revision())?;
        let (count, kvs) = match index.get(&request.key, at) {
            Some(version) => (1, Kvs::one(self.segments.segment(version.loc.segment), version.loc)),
            None => (0, Kvs::none()),
        };
        Ok(RangeAnswer { revision, count, more: false, kvs })
    }

    /// The leases.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// The alarms that are on.
    pub fn alarms(&self) -> Vec<AlarmMember> {
        read(&self.alarms).list(AlarmType::None as i32)
    }

    /// Users, roles and permissions.
    pub fn auth(&self) -> &Auth {
        &self.auth
    }

    /// The membership table.
    pub fn members(&self) -> Members {
        read(&self.members).clone()
    }

    /// The minor release all members share; empty until it was agreed on.
    pub fn cluster_version(&self) -> String {
        read(&self.members).cluster_version.clone()
    }

    /// What the quota is compared with. It follows from the replicated state alone, so it is the same after a restart and on a member
    /// that was sent a snapshot.
    pub(crate) fn live_bytes(&self) -> u64 {
        let leases = (self.leases.count() as u64).saturating_mul(quota::LEASE_BYTES);
        let alarms = (self.alarm_count.load(Ordering::Relaxed) as u64).saturating_mul(quota::ALARM_BYTES);
        [leases, alarms, self.auth.bytes()].into_iter().fold(self.segments.live_bytes(), u64::saturating_add)
    }

    /// Whether `cost` more bytes would pass the quota, or the disk or the memory is nearly full. A cost of 0 is always within it.
    pub fn over_quota(&self, cost: u64) -> bool {
        let limit = quota::limit(self.options.quota_bytes);
        let over = limit.is_some_and(|limit| self.live_bytes().saturating_add(cost) >= limit);
        cost > 0 && (over || self.disk_is_low.load(Ordering::Relaxed) || self.memory_is_low())
    }

    /// Notes whether there is memory for more keys. While there is none, what adds to the store is refused as on a full disk.
    pub fn set_memory_is_low(&self, is_low: bool) {
        self.memory_is_low.store(is_low, Ordering::Relaxed);
    }

    /// Whether another index is in memory: that of a snapshot being prepared, or the one that it has replaced.
    pub fn has_second_index(&self) -> bool {
        self.second_indexes.load(Ordering::Relaxed) > 0
    }

    /// Notes that there is another index until what this returns is dropped.
    #[must_use]
    pub fn second_index(&self) -> SecondIndex {
        self.second_indexes.fetch_add(1, Ordering::Relaxed);
        SecondIndex(Arc::clone(&self.second_indexes))
    }

    /// Whether there is no memory for more keys.
    pub fn memory_is_low(&self) -> bool {
        self.memory_is_low.load(Ordering::Relaxed)
    }

    /// Whether the disk has no free space beyond the reserve.
    pub fn disk_is_low(&self) -> bool {
        self.disk_is_low.load(Ordering::Relaxed)
    }

    /// Free bytes of the disk, and those below which writes are refused, as of the last [`Store::look_at_disk`].
    pub fn disk_bytes(&self) -> (u64, u64) {
        (self.disk_free_bytes.load(Ordering::Relaxed), self.disk_reserve_bytes.load(Ordering::Relaxed))
    }

    /// Refuses a request that would exceed the quota, before it is proposed. The refused caller raises the alarm.
    pub fn quota_check(&self, request: &InternalRaftRequest) -> Result<(), Error> {
        if self.over_quota(quota::cost(request)) { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// The quota in bytes, `None` when there is none.
    pub fn quota_bytes(&self) -> Option<u64> {
        quota::limit(self.options.quota_bytes)
    }

    /// What the store holds and takes.
    pub fn usage(&self) -> Usage {
        Usage {
            live_bytes: self.live_bytes(),
            file_bytes: self.segments.file_bytes(),
            keys: read(&self.index).live(),
            leases: self.leases.count(),
        }
    }

    /// Index of the last entry that the older kept checkpoint covers: the Raft log below it is not needed for recovery.
    pub fn oldest_checkpoint_index(&self) -> u64 {
        self.oldest_checkpoint.load(Ordering::Acquire)
    }

    /// Where changes meet watchers.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// The revision log, for reading.
    pub fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }
}

fn is_point(request: &RangeRequest) -> bool {
    request.range_end.is_empty()
        && !request.keys_only
        && !request.count_only
        && request.min_mod_revision == 0
        && request.max_mod_revision == 0
        && request.min_create_revision == 0
        && request.max_create_revision == 0
}

impl Hub {
    /// Opens a watch stream; `wake` is called, from any thread, when it has something to poll.
    pub fn stream(store: &Arc<Store>, wake: Wake) -> WatchStream {
        let history: Arc<dyn History> = Arc::clone(store) as Arc<dyn History>;
        Hub::open(history, wake)
    }
}

impl History for Store {
    fn hub(&self) -> &Hub {
        &self.hub
    }

    fn compact_revision(&self) -> i64 {
        Store::compact_revision(self)
    }

    fn scan(&self, from: Revision, to: i64, visit: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>) {
        let mut scan = self.segments.scan_from(from);
        while let Some(found) = scan.advance() {
            if found.rev.main > to {
                return;
            }
            let share = || found.value().into_bytes();
            let record = Record { rev: found.rev, tombstone: found.tombstone, stored: found.bytes(), share: &share };
            if visit(record).is_break() {
                return;
            }
        }
    }

    fn previous(&self, key: &[u8], main: i64) -> Option<Bytes> {
        let index = read(&self.index);
        if main <= Store::compact_revision(self) {
            return None;
        }
        let before = if Mistake::PreviousIsItself.is_planted() { main } else { main.checked_sub(1)? };
        let loc: Loc = index.get(key, before)?.loc;
        Some(self.segments.read(loc).into_bytes())
    }
}

/// Lives as long as an index beside that of the store.
#[derive(Debug)]
pub struct SecondIndex(Arc<AtomicUsize>);

impl Drop for SecondIndex {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
