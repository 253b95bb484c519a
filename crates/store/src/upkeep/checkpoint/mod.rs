//! Checkpoints: the state of the store after one applied entry, but for the keys, in one small file.
//!
//! A checkpoint lists the segments of the revision log with the lengths it covers; everything listed is durable before the
//! checkpoint gets its name. Two are kept, and no file that one of them lists is removed. The byte layout is drawn in
//! `docs/formats.md`, section "Checkpoint".

mod content;
mod encoding;
mod files;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use content::{Checkpoint, LeaseTable};
pub use encoding::decode_checkpoint;
pub(crate) use encoding::{CheckpointName, TEMPORARY_SUFFIX, decode_sent, encode_checkpoint};
pub use files::Checkpoints;
pub(crate) use files::{Doubted, KEPT, Kept};
