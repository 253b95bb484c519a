//! Opening a store.

use super::{LeasedKeys, OpenError, Recovered, recover};
use crate::apply::Applier;
use crate::index::{Index, NEWEST};
use crate::log::RwLock;
use crate::mistake::Mistake;
use crate::options::Options;
use crate::read::Unpublished;
use crate::snapshot::transfer::Shelf;
use crate::state::auth::{Auth, AuthState};
use crate::state::{Alarms, Leases, Members};
use crate::store::Store;
use crate::types::Version;
use crate::upkeep::{HashCache, Maintenance, Pins, loaded_leases};
use crate::watch::Hub;
use api::{KeyRange, raftpb};
use disk::Disk;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

/// An open store: the read side, the write side, and from where the Raft log is to be replayed.
pub struct Opened {
    /// For readers.
    pub store: Arc<Store>,
    /// For the one thread that applies.
    pub applier: Applier,
    /// What was applied before.
    pub applied: Applied,
    /// Checkpoints that are damaged and were passed over, for the operator to see: the disk is not to be trusted.
    pub passed_over: Vec<OpenError>,
    /// Key files that are not what they should be, and why: their segments were scanned.
    pub refused_keys: Vec<(PathBuf, &'static str)>,
    /// Key files that were used.
    pub used_keys: usize,
    /// A lease that some key is on and that was not granted: only in a store that was made of other files.
    pub(crate) missing_lease: Option<i64>,
}

/// The last entry that an opened store has applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// Its index; 0 in a new store.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Raft's membership after it.
    pub conf_state: raftpb::ConfState,
    /// The store is a snapshot from another member, or was made of other files: the Raft log may not know of it.
    pub installed: bool,
}

/// Opens the store in `dir`, or creates one there.
pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: Options) -> Result<Opened, OpenError> {
    let recovered = recover(Arc::clone(&disk), dir, options.log, options.uses_key_files)?;
    let Recovered { checkpoint, checkpoints, log, segments, index, leased, passed_over, checkpoints_due, .. } =
        recovered;
    let Recovered { refused, used_keys, .. } = recovered;
    let leases = Leases::new(loaded_leases(&checkpoint));
    // A key's lease exists as long as the key does, so there is none that is missing in a store of our own.
    let missing_lease = if Mistake::StartDetachesKeys.is_planted() { None } else { attach(&leases, leased, || {}) };
    let revision = if Mistake::RevisionFromKeys.is_planted() { newest_key(&index) } else { checkpoint.revision };
    let maintenance = Maintenance::new(&segments, checkpoint.finished_compaction(), checkpoints_due, options.rest);
    maintenance.resume(checkpoint.compact_revision);
    let reader = Arc::clone(&segments);
    let read = Box::new(move |loc| reader.try_read(loc).map(|value| value.into_bytes()));
    let store = Arc::new(Store {
        index: RwLock::new(index),
        unpublished: Unpublished::default(),
        segments,
        revision: AtomicI64::new(revision),
        compact_revision: AtomicI64::new(checkpoint.compact_revision),
        pins: Pins::default(),
        leases,
        alarms: RwLock::new(Alarms::new(checkpoint.alarms.iter().copied())),
        // The applier, which is made at once, counts them.
        alarm_count: AtomicUsize::new(0),
        // What a checkpoint says is checked when it is read.
        auth: Auth::new(AuthState::load(&checkpoint.auth).unwrap_or_default()),
        members: RwLock::new(Members::load(&checkpoint)),
        hub: Hub::new(revision, read, options.watch),
        hashes: HashCache::default(),
        oldest_checkpoint: AtomicU64::new(checkpoints.oldest_applied_index()),
        checkpoints: Mutex::new(checkpoints),
        maintenance,
        shelf: Shelf::default(),
        generation: AtomicU64::new(0),
        disk_is_low: AtomicBool::new(false),
        second_indexes: Arc::default(),
        memory_is_low: AtomicBool::new(false),
        disk_free_bytes: AtomicU64::new(0),
        disk_reserve_bytes: AtomicU64::new(0),
        disk_floor: AtomicU64::new(0),
        copy_max_bytes: AtomicU64::new(u64::MAX),
        claimed_bytes: AtomicU64::new(0),
        claimed_users_bytes: AtomicU64::new(0),
        claimed_alarms: AtomicU64::new(0),
        headroom_bytes: AtomicU64::new(u64::MAX),
        released_bytes: AtomicU64::new(0),
        reserved_bytes: AtomicU64::new(0),
        disk,
        dir: dir.to_path_buf(),
        options,
    });
    let applied = Applied {
        index: checkpoint.applied_index,
        term: checkpoint.applied_term,
        conf_state: checkpoint.conf_state,
        installed: checkpoint.installed,
    };
    let mut applier = Applier::new(Arc::clone(&store), log, applied.index, applied.term, applied.conf_state.clone());
    applier.installed_at = applied.installed.then_some(applied.index);
    Ok(Opened { store, applier, applied, passed_over, refused_keys: refused, used_keys, missing_lease })
}

/// The newest revision of a key that is there: for [`Mistake::RevisionFromKeys`].
fn newest_key(index: &Index) -> i64 {
    let mut newest = 1;
    let visit = &mut |_: &[u8], version: &Version| {
        newest = version.rev.main.max(newest);
        ControlFlow::Continue(())
    };
    index.scan(KeyRange::From(&[]), NEWEST, None, usize::MAX, visit);
    newest
}

/// Attaches the keys to their leases. Returns a lease that some key is on and that was not granted; without any leases nothing is looked at.
pub(crate) fn attach(leases: &Leases, leased: LeasedKeys, rest: fn()) -> Option<i64> {
    let mut missing = None;
    if leases.count() == 0 {
        return missing;
    }
    for part in leased.into_parts() {
        for (key, lease) in part.iter() {
            rest();
            leases.attach(key, lease);
            if !leases.exists(lease) {
                missing = Some(lease);
            }
        }
    }
    missing
}
