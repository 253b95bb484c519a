//! Housekeeping off the apply thread, in slices: pruning after compactions, then rewriting segments that are mostly dead.

use super::hash::{Hasher, KvHash, Purpose};
use super::keyfiles::{KeyFiles, Made};
use super::rewrite::{Rewriter, Space, Step};
use super::scrub::Scrub;
use crate::index::Index;
use crate::log::{Error, RwLockWriteGuard, Segments, lock, write};
use crate::mistake::Mistake;
use crate::state::Leases;
use crate::store::{SecondIndex, Store};
use crate::types::Loc;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Versions looked at under one hold of the index lock, which the applier waits for.
const PRUNE_STRIDE_VERSIONS: usize = 256;
/// What a stride counts for in a slice's budget: about as long as that many bytes take to be moved.
const PRUNE_STRIDE_BYTES: u64 = 64 * 1024;
/// A slice is done in parts, between which it can be ended.
const SLICE_PART_BYTES: u64 = 256 * 1024;
/// With this many compactions waiting, dropping versions comes before their hashes: members then have nothing to compare,
/// but their disks do not fill.
const BACKLOG_COMPACTIONS: usize = 4;
/// So many key files that no checkpoint lists are worth one.
const KEY_FILES_PER_CHECKPOINT: u64 = 8;
/// Checkpoints that must be written until the files which a rewrite replaced can go.
const CHECKPOINTS_PER_REWRITE: u32 = 2;

/// What is to be done, and how far it is.
pub(crate) struct Maintenance {
    queue: Mutex<VecDeque<Compaction>>,
    work: Mutex<Desk>,
    finished: AtomicI64,
    /// Versions dropped since the start.
    dropped: AtomicU64,
    due: Mutex<Due>,
    /// Another thread waits for the desk: the slice under way is to end soon.
    halting: AtomicBool,
    /// Replaced files may have lost their last reader.
    sweep: AtomicBool,
    /// What takes long to drop, see [`Replaced`].
    replaced: Mutex<Vec<Replaced>>,
}

/// What a snapshot from another member has replaced. Dropping millions of keys takes longer than the applier may be held up.
pub(crate) struct Replaced {
    pub(crate) _index: Index,
    pub(crate) _leases: Leases,
    pub(crate) _second: Option<SecondIndex>,
}

/// Checkpoints that would let files go.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    left: u32,
    /// A checkpoint captured before the last rewrite does not count.
    finished: Finished,
    /// Key files that were finished when the last checkpoint was captured.
    listed_key_files: u64,
}

/// What was finished since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Finished {
    rewrites: u64,
    key_files: u64,
}

/// The work that one slice continues.
pub(crate) struct Desk {
    compaction: Option<Job>,
    rewriter: Rewriter,
    key_files: KeyFiles,
    scrub: Scrub,
}

/// A compaction whose versions are still there.
#[derive(Clone, Copy)]
struct Compaction {
    previous: i64,
    revision: i64,
}

/// The compaction at work.
struct Job {
    compaction: Compaction,
    phase: Phase,
}

enum Phase {
    /// Before anything goes, the hash over what it found is taken.
    Hash(Hasher),
    Prune {
        /// Missing when there was no time for it.
        hash: Option<KvHash>,
        after: Option<Box<[u8]>>,
    },
}

/// What a slice of housekeeping leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing to do.
    Idle,
    /// Nothing to do but to check records that nobody has read since the start, which is in no hurry.
    Checking,
    /// Something to do, but a reader still needs what is to go, or the disk is full.
    Waiting,
    /// More to do.
    Busy,
}

/// The state of housekeeping after a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whether to come back.
    pub work: Work,
    /// Compactions up to this revision are finished.
    pub compacted: i64,
    /// A checkpoint would let files go that nothing reads any more, or list several key files.
    pub checkpoint_is_due: bool,
    /// Key files wait for a checkpoint, without which the next start does not use them.
    pub key_files_wait: bool,
}

