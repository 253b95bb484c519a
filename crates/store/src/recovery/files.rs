//! Which files there are in the directory of a store.

use super::OpenError;
use crate::checkpoint::{Checkpoint, TEMPORARY_SUFFIX, checkpoint_name, decode_checkpoint, parse_checkpoint_name};
use crate::log::{parse_segment_name, segment_name};
use disk::{Disk, Mode};
use std::path::{Path, PathBuf};

/// The files that belong to the store; all others are left alone.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) dir: PathBuf,
    /// Applied indexes of finished checkpoints, ascending.
    pub(super) checkpoints: Vec<u64>,
    /// Names of unfinished ones.
    pub(super) unfinished: Vec<String>,
    /// Ids of segments.
    pub(super) segments: Vec<u32>,
}

impl Files {
    pub(super) fn list(disk: &dyn Disk, dir: &Path) -> Result<Files, OpenError> {
        let (mut checkpoints, mut unfinished, mut segments) = (Vec::new(), Vec::new(), Vec::new());
        for name in disk.list(dir).map_err(OpenError::io("list", dir))? {
            if let Some(index) = parse_checkpoint_name(&name) {
                checkpoints.push(index);
            } else if let Some(id) = parse_segment_name(&name) {
                segments.push(id);
            } else if name.strip_suffix(TEMPORARY_SUFFIX).is_some_and(|name| parse_checkpoint_name(name).is_some()) {
                unfinished.push(name);
            }
        }
        checkpoints.sort_unstable();
        Ok(Files { dir: dir.to_path_buf(), checkpoints, unfinished, segments })
    }

    /// The finished checkpoints with their lengths, oldest first. A checkpoint gets its name only after its content is durable,
    /// so a damaged one is not the trace of a power cut, and what it said may be missing from the one before.
    pub(super) fn read_checkpoints(&self, disk: &dyn Disk) -> Result<Vec<(Checkpoint, u64)>, OpenError> {
        self.checkpoints.iter().map(|&index| self.read_checkpoint(disk, index)).collect()
    }

    /// Segments without any checkpoint: somebody removed the checkpoints. Starting over would remove the data too.
    pub(super) fn check_fresh(&self) -> Result<(), OpenError> {
        let Some(id) = self.segments.first() else { return Ok(()) };
        let what = "a segment, but no checkpoint that lists it".into();
        Err(OpenError::Corrupt { file: self.dir.join(segment_name(*id)), offset: 0, what })
    }

    /// An id that no segment here or in a checkpoint has.
    pub(super) fn next_id(&self, kept: &[(Checkpoint, u64)]) -> Result<u32, OpenError> {
        let listed = kept.iter().flat_map(|(checkpoint, _)| checkpoint.segments.iter().map(|entry| entry.id));
        let last = listed.chain(self.segments.iter().copied()).max().unwrap_or(0);
        // Ids count up by one: nobody gets there in a lifetime.
        let next = last.checked_add(1).filter(|next| *next < u32::MAX);
        next.ok_or_else(|| OpenError::Corrupt {
            file: self.dir.join(segment_name(last)),
            offset: 0,
            what: "no segment has such a number".into(),
        })
    }

    fn read_checkpoint(&self, disk: &dyn Disk, index: u64) -> Result<(Checkpoint, u64), OpenError> {
        let path = self.dir.join(checkpoint_name(index));
        let file = disk.open(&path, Mode::Read).map_err(OpenError::io("open", &path))?;
        let length = file.len().map_err(OpenError::io("measure", &path))?;
        let mapping = file.map(length).map_err(OpenError::io("map", &path))?;
        let bytes = mapping.get(0, mapping.len()).unwrap_or_default();
        let checkpoint = decode_checkpoint(bytes).map_err(OpenError::damage(&path))?;
        if checkpoint.applied_index == index {
            return Ok((checkpoint, length));
        }
        let what = format!("a checkpoint of entry {:x} under the name of another", checkpoint.applied_index);
        Err(OpenError::Corrupt { file: path, offset: 32, what })
    }
}
