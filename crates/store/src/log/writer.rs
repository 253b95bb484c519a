//! The write side of the log.

use super::keyvalue::{encode_tombstone, tombstone_len};
use super::layout::{
    KV_BYTES_MAX, Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, record_bytes, seal_record,
};
use super::{Batch, Error, KvParts, Listing, Segment, Segments, Spare};
use crate::types::{Loc, Revision};
use std::sync::Arc;

/// Memory that the buffer keeps between flushes.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// Appends records. They gather in memory, keep their final place from the start, and become readable by [`Log::flush`].
#[derive(Debug)]
pub struct Log {
    segments: Arc<Segments>,
    buffer: Vec<u8>,
    /// The segments that the buffer goes to, oldest first; appends go to the last. Empty only before the first append.
    parts: Vec<Part>,
    last: Revision,
    poisoned: bool,
}

/// The share of the buffer that goes to one segment.
#[derive(Debug)]
struct Part {
    id: u32,
    capacity: u64,
    /// `None`: the flush will create the file, because it can return an error.
    segment: Option<Arc<Segment>>,
    /// False until the segment is in the table.
    listed: bool,
    /// Where in the file the first pending byte goes.
    start: u64,
    /// Where in the file the next record goes.
    tail: u64,
    /// Where in the buffer the first pending byte is.
    buffered: usize,
    batch: Batch,
}

impl Log {
    /// Appends after what is in `segments`: to `tail`, if its last segment is to be filled up, and to new ones after.
    pub(crate) fn new(segments: Arc<Segments>, tail: Option<Arc<Segment>>, last: Revision) -> Log {
        let part = tail.map(|segment| Part {
            id: segment.id(),
            capacity: segment.capacity(),
            start: segment.len(),
            tail: segment.len(),
            segment: Some(segment),
            listed: true,
            buffered: 0,
            batch: Batch::default(),
        });
        Log { segments, buffer: Vec::new(), parts: part.into_iter().collect(), last, poisoned: false }
    }

    /// Appends a put. Revisions must ascend.
    pub fn append_put(&mut self, rev: Revision, kv: KvParts<'_>) -> Loc {
        self.append(rev, Kind::Put, kv.encoded_len(rev.main), |buffer| kv.encode(rev.main, buffer))
    }

    /// Appends a deletion. Revisions must ascend.
    pub fn append_tombstone(&mut self, rev: Revision, key: &[u8]) -> Loc {
        self.append(rev, Kind::Tombstone, tombstone_len(key), |buffer| encode_tombstone(key, buffer))
    }

    /// Appends a change whose stored bytes there are already. Revisions must ascend.
    pub(crate) fn append_stored(&mut self, rev: Revision, is_tombstone: bool, stored: &[u8]) -> Loc {
        let kind = if is_tombstone { Kind::Tombstone } else { Kind::Put };
        self.append(rev, kind, stored.len(), |buffer| buffer.extend_from_slice(stored))
    }

    /// The stored bytes at `loc` while they are not flushed yet; `None` once [`Segments`] has them.
    pub fn pending(&self, loc: Loc) -> Option<&[u8]> {
        let part = self.parts.iter().rev().find(|part| part.id == loc.segment)?;
        let from = part.buffered + usize::try_from(u64::from(loc.offset).checked_sub(part.start)?).ok()?;
        self.buffer.get(from..from + loc.len as usize)
    }