impl Maintenance {
    /// Compactions up to `finished` are finished; `due` checkpoints are due from the start, for what recovery left.
    pub(crate) fn new(segments: &Arc<Segments>, finished: i64, due: u32, rest: fn()) -> Maintenance {
        Maintenance {
            queue: Mutex::default(),
            work: Mutex::new(Desk {
                compaction: None,
                rewriter: Rewriter::new(Arc::clone(segments)),
                key_files: KeyFiles::new(Arc::clone(segments), rest),
                scrub: Scrub::new(Arc::clone(segments)),
            }),
            finished: AtomicI64::new(finished),
            dropped: AtomicU64::new(0),
            due: Mutex::new(Due { left: due, ..Due::default() }),
            halting: AtomicBool::new(false),
            sweep: AtomicBool::new(false),
            replaced: Mutex::default(),
        }
    }

    /// Takes up what a restart has interrupted, if anything: the compaction at `revision`. Its hash is over all that is after the
    /// last finished one.
    pub(crate) fn resume(&self, revision: i64) {
        let previous = self.finished.load(Ordering::Acquire);
        if previous < revision {
            lock(&self.queue).push_back(Compaction { previous, revision });
        }
    }

    /// What was finished so far, for a checkpoint that is captured now. It lists the key files among it: no other is due for them while it is written.
    pub(crate) fn captured(&self) -> Finished {
        let mut due = lock(&self.due);
        due.listed_key_files = due.finished.key_files;
        due.finished
    }

    /// Notes a finished checkpoint that was captured after this much was `finished`. If another rewrite has finished since, all are due again.
    pub(crate) fn checkpointed(&self, finished: Finished) {
        let mut due = lock(&self.due);
        if due.finished.rewrites == finished.rewrites {
            due.left = due.left.saturating_sub(1);
        }
    }

    /// Takes the desk. The slice under way, if there is one, ends after the part it is at.
    pub(crate) fn halt(&self) -> MutexGuard<'_, Desk> {
        self.halting.store(true, Ordering::Release);
        let desk = lock(&self.work);
        self.halting.store(false, Ordering::Release);
        desk
    }

    /// Makes the next slice look for files without readers.
    pub(crate) fn sweep_soon(&self) {
        self.sweep.store(true, Ordering::Release);
    }

    /// A snapshot was installed, in which compactions up to `compact_revision` are finished.
    pub(crate) fn replaced(&self, compact_revision: i64, old: Replaced) {
        lock(&self.queue).clear();
        self.finished.store(compact_revision, Ordering::Release);
        lock(&self.replaced).push(old);
    }

    /// The disk has become low: with two checkpoints the Raft log can go.
    fn wants_checkpoints(&self, count: u32) {
        let mut due = lock(&self.due);
        due.left = due.left.max(count);
    }

    fn checkpoints_due(&self) -> bool {
        lock(&self.due).left > 0
    }

    fn rewritten(&self) {
        let mut due = lock(&self.due);
        due.left = CHECKPOINTS_PER_REWRITE;
        due.finished.rewrites += 1;
    }

    fn made_key_file(&self) {
        lock(&self.due).finished.key_files += 1;
    }

    /// Key files that no checkpoint lists, nor one that is being written.
    fn key_files_waiting(&self) -> u64 {
        let due = lock(&self.due);
        due.finished.key_files - due.listed_key_files
    }
}

impl Store {
    /// Moves the watermark: from now on nothing older is read. What is below goes in slices of [`Store::maintain`].
    pub(crate) fn begin_compaction(&self, revision: i64) {
        let mut queue = lock(&self.maintenance.queue);
        let previous = self.compact_revision.swap(revision, Ordering::AcqRel);
        queue.push_back(Compaction { previous, revision });
    }

