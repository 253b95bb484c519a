//! The bytes of the segments that a checkpoint covers.

use super::OpenError;
use crate::log::{Damage, SegmentEntry, check_header, segment_name};
use crate::upkeep::checkpoint::Checkpoint;
use disk::{Disk, Mapping, Mode};
use std::path::{Path, PathBuf};

/// One segment, as far as the checkpoint covers it.
pub(crate) struct Source {
    pub(crate) entry: SegmentEntry,
    pub(crate) path: PathBuf,
    pub(crate) file: std::sync::Arc<dyn disk::File>,
    pub(crate) mapping: Mapping,
}

impl Source {
    /// The segments of a checkpoint, all of them there and long enough.
    pub(crate) fn open_all(disk: &dyn Disk, dir: &Path, checkpoint: &Checkpoint) -> Result<Vec<Source>, OpenError> {
        checkpoint.segments.iter().map(|entry| Source::open(disk, dir, *entry)).collect()
    }

    fn open(disk: &dyn Disk, dir: &Path, entry: SegmentEntry) -> Result<Source, OpenError> {
        let path = dir.join(segment_name(entry.id));
        let file = match disk.open(&path, Mode::Write) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let what = "the segment is missing, but a checkpoint lists it".into();
                return Err(OpenError::Corrupt { file: path, offset: 0, what });
            }
            opened => opened.map_err(OpenError::io("open", &path))?,
        };
        let length = file.len().map_err(OpenError::io("measure", &path))?;
        if length < entry.length {
            let what = format!("the segment ends here, but a checkpoint lists {} bytes of it", entry.length);
            return Err(OpenError::Corrupt { file: path, offset: length, what });
        }
        let mapping = file.map(entry.length).map_err(OpenError::io("map", &path))?;
        let source = Source { entry, path, file, mapping };
        let id = check_header(source.bytes()).map_err(OpenError::damage(&source.path))?;
        if id == entry.id {
            return Ok(source);
        }
        Err(OpenError::damage(&source.path)(Damage { offset: 12, what: "a segment under the name of another" }))
    }

    /// The bytes that the checkpoint covers.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.mapping.get(0, self.mapping.len()).unwrap_or_default()
    }
}