    /// Bytes of records that wait for [`Log::flush`]. They are not in [`Segments::live_bytes`] yet.
    pub fn pending_bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Writes what was appended and makes it readable through [`Segments`]. Nothing is synced: the WAL holds the same changes
    /// until a checkpoint has synced them. After an error every further flush fails.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        // Stays set if writing fails half-way.
        self.poisoned = true;
        self.write()?;
        self.poisoned = false;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        self.parts.drain(..self.parts.len() - 1);
        for part in &mut self.parts {
            part.start = part.tail;
            part.buffered = 0;
            part.batch.clear();
        }
        Ok(())
    }

    /// Continues another log, whose last record is `last`, in a new segment. The segments know it already. A log from another member's
    /// snapshot may end before this one: what is appended next is later than the snapshot's revision, and so later than both.
    pub(crate) fn restart(&mut self, last: Revision) {
        assert!(self.buffer.is_empty(), "a snapshot is installed between two strides");
        self.parts.clear();
        self.last = self.last.max(last);
    }

    /// Segments and lengths for a checkpoint; only flushed bytes.
    pub fn listing(&self) -> Listing {
        self.segments.listing()
    }

    /// A handle for the thread that keeps the next segment ready.
    pub fn spare(&self) -> Spare {
        Spare::new(Arc::clone(&self.segments))
    }

    /// The read side.
    pub fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }

    fn append(&mut self, rev: Revision, kind: Kind, len: usize, encode: impl FnOnce(&mut Vec<u8>)) -> Loc {
        assert!(rev > self.last, "revision {rev:?} is appended after {:?}", self.last);
        assert!(len > 0 && len <= KV_BYTES_MAX, "a record of {len} bytes");
        self.last = rev;
        let total = record_bytes(len);
        let begin = self.buffer.len();
        self.buffer.reserve(total);
        let part = self.make_room(total as u64);
        let offset = part.tail;
        part.tail += total as u64;
        part.batch.add(rev, offset, total as u64);
        let segment = part.id;

        self.buffer.extend_from_slice(&RecordHeader { len: len as u32, rev, kind }.encode());
        encode(&mut self.buffer);
        assert!(self.buffer.len() == begin + RECORD_HEADER_BYTES + len, "an encoding of another length than announced");
        self.buffer.resize(begin + total, 0);
        seal_record(&mut self.buffer[begin..]);
        // Capacities are 32 bits wide.
        Loc { segment, offset: offset as u32 + RECORD_HEADER_BYTES as u32, len: len as u32 }
    }

    /// The part that the next `total` bytes go to.
    fn make_room(&mut self, total: u64) -> &mut Part {
        if self.parts.last().is_none_or(|part| part.tail + total > part.capacity) {
            let needed = SEGMENT_HEADER_BYTES as u64 + total;
            let segment = self.segments.take_spare(needed);
            let (id, capacity) = match &segment {
                Some(segment) => (segment.id(), segment.capacity()),
                None => (self.segments.new_id(), self.segments.next_capacity().max(needed)),
            };
            let start = SEGMENT_HEADER_BYTES as u64;
            let buffered = self.buffer.len();
            let batch = Batch::default();
            self.parts.push(Part { id, capacity, segment, listed: false, start, tail: start, buffered, batch });
        }
        let Some(part) = self.parts.last_mut() else { unreachable!("a part was just pushed") };
        part
    }

    fn write(&mut self) -> Result<(), Error> {
        for at in 0..self.parts.len() {
            let end = self.parts.get(at + 1).map_or(self.buffer.len(), |next| next.buffered);
            let Some(part) = self.parts.get_mut(at) else { break };
            let bytes = &self.buffer[part.buffered..end];
            assert!(bytes.len() as u64 == part.batch.bytes(), "the buffer holds what the batch counted");
            if bytes.is_empty() {
                continue;
            }
            let segment = match &part.segment {
                Some(segment) => Arc::clone(segment),
                None => {
                    let segment = Arc::new(self.segments.create(part.id, part.capacity)?);
                    part.segment = Some(Arc::clone(&segment));
                    segment
                }
            };
            segment.write_at(bytes, part.start)?;
            segment.publish(&part.batch);
            self.segments.add_live(&segment, part.batch.bytes());
            if !part.listed {
                super::write(&self.segments.table).push(segment);
                part.listed = true;
            }
        }
        Ok(())
    }
}