    /// Compactions up to this revision are finished: nothing they drop is left in the index or counts as live. A physical
    /// compaction is answered when this has reached its revision.
    pub fn compacted(&self) -> i64 {
        self.maintenance.finished.load(Ordering::Acquire)
    }

    /// Versions that compactions have dropped since the start.
    pub fn dropped_versions(&self) -> u64 {
        self.maintenance.dropped.load(Ordering::Relaxed)
    }

    /// Does a slice of housekeeping, reading and writing about `budget_bytes`. To be called from a slow thread until it is idle;
    /// the caller's pace is the rate limit. An error ends the member.
    pub fn maintain(&self, budget_bytes: u64) -> Result<Progress, Error> {
        // Dropped without the lock of the list.
        let replaced = std::mem::take(&mut *lock(&self.maintenance.replaced));
        drop(replaced);
        let mut desk = lock(&self.maintenance.work);
        self.sweep()?;
        self.look_at_disk();
        let mut left = budget_bytes;
        let work = loop {
            let part = left.min(SLICE_PART_BYTES);
            let work = desk.slice(self, part).inspect_err(|error| self.segments.condemn(error))?;
            left -= part;
            let ends_batch = self.options.compaction_batch_versions > 0 && desk.is_pruning();
            let is_halting = self.maintenance.halting.load(Ordering::Acquire);
            (self.options.rest)();
            let is_over = !matches!(work, Work::Busy | Work::Checking);
            if is_over || left == 0 || ends_batch || is_halting {
                break work;
            }
        };
        let waiting = self.maintenance.key_files_waiting();
        Ok(Progress {
            work,
            compacted: self.compacted(),
            checkpoint_is_due: self.maintenance.checkpoints_due() || waiting >= KEY_FILES_PER_CHECKPOINT,
            key_files_wait: waiting > 0,
        })
    }

    /// Removes replaced files without readers, if there may be some.
    fn sweep(&self) -> Result<(), Error> {
        if self.maintenance.sweep.swap(false, Ordering::AcqRel) && lock(&self.checkpoints).sweep()? {
            self.maintenance.sweep_soon();
        }
        Ok(())
    }

    /// Space of the disk that is needed for nothing else, as of the last look.
    fn room_bytes(&self) -> u64 {
        if self.disk_is_low() {
            return 0;
        }
        let needed = self.disk_reserve_bytes.load(Ordering::Relaxed);
        // A disk that does not say how much is free is found full by a write, if it is.
        if needed == 0 { u64::MAX } else { self.disk_free_bytes.load(Ordering::Relaxed).saturating_sub(needed) }
    }

    /// Notes whether the disk has space for the store's own work, and how much deletions may fill. On a disk that is low, what waits to be given
    /// back goes first, at once: nobody is refused space because of it. Space is taken in whole segments, so
    /// the thread that prepares the next one should look: between two looks writes must not take more than the reserve.
    pub fn look_at_disk(&self) {
        let released = self.released_bytes.load(Ordering::Acquire);
        // A disk that does not say how much is free is found full by a write, if it is.
        let Ok(mut free) = self.disk.free_bytes(&self.dir) else { return };
        let own = lock(&self.checkpoints).needed_reserve_bytes();
        let needed = own.saturating_add(self.options.reserve_bytes);
        while free < needed && self.segments.reaper().make_room() {
            free = self.disk.free_bytes(&self.dir).unwrap_or(free);
        }
        // Deletions may fill the next segment.
        let rewrite = own.saturating_sub(self.segments.needed_spare_bytes());
        let floor = rewrite.saturating_add(self.options.reserve_bytes);
        self.disk_floor.store(floor, Ordering::Relaxed);
        self.copy_max_bytes.store(copy_max(free, needed, floor, self.segments.needed_copy_bytes()), Ordering::Relaxed);
        self.headroom_bytes.store(self.headroom_of(free), Ordering::Release);
        // Released reservations that were used before this look are no longer free on the disk.
        self.released_bytes.fetch_sub(released, Ordering::AcqRel);
        self.disk_free_bytes.store(free, Ordering::Relaxed);
        self.disk_reserve_bytes.store(needed, Ordering::Relaxed);
        let is_low = free < needed;
        if !self.disk_is_low.swap(is_low, Ordering::Relaxed) && is_low {
            self.maintenance.wants_checkpoints(CHECKPOINTS_PER_REWRITE);
        }
    }
}

