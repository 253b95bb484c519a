//! A store in small, for tests of the log, recovery and rewriting together: entries drawn from a seed, applied the way the real
//! applier does, beside a model that keeps everything.

#![allow(clippy::unwrap_used)]

mod entries;
mod model;

pub(crate) use entries::{Entry, Op, entry};
pub(crate) use model::Model;

use crate::index::Index;
use crate::log::RwLock;
use crate::log::{Error, KvParts, Listing, Options, SEGMENT_HEADER_BYTES, Walk};
use crate::recovery::{self, OpenError, Recovered};
use crate::types::{Revision, Version};
use crate::upkeep::checkpoint::Checkpoint;
use crate::upkeep::keyfiles::{KeyFiles, Made};
use crate::upkeep::rewrite::{Rewriter, Space, Step};
use crate::upkeep::scrub::Scrub;
use disk::sim::Random;
use disk::{Disk, ReapError};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const DIR: &str = "/data/store";
/// Segments of 4 KiB at first, so that a few hundred entries fill many.
pub(crate) const OPTIONS: Options = Options { segment_bytes: 16 * 1024 };

/// The least time that `run` takes, of some times, and of many more until that is `enough`: other programs have the processor meanwhile.
#[allow(clippy::disallowed_methods, reason = "the time that it takes is what is tested")]
pub(crate) fn least_time(enough: impl Fn(Duration) -> bool, mut run: impl FnMut()) -> Duration {
    let mut least = Duration::MAX;
    for round in 0..200 {
        let began = Instant::now();
        run();
        least = least.min(began.elapsed());
        if round >= 9 && enough(least) {
            break;
        }
    }
    least
}

pub(crate) struct Rig {
    pub(crate) seed: u64,
    pub(crate) store: Recovered,
    pub(crate) index: RwLock<Index>,
    pub(crate) rewriter: Rewriter,
    pub(crate) key_files: KeyFiles,
    pub(crate) scrub: Scrub,
    pub(crate) applied: u64,
    pub(crate) revision: i64,
    pub(crate) compact: i64,
    /// Where pruning goes on; `None` when there is nothing to prune.
    pruning: Option<Box<[u8]>>,
    captured: Option<(Checkpoint, Listing)>,
    /// Applied index of the last checkpoint that was acknowledged.
    pub(crate) durable: u64,
    pub(crate) rewrites: u64,
}

impl Rig {
    pub(crate) fn open(disk: Arc<dyn Disk>, seed: u64) -> Result<Rig, OpenError> {
        Rig::open_at(disk, Path::new(DIR), seed)
    }

    pub(crate) fn open_at(disk: Arc<dyn Disk>, dir: &Path, seed: u64) -> Result<Rig, OpenError> {
        let mut store = recovery::recover(disk, dir, OPTIONS, true)?;
        let (checkpoint, index) = (&store.checkpoint, std::mem::take(&mut store.index));
        Ok(Rig {
            seed,
            rewriter: Rewriter::new(Arc::clone(&store.segments)),
            key_files: KeyFiles::new(Arc::clone(&store.segments), || {}),
            scrub: Scrub::new(Arc::clone(&store.segments)),
            applied: checkpoint.applied_index,
            revision: checkpoint.revision,
            compact: checkpoint.compact_revision,
            durable: checkpoint.applied_index,
            index: RwLock::new(index),
            pruning: None,
            captured: None,
            rewrites: 0,
            store,
        })
    }

    /// Applies the next entry.
    pub(crate) fn apply(&mut self) -> Result<(), Error> {
        let index = self.applied + 1;
        match entry(self.seed, index) {
            Entry::Txn(ops) => self.txn(&ops)?,
            Entry::Compact { back } => {
                let target = self.revision - back;
                if target > self.compact {
                    self.compact = target;
                    self.pruning = Some(Box::default());
                }
            }
        }
        self.applied = index;
        Ok(())
    }

