//! What a checkpoint says about the log.

use super::layout::SEGMENT_HEADER_BYTES;
use super::{Error, Segment};
use crate::types::Revision;
use disk::Reaper;
use std::path::PathBuf;
use std::sync::Arc;

/// The shortest record.
const RECORD_BYTES_MIN: u64 = 32;

/// One segment as a checkpoint lists it. Persisted as protobuf: numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SegmentEntry {
    /// Number of the segment, in its header and its file's name.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Bytes from the start of the file that the checkpoint covers.
    #[prost(uint64, tag = "2")]
    pub length: u64,
    /// Records in them.
    #[prost(uint64, tag = "3")]
    pub records: u64,
    /// Main revision of the first record.
    #[prost(int64, tag = "4")]
    pub first_main: i64,
    /// Sub revision of the first record.
    #[prost(uint32, tag = "5")]
    pub first_sub: u32,
    /// Main revision of the last record.
    #[prost(int64, tag = "6")]
    pub last_main: i64,
    /// Sub revision of the last record.
    #[prost(uint32, tag = "7")]
    pub last_sub: u32,
    /// CRC-32C of the bytes after the header. Only in what is sent to another member: it tells equal segments from others.
    #[prost(fixed32, optional, tag = "8")]
    pub body_crc: Option<u32>,
    /// Checksum of the header of the segment's key file, if it has one. Only in files.
    #[prost(fixed32, optional, tag = "9")]
    pub keys_crc: Option<u32>,
}

impl SegmentEntry {
    /// Whether there can be a segment of this length with so many records. Places in a segment are 32 bits wide.
    pub(crate) fn is_possible(&self) -> bool {
        let body = self.length.checked_sub(SEGMENT_HEADER_BYTES as u64);
        self.length <= u64::from(u32::MAX)
            && self.length.is_multiple_of(8)
            && body.is_some_and(|body| self.records <= body / RECORD_BYTES_MIN)
    }

    /// Revision of the first record.
    pub(crate) fn first(&self) -> Revision {
        Revision { main: self.first_main, sub: self.first_sub }
    }

    /// Revision of the last record.
    pub(crate) fn last(&self) -> Revision {
        Revision { main: self.last_main, sub: self.last_sub }
    }
}

/// The segments of the log at one moment, oldest first, with the lengths that were flushed then. Their files are kept while it
/// lives.
pub struct Listing {
    /// Of the directory.
    reaper: Arc<Reaper>,
    dir: PathBuf,
    held: Vec<Arc<Segment>>,
    entries: Vec<SegmentEntry>,
}

impl Listing {
    /// Taken under the lock of the table, so that no segment can be swept in between.
    pub(crate) fn new(reaper: Arc<Reaper>, dir: PathBuf, order: &[Arc<Segment>]) -> Listing {
        for segment in order {
            segment.hold();
        }
        let entries = order.iter().map(|segment| segment.entry()).collect();
        Listing { reaper, dir, held: order.to_vec(), entries }
    }

    /// The entries of a checkpoint.
    pub fn entries(&self) -> &[SegmentEntry] {
        &self.entries
    }

    /// The segments, in the order of the entries.
    pub(crate) fn segments(&self) -> &[Arc<Segment>] {
        &self.held
    }

    /// Makes everything listed durable, names included. Slow: for the thread that writes checkpoints.
    pub fn sync(&self) -> Result<(), Error> {
        for (segment, entry) in self.held.iter().zip(&self.entries) {
            segment.sync(entry.length)?;
        }
        self.reaper.sync_names().map_err(Error::fatal("sync", &self.dir))
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        for segment in &self.held {
            segment.unhold();
        }
    }
}
