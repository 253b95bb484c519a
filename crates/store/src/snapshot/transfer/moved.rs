//! A store that was founded beside the running one, as a snapshot that can be swapped in.
//!
//! Opening it has checked every record and built its index, and its segments have numbers that no others of this member have. So nothing is
//! read or written again: each file is moved, and synced through a handle of this store's disk.

use super::intake::{check_ahead, make_room};
use super::manifest::check_applied;
use super::part::{Part, PartFile};
use super::prepared::write_checkpoint;
use super::{IntakeError, Prepared};
use crate::index::Index;
use crate::log::{Batch, Error, Origin, Segment, SegmentEntry, segment_name, write};
use crate::recovery::Opened;
use crate::state::Leases;
use crate::store::Store;
use crate::upkeep::checkpoint::Checkpoint;
use crate::upkeep::saved;
use disk::{Mode, WriteBack};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What becomes of an opened store, which is gone: nothing of it has a file open or mapped.
struct Staged {
    dir: PathBuf,
    content: Checkpoint,
    segments: Vec<Moving>,
    index: Index,
    leases: Leases,
}

/// A segment to be moved.
struct Moving {
    entry: SegmentEntry,
    batch: Batch,
    live: u64,
    graves: u64,
}

impl Prepared {
    /// Makes a snapshot of a store that was founded beside `store` ([`Founding::beside`](crate::Founding::beside)) on the same file system, and
    /// opened, and that nobody uses. Its files are moved into the directory of `store`, where no checkpoint lists them before the snapshot is
    /// installed; `moved` is told of the bytes of each. A transfer under way ends, and what an earlier one has left is given back.
    ///
    /// # Errors
    /// If the store contradicts itself or this member, or the disk refuses. What was moved is given back then.
    pub fn of_store(store: &Arc<Store>, staged: Opened, moved: &dyn Fn(u64)) -> Result<Prepared, IntakeError> {
        if let Some(lease) = staged.missing_lease {
            let what = format!("a key is on lease {lease:x}, which was not granted");
            return Err(IntakeError::Contradiction(what));
        }
        let second_index = Some(store.second_index());
        let Staged { dir, content, segments, index, leases } = Staged::of(staged);
        check_applied(&content)?;
        check_ahead(store, &content)?;
        if let Some(what) = content.contradiction() {
            return Err(IntakeError::Contradiction(what.into()));
        }
        segments.iter().try_for_each(|segment| check_number(store, segment.entry.id))?;
        store.shelf.begin();
        store.shelf.clear(store.segments.reaper());
        make_room(store, 0)?;
        let live_bytes = segments.iter().map(|segment| segment.live).sum();
        let mut parts = Vec::with_capacity(segments.len());
        let placed = place(store, &dir, segments, &mut parts, moved).and_then(|segments| {
            let checkpoint = write_checkpoint(store, &content)?;
            Ok((segments, checkpoint))
        });
        let (segments, checkpoint) = placed.inspect_err(|_| {
            parts.iter_mut().for_each(|part| part.discard(store.segments.reaper()));
        })?;
        Ok(Prepared {
            store: Arc::clone(store),
            content,
            checkpoint,
            segments,
            live_bytes,
            index,
            leases,
            parts,
            is_installed: false,
            second_index,
        })
    }
}

impl Staged {
    fn of(opened: Opened) -> Staged {
        let Opened { store, applier, .. } = opened;
        let listing = applier.log.listing();
        let segments: Vec<Moving> = listing.entries().iter().zip(listing.segments()).map(Moving::of).collect();
        let content = Checkpoint {
            segments: segments.iter().map(|segment| segment.entry).collect(),
            leases: store.leases.capture().iter().map(saved).collect(),
            auth: store.auth.capture().save(),
            installed: true,
            ..applier.content()
        };
        let index = std::mem::take(&mut *write(&store.index));
        let leases = store.leases.replace(Leases::new([]));
        Staged { dir: store.dir.clone(), content, segments, index, leases }
    }
}

impl Moving {
    fn of((entry, segment): (&SegmentEntry, &Arc<Segment>)) -> Moving {
        // Its index would be told by a key file otherwise, whose records nobody has looked at.
        assert!(segment.is_verified(), "all records of segment {:x} were checked when it was opened", entry.id);
        let entry = SegmentEntry { keys_crc: None, ..*entry };
        Moving { entry, batch: segment.batch(), live: segment.live(), graves: segment.graves() }
    }
}

/// Refuses a segment whose number is not one that `store` has given: its file would take another one's place.
fn check_number(store: &Store, id: u32) -> Result<(), IntakeError> {
    let path = store.dir.join(segment_name(id));
    let is_free = match store.disk.open(&path, Mode::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => store.segments.has_given(id),
        Err(error) => return Err(Error::io("open", &path)(error).into()),
        Ok(_) => false,
    };
    if is_free {
        return Ok(());
    }
    Err(IntakeError::Contradiction(format!("its segment {id:x} has the number of another one of this member")))
}

/// Moves the segments, which are durable then but for their new names. Those of `parts` have been moved.
fn place(
    store: &Store,
    dir: &Path,
    segments: Vec<Moving>,
    parts: &mut Vec<Part>,
    moved: &dyn Fn(u64),
) -> Result<Vec<Arc<Segment>>, IntakeError> {
    let mut placed = Vec::with_capacity(segments.len());
    for Moving { entry, batch, live, graves } in segments {
        let from = dir.join(segment_name(entry.id));
        let path = store.dir.join(segment_name(entry.id));
        let give_back = || store.segments.reaper().retire(path.clone(), entry.length, None);
        let renamed = store.disk.rename(&from, &path).map_err(Error::io("rename", &from));
        let file = renamed.and_then(|()| store.disk.open(&path, Mode::Write).map_err(Error::io("open", &path)));
        // Some disks report an error for what they have done.
        let file = file.inspect_err(|_| give_back())?;
        parts.push(Part::whole(entry, PartFile { id: entry.id, path: path.clone(), file: Arc::clone(&file) }));
        if file.len().map_err(Error::io("look at", &path))? < entry.length {
            let what = "it has become shorter since it was checked".to_string();
            return Err(IntakeError::Damaged { segment: entry.id, offset: entry.length, what });
        }
        // Whatever disk it was written through may have synced nothing.
        let synced = file.truncate(entry.length).and_then(|()| {
            WriteBack::default().advance(&*file, entry.length)?;
            file.sync_data()
        });
        synced.map_err(Error::io("sync", &path))?;
        let mapping = file.map(entry.length).map_err(Error::io("map", &path))?;
        let segment = Segment::new(entry.id, path, file, mapping, Origin::Sealed);
        segment.publish(&batch);
        segment.mark_synced(segment.len());
        segment.add_graves(graves);
        segment.add_live(live);
        placed.push(Arc::new(segment));
        moved(entry.length);
        (store.options.rest)();
    }
    // Before anything lists them: what removes the other directory must not find them there, even after a power cut.
    store.disk.sync_dir(dir).map_err(Error::io("sync", dir))?;
    Ok(placed)
}
