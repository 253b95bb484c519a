//! A received snapshot, checked and rebuilt beside the running one.

use super::IntakeError;
use super::part::{Part, PartFile};
use crate::index::Index;
use crate::log::{Error, Origin, Segment, SegmentEntry, intake_checkpoint_name, segment_name};
use crate::recovery::{LeasedKeys, OpenError, Rebuilt, Share, Source, attach, rebuild};
use crate::sorting::Crew;
use crate::state::Leases;
use crate::store::{SecondIndex, Store};
use crate::upkeep::checkpoint::{Checkpoint, encode_checkpoint};
use crate::upkeep::saved;
use api::raftpb::ConfState;
use disk::Mode;
use std::path::PathBuf;
use std::sync::Arc;

/// A snapshot that [`Applier::install`](crate::Applier::install) can swap in: durable, every record checked, the index rebuilt.
/// Dropped instead, it leaves the segments that were sent to the next transfer.
pub struct Prepared {
    pub(super) store: Arc<Store>,
    /// With the segments under this member's numbers.
    pub(super) content: Checkpoint,
    /// The checkpoint's file under a temporary name.
    pub(super) checkpoint: PathBuf,
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) live_bytes: u64,
    pub(super) index: Index,
    pub(super) leases: Leases,
    /// Files to be given back. Empty once the snapshot is installed.
    pub(super) parts: Vec<Part>,
    pub(super) is_installed: bool,
    /// Until the index that this one replaces is dropped.
    pub(super) second_index: Option<SecondIndex>,
}

/// Checks and rebuilds the snapshot `content` with these `leases`, whose segments are whole in `parts`. Takes the parts if all is well.
pub(super) fn prepare(
    store: &Arc<Store>,
    mut content: Checkpoint,
    leases: Leases,
    parts: &mut Vec<Part>,
) -> Result<Prepared, IntakeError> {
    let second_index = Some(store.second_index());
    let files: Vec<PartFile> = parts.iter().filter_map(|part| part.file.clone()).collect();
    assert!(files.len() == parts.len(), "a segment that is whole has a file");
    for (entry, file) in content.segments.iter_mut().zip(&files) {
        *entry = SegmentEntry { id: file.id, body_crc: None, keys_crc: None, ..*entry };
    }
    content.installed = true;
    if content.lease_table.take().is_some() {
        content.leases = leases.capture().iter().map(saved).collect();
    }
    // The index is built as the compaction leaves it, even if the sender has not finished it.
    content.compacted = None;
    let mut sources = open_sources(&content, &files)?;
    let Rebuilt { index, shares, leased } =
        rebuild(&mut sources, content.compact_revision, Crew::of_one(store.options.rest)).map_err(|error| {
            let at = files
                .iter()
                .position(|file| matches!(&error, OpenError::Corrupt { file: path, .. } if *path == file.path));
            let damaged = at.and_then(|at| parts.get_mut(at));
            refused(
                error,
                damaged.map(|part| {
                    let segment = part.entry.id;
                    // The sender's checksum was right, so this is what it has. It may have something else next time.
                    part.discard(store.segments.reaper());
                    segment
                }),
            )
        })?;
    check_leases(&leases, leased, store.options.rest)?;
    for part in parts.iter_mut() {
        name(store, part)?;
    }
    let checkpoint = write_checkpoint(store, &content)?;
    let live_bytes = shares.iter().map(|share| share.live).sum();
    let segments = sources.into_iter().zip(&shares).map(|(source, share)| segment(store, source, share));
    Ok(Prepared {
        segments: segments.collect(),
        store: Arc::clone(store),
        content,
        checkpoint,
        live_bytes,
        index,
        leases,
        parts: std::mem::take(parts),
        is_installed: false,
        second_index,
    })
}

fn open_sources(content: &Checkpoint, files: &[PartFile]) -> Result<Vec<Source>, IntakeError> {
    let open = |(entry, file): (&SegmentEntry, &PartFile)| {
        let mapping = file.file.map(entry.length).map_err(Error::io("map", &file.path))?;
        Ok(Source {
            entry: *entry,
            path: file.path.clone(),
            file: Arc::clone(&file.file),
            mapping,
            keys: None,
            refused: None,
        })
    };
    content.segments.iter().zip(files).map(open).collect()
}

