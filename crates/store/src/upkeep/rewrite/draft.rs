//! A segment that a rewrite is filling.

use crate::log::{
    Batch, Error, Origin, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, Segment, Segments, segment_header, segment_name,
};
use crate::mistake::Mistake;
use crate::types::Revision;
use disk::{File, Mode, WriteBack};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that gather before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// A file that nothing refers to yet. It grows as it is written: how much will be copied is not known before.
pub(super) struct Draft {
    id: u32,
    path: PathBuf,
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    written: u64,
    back: WriteBack,
    batch: Batch,
}

impl Draft {
    pub(super) fn create(segments: &Segments) -> Result<Draft, Error> {
        let id = segments.new_id();
        let path = segments.dir().join(segment_name(id));
        let file = segments.disk().open(&path, Mode::Create).map_err(Error::io("create", &path))?;
        let buffer = segment_header(id).to_vec();
        let back = WriteBack::default();
        Ok(Draft { id, path, file, buffer, written: 0, back, batch: Batch::default() })
    }

    /// Appends a whole record.
    pub(super) fn push(&mut self, rev: Revision, record: &[u8]) -> Result<(), Error> {
        let offset = self.written + self.buffer.len() as u64;
        assert!(offset + record.len() as u64 <= u64::from(u32::MAX), "a rewritten segment is too long");
        assert!(record.len() > RECORD_HEADER_BYTES, "a record without content");
        self.buffer.extend_from_slice(record);
        self.batch.add(rev, offset, record.len() as u64);
        if self.buffer.len() >= BUFFER_BYTES { self.write() } else { Ok(()) }
    }

    /// Makes what was written durable, and a segment of it none of whose records counts yet as live or as a grave.
    /// An error removes the file.
    pub(super) fn finish(self, segments: &Segments) -> Result<Arc<Segment>, Error> {
        assert!(self.buffer.is_empty(), "a draft is written before it is finished");
        let synced = if Mistake::RewriteNotSynced.is_planted() { Ok(()) } else { self.file.sync_data() };
        let synced = synced.map_err(Error::io("sync", &self.path));
        let mapped = synced.and_then(|()| self.file.map(self.written).map_err(Error::io("map", &self.path)));
        let mapping = match mapped {
            Ok(mapping) => mapping,
            Err(error) => {
                self.abandon(segments);
                return Err(error);
            }
        };
        let segment = Segment::new(self.id, self.path, self.file, mapping, Origin::Sealed);
        segment.publish(&self.batch);
        segment.mark_synced(self.written);
        assert!(segment.len() == self.written, "a rewritten segment holds what was counted");
        assert!(segment.body() > 0 && segment.len() > SEGMENT_HEADER_BYTES as u64, "an empty segment is not kept");
        Ok(Arc::new(segment))
    }

    /// Has the file given back.
    pub(super) fn abandon(self, segments: &Segments) {
        // If it stays, recovery removes it: no checkpoint lists it.
        segments.retire(self.id, self.written, None).ok();
    }

    /// Writes what has gathered.
    pub(super) fn write(&mut self) -> Result<(), Error> {
        self.file.write_at(&self.buffer, self.written).map_err(Error::io("write", &self.path))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        // The last sync then has little to do.
        self.back.advance(&*self.file, self.written).map_err(Error::io("write back", &self.path))
    }
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Draft({:x}, {} bytes)", self.id, self.written + self.buffer.len() as u64)
    }
}
