//! The revision log: every change ever made and not yet compacted, in revision order, in append-only segment files.
//!
//! This is the database; the key index is a view of it. [`Log`] is the write side and has one owner, the applier.
//! [`Segments`] is the read side, shared by every thread. A record becomes readable through `Segments` when [`Log::flush`]
//! returned, and never changes afterwards.
//!
//! What survives a power cut is decided elsewhere: a [checkpoint](crate::checkpoint) lists the segments with the lengths it
//! covers, after syncing them. Bytes after those lengths are cut off at [recovery](crate::recovery) and come back from the WAL.
//!
//! The byte layout is drawn in `docs/formats.md`, section "Revision log".

mod error;
mod guard;
mod keyvalue;
mod layout;
mod listing;
mod scan;
mod segment;
mod segments;
mod spare;
mod stored;
mod table;
mod value;
mod verify;
mod writer;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use error::Error;
pub(crate) use guard::{RwLock, RwLockReadGuard, RwLockWriteGuard, lock, read, write};
pub(crate) use keyvalue::stored_key;
pub use keyvalue::{KvParts, KvView};
pub(crate) use layout::{INTAKE_SUFFIX, intake_checkpoint_name, parse_intake_name};
pub(crate) use layout::{
    Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, record_header, segment_header, segment_name,
};
pub(crate) use layout::{key_file_name, parse_key_file_name};
pub use layout::{parse_segment_name, record_bytes};
pub use listing::{Listing, SegmentEntry};
pub use scan::{Record, RecordRef, Scan};
pub use segment::Segment;
pub(crate) use segment::{Batch, FETCHED_BYTES, Keys, Mark, Origin};
pub use segments::{Options, Segments};
pub use spare::Spare;
pub(crate) use stored::{parse, shared_message, to_message};
pub use value::Value;
pub use verify::{Damage, scan_segment};
pub(crate) use verify::{Walk, check_header};
pub use writer::Log;