    fn txn(&mut self, ops: &[Op]) -> Result<(), Error> {
        let main = self.revision + 1;
        let mut staged: HashMap<Vec<u8>, Version> = HashMap::new();
        let mut versions = Vec::new();
        for op in ops {
            let rev = Revision { main, sub: versions.len() as u32 };
            let latest = staged.get(op.key()).copied().or_else(|| self.index.read().latest(op.key()));
            let latest = latest.filter(|version| !version.is_tombstone());
            let version = match (op, latest) {
                (Op::Delete { .. }, None) => continue,
                (Op::Delete { key }, Some(_)) => {
                    Version { rev, create: 0, version: 0, loc: self.store.log.append_tombstone(rev, key) }
                }
                (Op::Put { key, value }, latest) => {
                    let (create, number) = latest.map_or((main, 1), |latest| (latest.create, latest.version + 1));
                    let kv = KvParts { key, create, version: number, value, lease: main % 3 };
                    Version { rev, create, version: number, loc: self.store.log.append_put(rev, kv) }
                }
            };
            staged.insert(op.key().to_vec(), version);
            versions.push((op.key(), version));
        }
        self.store.log.flush()?;
        for (key, version) in &versions {
            self.index.write().push(key, *version);
        }
        if !versions.is_empty() {
            self.revision = main;
        }
        Ok(())
    }

    /// Does something of what the slow thread does.
    pub(crate) fn maintain(&mut self, random: &mut Random) -> Result<(), Error> {
        match random.below(100) {
            0..15 if self.store.log.spare().needed() => self.store.log.spare().prepare(),
            0..15 => self.reap(1 + random.below(9000)),
            15..45 => {
                self.prune(1 + random.below(12) as usize);
                Ok(())
            }
            45..70 => self.rewrite(1 + random.below(3000)).map(|_| ()),
            70..82 => self.make_keys(1 + random.below(6000)).map(|_| ()),
            82..85 => self.scrub(1 + random.below(6000)).map(|_| ()),
            85..93 => {
                self.capture();
                Ok(())
            }
            93..100 => self.write_checkpoint(),
            _ => Ok(()),
        }
    }

    /// Gives back a part of a file.
    fn reap(&mut self, bytes: u64) -> Result<(), Error> {
        self.store.segments.reaper().step(bytes).map(|_| ()).map_err(unreaped)
    }

    /// One slice of pruning. False when there is nothing left.
    pub(crate) fn prune(&mut self, visit_max: usize) -> bool {
        let Some(after) = self.pruning.take() else { return false };
        let after = if after.is_empty() { None } else { Some(&after[..]) };
        let segments = &self.store.segments;
        let dead = &mut |loc, is_tombstone| segments.mark_dead(loc, is_tombstone);
        self.pruning = self.index.write().prune(self.compact, after, visit_max, dead);
        true
    }

    pub(crate) fn rewrite(&mut self, budget_bytes: u64) -> Result<Step, Error> {
        // Of a low disk now and then, when less is enough for a rewrite.
        let space = Space { is_low: self.applied.is_multiple_of(3), copy_max_bytes: u64::MAX };
        let step = self.rewriter.step(&self.index, self.revision, space, budget_bytes)?;
        self.rewrites += u64::from(step == Step::Finished);
        Ok(step)
    }

    /// A step of making key files.
    pub(crate) fn make_keys(&mut self, budget_bytes: u64) -> Result<Made, Error> {
        self.key_files.step(u64::MAX, budget_bytes)
    }

    /// A step of checking what the start has not read. False when there is nothing left.
    pub(crate) fn scrub(&mut self, budget_bytes: u64) -> Result<bool, Error> {
        self.scrub.step(budget_bytes).inspect_err(|error| self.store.segments.condemn(error))
    }