/// Bytes that a copy may take of a disk with so much `free` space, of which `needed` includes `copy` bytes for it. A copy takes nothing that the Raft
/// log, the next segment and a checkpoint need. On a disk that is low, deletions may have taken the next segment's part: down to `floor` there is room
/// for the whole copy. Below, where something else than this member has taken space, a copy may have half of what is left: it can give more back.
fn copy_max(free: u64, needed: u64, floor: u64, copy: u64) -> u64 {
    match free.checked_sub(needed) {
        Some(room) => room.saturating_add(copy),
        None => copy.min((free.saturating_add(copy).saturating_sub(floor)).max(free / 2)),
    }
}

impl Desk {
    /// Whether a compaction is dropping versions.
    fn is_pruning(&self) -> bool {
        self.compaction.as_ref().is_some_and(|job| matches!(job.phase, Phase::Prune { .. }))
    }

    /// Gives up unfinished work: a snapshot is about to be installed.
    pub(crate) fn abandon(&mut self, store: &Store) {
        self.compaction = None;
        self.rewriter.abandon(&store.segments);
        self.key_files.abandon();
        self.scrub.abandon();
    }

    /// Takes the newest compaction that waits when there is room for it. It does the work of those before it; their hashes are
    /// left out, its own is the same as if they had been done one by one.
    fn take_compaction(&mut self, queue: &mut VecDeque<Compaction>) {
        let is_deep = queue.len() >= BACKLOG_COMPACTIONS;
        let has_room = match &self.compaction {
            None => true,
            Some(job) => is_deep && matches!(job.phase, Phase::Hash(_)),
        };
        if !has_room {
            return;
        }
        if let Some(newest) = queue.drain(..).next_back() {
            self.compaction = Some(if is_deep { Job::without_hash(newest) } else { Job::new(newest) });
        }
    }

    fn slice(&mut self, store: &Store, budget_bytes: u64) -> Result<Work, Error> {
        self.take_compaction(&mut lock(&store.maintenance.queue));
        if let Some(job) = &mut self.compaction {
            let work = job.step(store, budget_bytes);
            if work != Work::Idle {
                return Ok(work);
            }
            // What it has killed may now be rewritten.
            self.compaction = None;
            return Ok(Work::Busy);
        }
        if store.disk_is_low() {
            // What it has written so far is of more use elsewhere.
            self.key_files.abandon();
            self.scrub.let_go();
        }
        // The reserve is for one copy: the next has to wait until what the last one replaced is free again.
        let is_coming_back = || store.maintenance.checkpoints_due() || store.segments.reaper().has_work();
        if store.disk_is_low() && self.rewriter.is_idle() && is_coming_back() {
            return Ok(Work::Idle);
        }
        let copy_max_bytes = store.copy_max_bytes.load(Ordering::Relaxed);
        let space = Space { is_low: store.disk_is_low(), copy_max_bytes };
        match self.rewriter.step(&store.index, store.revision(), space, budget_bytes) {
            Ok(Step::Idle) => self.tend(store, budget_bytes),
            Ok(Step::Working) => Ok(Work::Busy),
            Ok(Step::Finished) => {
                store.maintenance.rewritten();
                // Otherwise the space of what it has replaced does not come back until there is time for these.
                self.key_files.let_go();
                self.scrub.let_go();
                Ok(Work::Busy)
            }
            Err(error) if error.is_out_of_space() => {
                store.disk_is_low.store(true, Ordering::Relaxed);
                store.maintenance.wants_checkpoints(CHECKPOINTS_PER_REWRITE);
                Ok(Work::Waiting)
            }
            Err(error) => Err(error),
        }
    }

