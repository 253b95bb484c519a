//! Housekeeping off the apply thread, in slices: pruning after compactions, then rewriting segments that are mostly dead.

use crate::hash::{Hasher, KvHash, Purpose};
use crate::log::{Error, lock, write};
use crate::store::Store;
use crate::types::Loc;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Versions looked at under one hold of the index lock, which the applier waits for.
const PRUNE_STRIDE_VERSIONS: usize = 512;
/// What a stride counts for in a slice's budget.
const PRUNE_STRIDE_BYTES: u64 = 32 * 1024;

/// What is to be done, and how far it is.
pub(crate) struct Maintenance {
    queue: Mutex<VecDeque<Compaction>>,
    job: Mutex<Option<Job>>,
    finished: AtomicI64,
    checkpoint_is_due: AtomicBool,
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
        hash: KvHash,
        after: Option<Box<[u8]>>,
    },
}

/// What a slice of housekeeping leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing to do.
    Idle,
    /// Something to do, but a reader still needs what is to go.
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
    /// A checkpoint would let files go that nothing reads any more.
    pub checkpoint_is_due: bool,
}

impl Maintenance {
    pub(crate) fn new(compact_revision: i64) -> Maintenance {
        Maintenance {
            queue: Mutex::default(),
            job: Mutex::new(None),
            finished: AtomicI64::new(compact_revision),
            checkpoint_is_due: AtomicBool::new(false),
        }
    }

    pub(crate) fn checkpointed(&self) {
        self.checkpoint_is_due.store(false, Ordering::Relaxed);
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
    /// compaction is answered when this has passed its revision.
    pub fn compacted(&self) -> i64 {
        self.maintenance.finished.load(Ordering::Acquire)
    }

    /// Does a slice of housekeeping, reading and writing about `budget_bytes`. To be called from a slow thread until it is idle;
    /// the caller's pace is the rate limit.
    pub fn maintain(&self, budget_bytes: u64) -> Result<Progress, Error> {
        let mut job = lock(&self.maintenance.job);
        self.look_at_disk();
        if job.is_none() {
            *job = lock(&self.maintenance.queue).pop_front().map(Job::new);
        }
        let work = match &mut *job {
            Some(compaction) => {
                let work = compaction.step(self, budget_bytes);
                if work == Work::Idle {
                    *job = None;
                }
                // What it has killed may now be rewritten.
                if work == Work::Idle { Work::Busy } else { work }
            }
            None => Work::Idle,
        };
        let checkpoint_is_due = self.maintenance.checkpoint_is_due.load(Ordering::Relaxed);
        Ok(Progress { work, compacted: self.compacted(), checkpoint_is_due })
    }

    /// Notes whether the disk has room for what the store does on its own.
    fn look_at_disk(&self) {
        // A disk that does not say how much is free is found full by a write, if it is.
        let Ok(free) = self.disk.free_bytes(&self.dir) else { return };
        let needed = lock(&self.checkpoints).needed_reserve_bytes().saturating_add(self.options.reserve_bytes);
        self.disk_is_low.store(free < needed, Ordering::Relaxed);
    }
}

impl Job {
    fn new(compaction: Compaction) -> Job {
        let Compaction { previous, revision } = compaction;
        Job { compaction, phase: Phase::Hash(Hasher::new(previous, revision, Purpose::Compaction)) }
    }

    /// Idle when the compaction is finished.
    fn step(&mut self, store: &Store, budget_bytes: u64) -> Work {
        let revision = self.compaction.revision;
        match &mut self.phase {
            Phase::Hash(hasher) => {
                if let Some(hash) = hasher.step(store, budget_bytes) {
                    self.phase = Phase::Prune { hash, after: None };
                }
                Work::Busy
            }
            Phase::Prune { hash, after } => {
                let mut dead: Vec<Loc> = Vec::new();
                for _ in 0..(budget_bytes / PRUNE_STRIDE_BYTES).max(1) {
                    let mut keys = write(&store.keys);
                    // Readers pin while they hold the index: a pin that is not there now will be above the watermark.
                    if store.pins.oldest().is_some_and(|oldest| oldest < revision) {
                        return Work::Waiting;
                    }
                    let next =
                        keys.index.prune(revision, after.as_deref(), PRUNE_STRIDE_VERSIONS, &mut |loc| dead.push(loc));
                    drop(keys);
                    dead.drain(..).for_each(|loc| store.segments.mark_dead(loc));
                    *after = next;
                    if after.is_none() {
                        store.hashes.insert(*hash);
                        store.maintenance.finished.store(revision, Ordering::Release);
                        return Work::Idle;
                    }
                }
                Work::Busy
            }
        }
    }
}
