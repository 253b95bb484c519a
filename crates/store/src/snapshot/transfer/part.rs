//! One segment that is being received.

use super::{INTAKE_SUFFIX, IntakeError};
use crate::log::{Error, SEGMENT_HEADER_BYTES, SegmentEntry, Segments, check_header, segment_header, segment_name};
use disk::{File, Mode, Reaper};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes after which the file is synced, so that the log's own syncs, and those of others on the same disk, never wait for much.
const SYNC_EVERY_BYTES: u64 = 1 << 20;

/// A segment of the sender in a file of this member. Its bytes come in order.
pub(super) struct Part {
    /// As the sender lists it.
    pub(super) entry: SegmentEntry,
    /// Bytes received, header included.
    pub(super) written: u64,
    head: [u8; SEGMENT_HEADER_BYTES],
    crc: u32,
    synced: u64,
    pub(super) file: Option<PartFile>,
}

/// Its file, once there is something to write.
#[derive(Clone)]
pub(super) struct PartFile {
    /// This member's number of the segment.
    pub(super) id: u32,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
}

impl Part {
    pub(super) fn new(entry: SegmentEntry) -> Part {
        Part { entry, written: 0, head: [0; SEGMENT_HEADER_BYTES], crc: 0, synced: 0, file: None }
    }

    /// A segment that is whole in a file of this member.
    pub(super) fn whole(entry: SegmentEntry, file: PartFile) -> Part {
        Part { written: entry.length, synced: entry.length, file: Some(file), ..Part::new(entry) }
    }

    /// The same segment under the number that another checkpoint lists it with.
    pub(super) fn listed_as(self, entry: SegmentEntry) -> Part {
        Part { entry, ..self }
    }

    /// Forgets what was received.
    pub(super) fn discard(&mut self, reaper: &Reaper) {
        if let Some(file) = self.file.take() {
            // Whatever its name is by now: no checkpoint lists it, so that the next open removes it if it is left.
            reaper.retire(file.path, self.entry.length, None);
        }
        *self = Part::new(self.entry);
    }

    pub(super) fn is_whole(&self) -> bool {
        self.written == self.entry.length
    }

    /// Whether this segment, which is whole, is what `other` lists.
    pub(super) fn is_equal(&self, other: &SegmentEntry) -> bool {
        self.is_whole() && SegmentEntry { id: other.id, ..self.entry } == *other
    }

    /// Takes the next bytes. When they are the last ones the whole is compared with the sender's checksum, and durable.
    pub(super) fn write(&mut self, segments: &Segments, offset: u64, bytes: &[u8]) -> Result<(), IntakeError> {
        let (segment, total) = (self.entry.id, self.entry.length);
        let length = bytes.len() as u64;
        if offset != self.written || length > total - offset {
            return Err(IntakeError::Misplaced { segment, offset, length, expected: self.written, total });
        }
        let mut body = bytes;
        if offset < SEGMENT_HEADER_BYTES as u64 {
            let start = offset as usize;
            let (head, rest) = bytes.split_at(bytes.len().min(SEGMENT_HEADER_BYTES - start));
            self.head[start..start + head.len()].copy_from_slice(head);
            body = rest;
            if start + head.len() == SEGMENT_HEADER_BYTES {
                self.check_head()?;
            }
        }
        if !body.is_empty() {
            let at = self.written + (bytes.len() - body.len()) as u64;
            let file = self.file(segments)?;
            file.file.write_at(body, at).map_err(Error::io("write", &file.path))?;
            self.crc = crc32c::crc32c_append(self.crc, body);
        }
        self.written += length;
        if self.is_whole() && self.entry.body_crc != Some(self.crc) {
            let what = "its bytes do not have the sender's checksum".into();
            return Err(IntakeError::Damaged { segment, offset: SEGMENT_HEADER_BYTES as u64, what });
        }
        if self.is_whole() || self.written - self.synced >= SYNC_EVERY_BYTES {
            self.synced = self.written;
            let file = self.file(segments)?;
            file.file.sync_data().map_err(Error::io("sync", &file.path))?;
        }
        Ok(())
    }

    fn check_head(&self) -> Result<(), IntakeError> {
        let segment = self.entry.id;
        let damaged = |offset, what: &str| IntakeError::Damaged { segment, offset, what: what.into() };
        match check_header(&self.head) {
            Ok(id) if id == segment => Ok(()),
            Ok(_) => Err(damaged(12, "a segment under the number of another")),
            Err(damage) => Err(damaged(damage.offset, damage.what)),
        }
    }

    /// The file, made when it is needed first, with room for all that will come.
    fn file(&mut self, segments: &Segments) -> Result<PartFile, IntakeError> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let id = segments.new_id();
        let path = segments.dir().join(segment_name(id) + INTAKE_SUFFIX);
        let file = segments.disk().open(&path, Mode::Create).map_err(Error::io("create", &path))?;
        // Kept before anything can fail, so that it is removed.
        let made = self.file.insert(PartFile { id, path, file }).clone();
        made.file.allocate(self.entry.length).map_err(Error::io("reserve space for", &made.path))?;
        made.file.write_at(&segment_header(id), 0).map_err(Error::io("write", &made.path))?;
        Ok(made)
    }
}
