//! Why a snapshot cannot be sent or taken.

use crate::log::{Damage, Error};

/// A piece of an exported snapshot that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The snapshot has no such segment.
    #[error("the exported snapshot has no segment {0:x}")]
    NoSegment(u32),
    /// The segment ends before.
    #[error("segment {segment:x} of the exported snapshot has {length} bytes, but byte {offset} was asked for")]
    Behind {
        /// The segment.
        segment: u32,
        /// Bytes that it has.
        length: u64,
        /// The first byte that was asked for.
        offset: u64,
    },
    /// The disk refused.
    #[error(transparent)]
    Log(#[from] Error),
}

/// A snapshot that is not taken. Nothing of the running store has changed.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// More than this member takes.
    #[error("the received snapshot has {found} {what}, more than {limit}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
        /// How much there is.
        found: u64,
    },
    /// The checkpoint is not what was sent.
    #[error("the received checkpoint is damaged at offset {}: {}", .0.offset, .0.what)]
    Checkpoint(Damage),
    /// The snapshot cannot be what members of one cluster have.
    #[error("the received snapshot contradicts itself or this member: {0}")]
    Contradiction(String),
    /// There is no room for it.
    #[error("the received snapshot needs {needed_bytes} bytes on disk, reserve included, and {free_bytes} are free")]
    NoSpace {
        /// Bytes of what is still to come, and of the reserve.
        needed_bytes: u64,
        /// Bytes there are.
        free_bytes: u64,
    },
    /// A segment is not what the sender has.
    #[error("segment {segment:x} of the received snapshot is damaged at offset {offset}: {what}")]
    Damaged {
        /// The sender's number of it.
        segment: u32,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// Bytes of a segment that the checkpoint does not list.
    #[error("the received snapshot has no segment {0:x}")]
    Unlisted(u32),
    /// Bytes that do not follow the ones before.
    #[error("bytes {offset}+{length} of segment {segment:x} were received where byte {expected} of {total} was due")]
    Misplaced {
        /// The sender's number of the segment.
        segment: u32,
        /// Where the bytes were to go.
        offset: u64,
        /// How many they are.
        length: u64,
        /// The byte that was due.
        expected: u64,
        /// Bytes of the segment.
        total: u64,
    },
    /// Something is still to come.
    #[error("segment {segment:x} of the received snapshot ends at byte {written} of {total}")]
    Incomplete {
        /// The sender's number of the segment.
        segment: u32,
        /// Bytes received.
        written: u64,
        /// Bytes of the segment.
        total: u64,
    },
    /// A later transfer has begun.
    #[error("the transfer of another snapshot has begun")]
    Superseded,
    /// The disk refused.
    #[error(transparent)]
    Log(#[from] Error),
}