    pub(crate) fn capture(&mut self) {
        let content = Checkpoint {
            applied_index: self.applied,
            revision: self.revision,
            compact_revision: self.compact,
            ..Checkpoint::default()
        };
        self.captured = Some((content, self.store.log.listing()));
    }

    pub(crate) fn write_checkpoint(&mut self) -> Result<(), Error> {
        let Some((content, listing)) = self.captured.take() else { return Ok(()) };
        let applied = content.applied_index;
        self.store.checkpoints.write(content, listing)?;
        self.durable = applied;
        Ok(())
    }

    /// Prunes, rewrites and checkpoints until nothing is left to do.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        while self.prune(100) {}
        while self.rewrite(u64::MAX)? != Step::Idle {}
        while self.make_keys(u64::MAX)? != Made::Nothing {}
        while self.scrub(u64::MAX)? {}
        for _ in 0..2 {
            self.capture();
            self.write_checkpoint()?;
        }
        self.store.segments.reaper().finish().map_err(unreaped)
    }

    /// Checks the index and every value against the model, which must have applied the same entries. `is_pruned`: nothing that
    /// the compaction drops is left.
    pub(crate) fn check(&self, model: &Model, is_pruned: bool) {
        assert_eq!((self.applied, self.revision, self.compact), (model.applied, model.revision, model.compact));
        let index = self.index.read();
        let expected = model.versions();
        let mut bytes = 0;
        for (key, version, value) in &expected {
            let found =
                index.version_at(key, version.rev).unwrap_or_else(|| panic!("lost {key:?} at {:?}", version.rev));
            assert_eq!(Version { loc: version.loc, ..found }, *version, "{key:?}");
            let stored = self.store.segments.read(found.loc);
            let view = crate::log::KvView::parse(&stored).unwrap();
            assert_eq!((view.key, view.value), (&key[..], &value[..]));
            bytes += crate::log::record_bytes(found.loc.len as usize) as u64;
        }
        assert_eq!(index.live(), model.live());
        if is_pruned {
            assert_eq!(self.store.segments.live_bytes(), bytes);
            let keys: std::collections::BTreeSet<_> = expected.iter().map(|(key, ..)| key).collect();
            assert_eq!(index.keys(), keys.len());
        }
        let mut revisions: Vec<_> = expected.iter().map(|(_, version, _)| version.rev).collect();
        revisions.sort_unstable();
        let mut scan = self.store.segments.scan(0).map(|record| record.rev);
        for rev in revisions {
            assert!(scan.any(|found| found == rev), "the scan does not yield {rev:?}");
        }
    }
}

impl Rig {
    /// Checks what each segment counts as live and as graves. While records move, the sources do not count those that have.
    pub(crate) fn check_weights(&self) {
        if !self.rewriter.is_idle() {
            return;
        }
        let index = self.index.read();
        for segment in self.store.segments.order() {
            let (mut live, mut graves) = (0, 0);
            for stored in Walk::new(segment.published(), SEGMENT_HEADER_BYTES) {
                let stored = stored.unwrap();
                let bytes = stored.whole.len() as u64;
                match index.version_at(stored.view().unwrap().key, stored.rev) {
                    Some(_) => live += bytes,
                    None if stored.tombstone => graves += bytes,
                    None => {}
                }
            }
            assert_eq!((segment.live(), segment.graves()), (live, graves), "{segment:?}");
        }
    }
}

fn unreaped(error: ReapError) -> Error {
    Error::io(error.operation, &error.path)(error.source)
}

impl std::fmt::Debug for Rig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rig at {}", self.applied)
    }
}

/// How many of something a test is to try: a number in the environment, or else `usual`.
#[allow(clippy::disallowed_methods, reason = "how long a test is comes from the environment")]
pub(crate) fn wanted(name: &str, usual: u64) -> u64 {
    let given = std::env::var(name).ok().map(|number| number.parse());
    given.map_or(usual, |number| number.unwrap_or_else(|error| panic!("{name} is no number: {error}")))
}
