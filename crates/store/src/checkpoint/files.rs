//! The checkpoint files of a directory.

use super::encoding::{TEMPORARY_SUFFIX, checkpoint_name, encode_checkpoint};
use super::{Checkpoint, decode_checkpoint};
use crate::log::{Error, Listing, Segments};
use disk::{Disk, Mode};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Checkpoints that are kept.
pub(crate) const KEPT: usize = 2;

/// Writes checkpoints, keeps the newest two, and removes the segments that none of them needs. One owner; everything here
/// waits for the disk.
pub struct Checkpoints {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segments: Arc<Segments>,
    /// Oldest first.
    kept: Vec<Kept>,
}

/// A checkpoint file.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) applied_index: u64,
    /// Segments it lists.
    pub(crate) ids: Vec<u32>,
    /// Its length.
    pub(crate) bytes: u64,
}

impl Checkpoints {
    /// The checkpoints `kept` that were found in `dir`, oldest first.
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path, segments: Arc<Segments>, kept: Vec<Kept>) -> Checkpoints {
        Checkpoints { disk, dir: dir.to_path_buf(), segments, kept }
    }

    /// Writes a checkpoint: makes the listed segments durable, then the file under another name, then gives it its name. Then
    /// removes what is not needed any more. `content.segments` is filled in from the listing, which must have been taken at
    /// the same boundary between entries as the rest.
    ///
    /// After an error the member must end, but for a full disk, which leaves everything as it was.
    pub fn write(&mut self, mut content: Checkpoint, listing: Listing) -> Result<(), Error> {
        content.segments = listing.entries().to_vec();
        if let Some(contradiction) = content.contradiction() {
            panic!("{contradiction}");
        }
        listing.sync()?;
        let bytes = encode_checkpoint(&content);
        assert!(decode_checkpoint(&bytes).is_ok(), "a checkpoint that reads back as it was written");
        self.write_file(content.applied_index, &bytes)?;
        let ids = content.segments.iter().map(|entry| entry.id).collect();
        self.keep(Kept { applied_index: content.applied_index, ids, bytes: bytes.len() as u64 })?;
        self.segments.sweep(&self.listed())?;
        Ok(())
    }

    /// Index of the last entry that the older kept checkpoint covers: entries up to here are needed by no recovery.
    pub fn oldest_applied_index(&self) -> u64 {
        self.kept.first().map_or(0, |kept| kept.applied_index)
    }

    /// Index of the last entry that the newest checkpoint covers.
    pub fn newest_applied_index(&self) -> u64 {
        self.kept.last().map_or(0, |kept| kept.applied_index)
    }

    /// Free space that must stay on the disk for what the log and the checkpoints do on their own: the next segment, one
    /// rewrite, and one checkpoint (twice the size of the last one). What the WAL needs comes on top.
    pub fn needed_reserve_bytes(&self) -> u64 {
        let checkpoint = self.kept.last().map_or(0, |kept| 2 * kept.bytes).next_multiple_of(64 * 1024);
        self.segments.needed_reserve_bytes() + checkpoint
    }

    fn write_file(&self, applied_index: u64, bytes: &[u8]) -> Result<(), Error> {
        let path = self.dir.join(checkpoint_name(applied_index));
        let temporary = self.dir.join(checkpoint_name(applied_index) + TEMPORARY_SUFFIX);
        if let Err(error) = self.write_temporary(&temporary, bytes, &path) {
            // If it cannot be removed now, the next attempt does it, or recovery.
            self.disk.remove(&temporary).ok();
            return Err(error);
        }
        self.disk.sync_dir(&self.dir).map_err(Error::fatal("sync", &self.dir))
    }

    fn write_temporary(&self, temporary: &Path, bytes: &[u8], path: &Path) -> Result<(), Error> {
        match self.disk.remove(temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io("remove", temporary)(error)),
            _ => {}
        }
        let file = self.disk.open(temporary, Mode::Create).map_err(Error::io("create", temporary))?;
        file.write_at(bytes, 0).map_err(Error::io("write", temporary))?;
        file.sync_data().map_err(Error::io("sync", temporary))?;
        self.disk.rename(temporary, path).map_err(Error::io("rename", temporary))
    }

    fn keep(&mut self, new: Kept) -> Result<(), Error> {
        let newest = self.newest_applied_index();
        assert!(new.applied_index >= newest, "checkpoint {:x} after {newest:x}", new.applied_index);
        // After a rewrite with no entry applied since, the new file took the name of the last one.
        self.kept.retain(|kept| kept.applied_index != new.applied_index);
        self.kept.push(new);
        while self.kept.len() > KEPT {
            let path = self.dir.join(checkpoint_name(self.kept.remove(0).applied_index));
            self.disk.remove(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
    }

    fn listed(&self) -> HashSet<u32> {
        self.kept.iter().flat_map(|kept| kept.ids.iter().copied()).collect()
    }
}

impl std::fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoints").field("dir", &self.dir).field("kept", &self.kept).finish()
    }
}