fn refused(error: OpenError, segment: Option<u32>) -> IntakeError {
    match (error, segment) {
        (OpenError::Corrupt { offset, what, .. }, Some(segment)) => IntakeError::Damaged { segment, offset, what },
        (OpenError::Log(error), _) => IntakeError::Log(error),
        (OpenError::Io { action, path, source }, _) => IntakeError::Log(Error::io(action, &path)(source)),
        (error, None) => IntakeError::Contradiction(error.to_string()),
    }
}

/// Attaches the keys to their leases, all of which must be there.
fn check_leases(leases: &Leases, leased: LeasedKeys, rest: fn()) -> Result<(), IntakeError> {
    match attach(leases, leased, rest) {
        Some(missing) => {
            Err(IntakeError::Contradiction(format!("a key is on lease {missing:x}, which was not granted")))
        }
        None => Ok(()),
    }
}

/// Gives a segment the name under which the checkpoint lists it. Before that a start removes the file.
fn name(store: &Store, part: &mut Part) -> Result<(), IntakeError> {
    let Some(file) = &mut part.file else { return Ok(()) };
    let path = store.dir.join(segment_name(file.id));
    if file.path != path {
        store.disk.rename(&file.path, &path).map_err(Error::io("rename", &file.path))?;
        file.path = path;
    }
    Ok(())
}

/// Writes the checkpoint under a name that nothing else has, and makes it durable with the names of the segments that it lists.
pub(super) fn write_checkpoint(store: &Store, content: &Checkpoint) -> Result<PathBuf, IntakeError> {
    let number = store.segments.new_id();
    let path = store.dir.join(intake_checkpoint_name(number));
    let write = || {
        let file = store.disk.open(&path, Mode::Create).map_err(Error::io("create", &path))?;
        disk::write_behind(&*file, &encode_checkpoint(content)).map_err(Error::io("write", &path))?;
        file.sync_data().map_err(Error::io("sync", &path))?;
        failpoint::point!(SNAP_DB_RENAME_BEFORE_DIR_SYNC);
        failpoint::text!(SNAP_DB_DIR_SYNC_ERROR, |text| {
            Err(Error::io("sync", &store.dir)(std::io::Error::other(text)))
        });
        store.segments.reaper().sync_names().map_err(Error::io("sync", &store.dir))
    };
    match write() {
        Ok(()) => Ok(path),
        Err(error) => {
            // If it stays, the next open removes it.
            store.disk.remove(&path).ok();
            Err(error.into())
        }
    }
}

fn segment(store: &Store, source: Source, share: &Share) -> Arc<Segment> {
    let path = store.dir.join(segment_name(source.entry.id));
    let segment = Segment::new(source.entry.id, path, source.file, source.mapping, Origin::Sealed);
    segment.publish(&share.batch);
    segment.mark_synced(segment.len());
    segment.add_graves(share.graves);
    segment.add_live(share.live);
    Arc::new(segment)
}

impl Prepared {
    /// Index of the last entry the snapshot covers.
    pub fn index(&self) -> u64 {
        self.content.applied_index
    }

    /// Term of that entry.
    pub fn term(&self) -> u64 {
        self.content.applied_term
    }

    /// Raft's membership after it.
    pub fn conf_state(&self) -> &ConfState {
        &self.content.conf_state
    }

    /// The revision it is at.
    pub fn revision(&self) -> i64 {
        self.content.revision
    }

    /// Whether this member's revision, or its compaction, has gone beyond the snapshot's since the transfer began. Where the snapshot
    /// covers more entries than this member has applied, no honest member sends one like that.
    pub fn is_overtaken(&self) -> bool {
        self.content.revision < self.store.revision() || self.content.compact_revision < self.store.compact_revision()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if !self.is_installed {
            let reaper = self.store.segments.reaper();
            reaper.retire(self.checkpoint.clone(), 0, None);
            self.store.shelf.put(reaper, self.parts.drain(..));
        }
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prepared({}, revision {}, {} segments)", self.index(), self.revision(), self.segments.len())
    }
}
