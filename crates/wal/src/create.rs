//! Creating a log.

use crate::batch::Batch;
use crate::log::publish;
use crate::name::SegmentName;
use crate::terms::Terms;
use crate::{EntryRef, Error, Options, Spare, Wal, segment};
use api::{raftpb, walpb};
use bytes::Bytes;
use disk::Disk;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What a log begins with.
pub struct Contents<'a, 'e> {
    /// The state that the entries follow.
    pub state: &'a walpb::Snapshot,
    /// The entries after it.
    pub entries: &'a mut dyn Iterator<Item = EntryRef<'e>>,
    /// Term, vote and commit index of the member.
    pub hard_state: &'a raftpb::HardState,
}

impl Wal {
    /// True when `dir` holds a log. A directory in which [`Wal::create`] was interrupted does not.
    pub fn exists(disk: &dyn Disk, dir: &Path) -> Result<bool, Error> {
        match disk.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("list", dir)(error)),
            Ok(_) => Ok(!segment::list(disk, dir)?.0.is_empty()),
        }
    }

    /// Creates a log in `dir`, which is created if need be. `metadata` is an encoded `etcdserverpb.Metadata`, the same for
    /// the life of the log. When it returns, the log is durable if the parent of `dir` is; before that there is none.
    pub fn create(disk: Arc<dyn Disk>, dir: &Path, metadata: &[u8], options: Options) -> Result<Wal, Error> {
        let (state, hard_state) = (walpb::Snapshot::default(), raftpb::HardState::default());
        let first = Contents { state: &state, entries: &mut std::iter::empty(), hard_state: &hard_state };
        Wal::create_with(disk, dir, metadata, first, options)
    }

    /// As [`Wal::create`], with contents: there is a log with all of them, or none.
    pub fn create_with(
        disk: Arc<dyn Disk>,
        dir: &Path,
        metadata: &[u8],
        contents: Contents<'_, '_>,
        options: Options,
    ) -> Result<Wal, Error> {
        disk.create_dir(dir).map_err(Error::io("create", dir))?;
        let (segments, temporary) = segment::list(&*disk, dir)?;
        if !segments.is_empty() {
            return Err(Error::Exists(dir.into()));
        }
        for name in temporary {
            let path = dir.join(name);
            disk.remove(&path).map_err(Error::io("remove", &path))?;
        }
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        disk.sync_dir(parent).map_err(Error::io("sync", parent))?;

        let spare = Spare::new(disk.clone(), dir, options.segment_bytes);
        let prepared = spare.take()?;
        let name = SegmentName { sequence: 0, first_index: 0 };
        let mut batch = Batch::first(0, options.segment_bytes);
        batch.push_metadata(metadata);
        batch.push_snapshot(&walpb::Snapshot::default());
        let mut wal = Wal {
            disk,
            dir: dir.into(),
            options,
            metadata: Bytes::copy_from_slice(metadata),
            segments: [name].into(),
            file: prepared.file.clone(),
            offset: 0,
            segment_end: options.segment_bytes,
            batch,
            hard_state: raftpb::HardState::default(),
            snapshot: walpb::Snapshot::default(),
            last_index: 0,
            terms: Terms::default(),
            spare,
            poison: None,
        };
        if contents.state.index() > 0 {
            wal.save_snapshot(contents.state);
        }
        let hard_state = Some(contents.hard_state).filter(|state| **state != raftpb::HardState::default());
        wal.append(contents.entries, hard_state);
        let first = wal.batch.finish(name.sequence, 0);
        publish(&*wal.disk, &wal.spare.reaper(), &prepared, first, &dir.join(name.to_string()))?;
        wal.offset = first.len() as u64;
        wal.batch.clear();
        Ok(wal)
    }
}
