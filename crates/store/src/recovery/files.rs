//! The files in the directory of a store.

use super::OpenError;
use crate::log::{INTAKE_SUFFIX, parse_intake_name, parse_key_file_name, parse_segment_name, segment_name};
use crate::upkeep::checkpoint::{Checkpoint, CheckpointName, KEPT, TEMPORARY_SUFFIX, decode_checkpoint};
use disk::{Disk, Mode};
use std::path::{Path, PathBuf};

/// The files that belong to the store; all others are left alone.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) dir: PathBuf,
    /// Finished checkpoints, ascending.
    pub(super) checkpoints: Vec<CheckpointName>,
    /// Names of unfinished ones, and of what was received of another member's state.
    pub(super) unfinished: Vec<String>,
    /// Ids of segments.
    pub(super) segments: Vec<u32>,
    /// Ids of segments that have key files, or had some.
    pub(super) keys: Vec<u32>,
}

/// A checkpoint that was read.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) name: CheckpointName,
    pub(super) content: Checkpoint,
    /// Length of the file.
    pub(super) bytes: u64,
}

/// The checkpoints that were found, by what becomes of them.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Those to be kept, oldest first; the last one is what the store opens at.
    pub(super) kept: Vec<Stored>,
    /// Those that are older still.
    pub(super) old: Vec<CheckpointName>,
    /// Those that cannot be read, newest first.
    pub(super) damaged: Vec<(CheckpointName, OpenError)>,
}

impl Found {
    /// True when the newest checkpoint is damaged.
    pub(super) fn is_behind(&self) -> bool {
        match (self.damaged.first(), self.kept.last()) {
            (Some((damaged, _)), Some(newest)) => *damaged > newest.name,
            _ => false,
        }
    }
}

impl Files {
    pub(super) fn list(disk: &dyn Disk, dir: &Path) -> Result<Files, OpenError> {
        let (mut checkpoints, mut unfinished, mut segments, mut keys) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for name in disk.list(dir).map_err(OpenError::io("list", dir))? {
            if let Some(name) = CheckpointName::parse(&name) {
                checkpoints.push(name);
            } else if let Some(id) = parse_segment_name(&name) {
                segments.push(id);
            } else if let Some(id) = parse_key_file_name(&name) {
                keys.push(id);
            } else if is_unfinished(&name) {
                unfinished.push(name);
            }
        }
        checkpoints.sort_unstable();
        Ok(Files { dir: dir.to_path_buf(), checkpoints, unfinished, segments, keys })
    }

    /// The newest checkpoints that can be read. A checkpoint gets its name only after its content is durable, so a damaged one is
    /// not the trace of a power cut. One may be damaged: the Raft log reaches back to the older of the two that are kept.
    pub(super) fn read_checkpoints(&self, disk: &dyn Disk) -> Result<Found, OpenError> {
        let mut found = Found::default();
        for &name in self.checkpoints.iter().rev() {
            // Checkpoints older than an installed snapshot belong to the state that it replaced.
            let is_first = found.kept.first().is_some_and(|stored| stored.content.installed);
            if found.kept.len() == KEPT || is_first {
                found.old.push(name);
                continue;
            }
            match self.read_checkpoint(disk, name) {
                Ok(stored) => found.kept.insert(0, stored),
                Err(error @ OpenError::Corrupt { .. }) => found.damaged.push((name, error)),
                Err(error) => return Err(error),
            }
        }
        let newest = found.kept.last().map(|stored| stored.name);
        let beyond = found.damaged.iter().filter(|(name, _)| newest.is_none_or(|newest| *name > newest)).count();
        if beyond >= KEPT || newest.is_none() && beyond > 0 {
            return Err(found.damaged.swap_remove(0).1);
        }
        Ok(found)
    }

    /// Refuses segments without any checkpoint: the checkpoints were removed by hand. Starting over would remove the data too.
    pub(super) fn check_fresh(&self) -> Result<(), OpenError> {
        let Some(id) = self.segments.first() else { return Ok(()) };
        let what = "a segment, but no checkpoint that lists it".into();
        Err(OpenError::Corrupt { file: self.dir.join(segment_name(*id)), offset: 0, what })
    }

    /// An id that no segment here or in a checkpoint has.
    pub(super) fn next_id(&self, kept: &[Stored]) -> Result<u32, OpenError> {
        let listed = kept.iter().flat_map(|stored| stored.content.segments.iter().map(|entry| entry.id));
        // A file that is still to be given back has its name until then.
        let leftovers = self.unfinished.iter().filter_map(|name| parse_intake_name(name));
        let last = listed.chain(self.segments.iter().copied()).chain(leftovers).max().unwrap_or(0);
        // Ids count up by one: half of the range is out of reach, and the other half remains for this store.
        let next = last.checked_add(1).filter(|next| *next < u32::MAX / 2);
        next.ok_or_else(|| OpenError::Corrupt {
            file: self.dir.join(segment_name(last)),
            offset: 0,
            what: "no segment has such a number".into(),
        })
    }

    fn read_checkpoint(&self, disk: &dyn Disk, name: CheckpointName) -> Result<Stored, OpenError> {
        let path = self.dir.join(name.to_string());
        let file = disk.open(&path, Mode::Read).map_err(OpenError::io("open", &path))?;
        let bytes = file.len().map_err(OpenError::io("measure", &path))?;
        let mapping = file.map(bytes).map_err(OpenError::io("map", &path))?;
        let content = decode_checkpoint(mapping.get(0, mapping.len()).unwrap_or_default());
        let content = content.map_err(OpenError::damage(&path))?;
        if content.applied_index == name.applied_index {
            return Ok(Stored { name, content, bytes });
        }
        let what = format!("a checkpoint of entry {:x} under the name of another", content.applied_index);
        Err(OpenError::Corrupt { file: path, offset: 32, what })
    }
}

/// Bytes of the files in the directory `dir` of a store that are no data: an opened store gives them back.
pub fn leftover_bytes(disk: &dyn Disk, dir: &Path) -> u64 {
    let names = disk.list(dir).unwrap_or_default().into_iter().filter(|name| is_unfinished(name));
    let lengths = names.filter_map(|name| disk.open(&dir.join(name), Mode::Own).and_then(|file| file.len()).ok());
    lengths.fold(0, u64::saturating_add)
}

fn is_unfinished(name: &str) -> bool {
    let is_checkpoint = |stem| CheckpointName::parse(stem).is_some();
    let is_segment = |stem| parse_segment_name(stem).is_some();
    name.strip_suffix(TEMPORARY_SUFFIX).is_some_and(is_checkpoint)
        || name.strip_suffix(INTAKE_SUFFIX).is_some_and(|stem| is_checkpoint(stem) || is_segment(stem))
}

#[cfg(test)]
mod tests {
    use super::is_unfinished;
    use crate::log::{INTAKE_SUFFIX, intake_checkpoint_name, parse_intake_name, segment_name};

    #[test]
    fn what_is_given_back_has_names_that_every_version_removes() {
        for number in [0, 7, 0xabcd_ef01] {
            let names = [segment_name(number) + INTAKE_SUFFIX, intake_checkpoint_name(number)];
            for name in names {
                assert!(is_unfinished(&name), "{name}");
                assert_eq!(parse_intake_name(&name), Some(number).filter(|number| *number < u32::MAX / 2 - 1));
            }
        }
    }
}
