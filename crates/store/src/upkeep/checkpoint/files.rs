//! The checkpoint files of a directory.

use super::encoding::{CheckpointName, TEMPORARY_SUFFIX, encode_checkpoint};
use super::{Checkpoint, decode_checkpoint};
use crate::log::{Error, Listing, Segments};
use crate::mistake::Mistake;
use api::Message;
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
    doubted: Option<Doubted>,
}

/// A checkpoint file.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) name: CheckpointName,
    /// Segments it lists.
    pub(crate) ids: Vec<u32>,
    /// Its length.
    pub(crate) bytes: u64,
}

/// Damaged checkpoints that recovery passed over. They and all that they may have listed stay until as many checkpoints as are kept
/// were written.
#[derive(Debug)]
pub(crate) struct Doubted {
    /// Their files.
    pub(crate) names: Vec<CheckpointName>,
    /// Segments that no other checkpoint lists.
    pub(crate) ids: Vec<u32>,
    /// Checkpoints written since.
    pub(crate) written: usize,
}

impl Checkpoints {
    /// The checkpoints `kept` that were found in `dir`, oldest first, and those that cannot be read.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segments: Arc<Segments>,
        kept: Vec<Kept>,
        doubted: Option<Doubted>,
    ) -> Checkpoints {
        Checkpoints { disk, dir: dir.to_path_buf(), segments, kept, doubted }
    }

    /// Writes a checkpoint: makes the listed segments durable, then the file under another name, then gives it its name. Then
    /// removes what is not needed any more. `content.segments` is filled in from the listing, which must have been taken at
    /// the same boundary between entries as the rest.
    ///
    /// After an error the member must end, but for a full disk, which leaves everything as it was.
    pub fn write(&mut self, mut content: Checkpoint, listing: Listing) -> Result<(), Error> {
        content.segments = listing.entries().to_vec();
        if let Some(contradiction) = content.contradiction() {
            panic!("this member's own state makes no checkpoint: {contradiction}");
        }
        failpoint::point!(COMMIT_BEFORE_PRE_COMMIT_HOOK);
        if !Mistake::CheckpointBeforeSegments.is_planted() {
            listing.sync()?;
        }
        let bytes = encode_checkpoint(&content);
        assert!(decode_checkpoint(&bytes).is_ok(), "a checkpoint that reads back as it was written");
        let newest = self.kept.last().map(|kept| kept.name);
        let name = newest.map_or(CheckpointName::first(content.applied_index), |name| name.next(content.applied_index));
        assert!(newest.is_none_or(|newest| name > newest), "checkpoint {name} after {newest:?}");
        self.write_file(name, &bytes)?;
        failpoint::point!(COMMIT_AFTER_PRE_COMMIT_HOOK);
        let ids = content.segments.iter().map(|entry| entry.id).collect();
        self.keep(Kept { name, ids, bytes: bytes.len() as u64 })?;
        self.settle_doubts(name)?;
        self.segments.sweep(&self.listed())?;
        Ok(())
    }

    /// Gives the checkpoint of a snapshot from another member its name, and removes those of the state it replaces. Everything it
    /// lists is durable, and so is the file `temporary`, whose bytes it has. After an error the member must end.
    pub(crate) fn install(&mut self, temporary: &Path, content: &Checkpoint) -> Result<(), Error> {
        let name = CheckpointName::first(content.applied_index);
        let newest = self.kept.last().map(|kept| kept.name);
        assert!(content.installed && newest.is_none_or(|newest| name > newest), "checkpoint {name} after {newest:?}");
        self.disk.rename(temporary, &self.dir.join(name.to_string())).map_err(Error::fatal("rename", temporary))?;
        self.segments.reaper().sync_names().map_err(Error::fatal("sync", &self.dir))?;
        let ids = content.segments.iter().map(|entry| entry.id).collect();
        let replaced = std::mem::replace(&mut self.kept, vec![Kept { name, ids, bytes: content.encoded_len() as u64 }]);
        let doubted = self.doubted.take().map(|doubted| doubted.names).unwrap_or_default();
        let before = replaced.into_iter().map(|kept| kept.name).chain(doubted);
        for replaced in before.filter(|before| *before != name) {
            self.remove(replaced)?;
        }
        Ok(())
    }

    /// Removes the files of segments that nothing needs any more.
    /// True when something is left that no checkpoint lists.
    pub(crate) fn sweep(&self) -> Result<bool, Error> {
        self.segments.sweep_settled(&self.listed())
    }

    /// Index of the last entry that the older kept checkpoint covers: entries up to here are needed by no recovery.
    pub fn oldest_applied_index(&self) -> u64 {
        self.kept.first().map_or(0, |kept| kept.name.applied_index)
    }

    /// Index of the last entry that the newest checkpoint covers.
    pub fn newest_applied_index(&self) -> u64 {
        self.kept.last().map_or(0, |kept| kept.name.applied_index)
    }

    /// Free space that must stay on the disk for what the log and the checkpoints do on their own: the next segment, one
    /// rewrite, and one checkpoint (twice the size of the last one). What the WAL needs comes on top.
    pub fn needed_reserve_bytes(&self) -> u64 {
        let checkpoint = self.kept.last().map_or(0, |kept| 2 * kept.bytes).next_multiple_of(64 * 1024);
        self.segments.needed_reserve_bytes() + checkpoint
    }

    fn write_file(&self, name: CheckpointName, bytes: &[u8]) -> Result<(), Error> {
        let path = self.dir.join(name.to_string());
        let temporary = self.dir.join(name.to_string() + TEMPORARY_SUFFIX);
        if let Err(error) = self.write_temporary(&temporary, bytes, &path) {
            // If it cannot be removed now, the next attempt does it, or recovery.
            self.disk.remove(&temporary).ok();
            return Err(error);
        }
        failpoint::point!(CHECKPOINT_AFTER_RENAME);
        if Mistake::CheckpointNameNotSynced.is_planted() {
            return Ok(());
        }
        self.segments.reaper().sync_names().map_err(Error::fatal("sync", &self.dir))
    }

    fn write_temporary(&self, temporary: &Path, bytes: &[u8], path: &Path) -> Result<(), Error> {
        match self.disk.remove(temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io("remove", temporary)(error)),
            _ => {}
        }
        let file = self.disk.open(temporary, Mode::Create).map_err(Error::io("create", temporary))?;
        disk::write_behind(&*file, bytes).map_err(Error::io("write", temporary))?;
        file.sync_data().map_err(Error::io("sync", temporary))?;
        failpoint::point!(CHECKPOINT_BEFORE_RENAME);
        self.disk.rename(temporary, path).map_err(Error::io("rename", temporary))
    }

    fn keep(&mut self, new: Kept) -> Result<(), Error> {
        self.kept.push(new);
        while self.kept.len() > KEPT {
            // After an error it is still one that is kept.
            self.kept.first().map_or(Ok(()), |oldest| self.remove(oldest.name))?;
            self.kept.remove(0);
        }
        Ok(())
    }

    /// Removes damaged checkpoints once they cannot be needed any more. One of them may just have been replaced by `new`.
    fn settle_doubts(&mut self, new: CheckpointName) -> Result<(), Error> {
        let Some(doubted) = &mut self.doubted else { return Ok(()) };
        doubted.names.retain(|name| *name != new);
        doubted.written += 1;
        if doubted.written < KEPT {
            return Ok(());
        }
        for name in self.doubted.take().map(|doubted| doubted.names).unwrap_or_default() {
            self.remove(name)?;
        }
        Ok(())
    }

    /// Takes the checkpoint's name from its file, which may be large, and has it given back.
    fn remove(&self, name: CheckpointName) -> Result<(), Error> {
        self.segments.retire_named(&name.to_string())
    }

    /// Segments whose files must stay.
    fn listed(&self) -> HashSet<u32> {
        let doubted = self.doubted.iter().flat_map(|doubted| &doubted.ids);
        self.kept.iter().flat_map(|kept| &kept.ids).chain(doubted).copied().collect()
    }
}

impl std::fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoints").field("dir", &self.dir).field("kept", &self.kept).finish()
    }
}
