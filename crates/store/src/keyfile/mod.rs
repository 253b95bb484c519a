//! Key files: for each sealed segment a file beside it with what the index needs of every record, sorted by key, so that a start merges these
//! instead of reading all records.
//!
//! A key file is only ever a shorter way to the same index. A checkpoint names it by the checksum of its header, which leads to the checksums of
//! everything else in it; a start takes no other, and scans the segment where the file is missing or anything about it is wrong.
//!
//! The byte layout is drawn in `docs/formats.md`, section "Key files"; ADR 0016 says why they are as they are.

#[cfg(test)]
pub(crate) mod forge;
mod layout;
mod read;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod write;

pub(crate) use layout::Misfit;
pub(crate) use read::{Cursor, KeyFile};
pub(crate) use write::{Encoder, Finished};