    /// Does what nobody waits for: key files, then the check of what the start has not read.
    fn tend(&mut self, store: &Store, budget_bytes: u64) -> Result<Work, Error> {
        match self.key_files.step(store.room_bytes(), budget_bytes) {
            Ok(Made::Nothing) => {}
            Ok(Made::Part) => return Ok(Work::Busy),
            Ok(Made::Whole) => {
                store.maintenance.made_key_file();
                return Ok(Work::Busy);
            }
            // Nobody needs it: whether the disk is low, its free space tells.
            Err(error) if error.is_out_of_space() => self.key_files.put_off(),
            Err(error) => return Err(error),
        }
        Ok(if self.scrub.step(budget_bytes)? { Work::Checking } else { Work::Idle })
    }
}

impl Job {
    fn new(compaction: Compaction) -> Job {
        let Compaction { previous, revision } = compaction;
        Job { compaction, phase: Phase::Hash(Hasher::new(previous, revision, Purpose::Compaction)) }
    }

    fn without_hash(compaction: Compaction) -> Job {
        Job { compaction, phase: Phase::Prune { hash: None, after: None } }
    }

    /// Idle when the compaction is finished.
    fn step(&mut self, store: &Store, budget_bytes: u64) -> Work {
        let revision = self.compaction.revision;
        match &mut self.phase {
            Phase::Hash(hasher) => {
                if let Some(hash) = hasher.step(store, budget_bytes) {
                    self.phase = Phase::Prune { hash: Some(hash), after: None };
                }
                Work::Busy
            }
            Phase::Prune { hash, after } => {
                let mut dead: Vec<(Loc, bool)> = Vec::new();
                // What is left of a batch, if there are batches.
                let mut left = store.options.compaction_batch_versions;
                for _ in 0..(budget_bytes / PRUNE_STRIDE_BYTES).max(1) {
                    let stride = if left == 0 { PRUNE_STRIDE_VERSIONS } else { left.min(PRUNE_STRIDE_VERSIONS) };
                    let mut index = write(&store.index);
                    // Readers pin while they hold the index: a pin that is not there now will be above the watermark.
                    if store.pins.oldest().is_some_and(|oldest| oldest < revision) {
                        return Work::Waiting;
                    }
                    failpoint::point!(COMPACT_AFTER_ACQUIRED_BATCH_TX_LOCK);
                    let upto = revision + i64::from(Mistake::CompactsOneTooFar.is_planted());
                    let next = index.prune(upto, after.as_deref(), stride, &mut |loc, is_tombstone| {
                        dead.push((loc, is_tombstone));
                    });
                    // An applier that waits is handed the lock: otherwise the next stride often has it before the applier runs.
                    RwLockWriteGuard::unlock_fair(index);
                    if next.is_some() {
                        failpoint::point!(COMPACT_BEFORE_COMMIT_BATCH);
                    }
                    store.maintenance.dropped.fetch_add(dead.len() as u64, Ordering::Relaxed);
                    dead.drain(..).for_each(|(loc, is_tombstone)| store.segments.mark_dead(loc, is_tombstone));
                    *after = next;
                    if after.is_none() {
                        failpoint::point!(COMPACT_BEFORE_SET_FINISHED_COMPACT);
                        if let Some(hash) = *hash {
                            store.hashes.insert(hash);
                        }
                        store.maintenance.finished.store(revision, Ordering::Release);
                        failpoint::point!(COMPACT_AFTER_SET_FINISHED_COMPACT);
                        return Work::Idle;
                    }
                    failpoint::point!(COMPACT_AFTER_COMMIT_BATCH);
                    left = left.saturating_sub(stride);
                    if store.options.compaction_batch_versions > 0 && left == 0 {
                        break;
                    }
                }
                Work::Busy
            }
        }
    }
}
