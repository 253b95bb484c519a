//! The bytes of the segments that a checkpoint covers.

use super::OpenError;
use crate::keyfile::{KeyFile, Misfit};
use crate::log::{Damage, SegmentEntry, check_header, key_file_name, segment_name};
use crate::upkeep::checkpoint::Checkpoint;
use disk::{Disk, Mapping, Mode};
use std::path::{Path, PathBuf};

/// One segment, as far as the checkpoint covers it.
pub(crate) struct Source {
    pub(crate) entry: SegmentEntry,
    pub(crate) path: PathBuf,
    pub(crate) file: std::sync::Arc<dyn disk::File>,
    pub(crate) mapping: Mapping,
    /// What is used instead of the records.
    pub(crate) keys: Option<KeyFile>,
    /// Why the key file that the checkpoint lists is not used.
    pub(crate) refused: Option<Misfit>,
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
        let source = Source { entry, path, file, mapping, keys: None, refused: None };
        let id = check_header(source.bytes()).map_err(OpenError::damage(&source.path))?;
        if id == entry.id {
            return Ok(source);
        }
        Err(OpenError::damage(&source.path)(Damage { offset: 12, what: "a segment under the name of another" }))
    }

    /// Opens the key files that the checkpoint lists, but for that of the last segment, which may take more records. One that is not what it
    /// should be costs nothing but the time to scan its segment.
    pub(crate) fn open_keys(disk: &dyn Disk, sources: &mut [Source]) {
        let Some((_, before)) = sources.split_last_mut() else { return };
        for source in before {
            let Some(crc) = source.entry.keys_crc else { continue };
            let path = source.path.with_file_name(key_file_name(source.entry.id));
            let file = disk.open(&path, Mode::Read).map_err(|_| Misfit("it cannot be opened"));
            match file.and_then(|file| KeyFile::open(file, &source.entry, crc)) {
                Ok(keys) => source.keys = Some(keys),
                Err(misfit) => source.refuse_keys(misfit),
            }
        }
    }

    /// Has the segment scanned.
    pub(crate) fn refuse_keys(&mut self, misfit: Misfit) {
        self.keys = None;
        self.refused = Some(misfit);
    }

    /// The bytes that the checkpoint covers.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.mapping.get(0, self.mapping.len()).unwrap_or_default()
    }
}
