//! The Raft log on disk, in etcd's record framing.
//!
//! The log is a directory of pre-allocated segments. [`Wal::append`] gathers records into a *batch*; [`Wal::commit`] puts the
//! batch on disk with one write and one `fdatasync`. A batch begins with a Crc record that carries its length, so [`Wal::open`]
//! takes a batch whole or not at all, and can tell a batch that a power cut tore (cut off and reported) from damage (refused,
//! with file and offset). The bytes are drawn in `docs/formats.md`, "Raft log".
//!
//! At most one batch is ever unsynced. After a failed write or sync the log is poisoned: nothing is written any more.

// Whatever a log's files hold ends in an error.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

mod batch;
mod create;
mod cut;
mod error;
mod frame;
mod log;
mod mistake;
mod name;
mod open;
mod options;
mod reader;
mod record;
mod release;
mod replay;
mod segment;
mod spare;
mod terms;
mod torn;

pub use create::Contents;
pub use cut::Cut;
pub use error::Error;
pub use log::Wal;
pub use mistake::CAN_BE_MISTAKEN;
#[cfg(feature = "mistakes")]
pub use mistake::Mistake;
pub use open::Recovered;
pub use options::Options;
pub use reader::{Break, Tail, decode_segment, decode_segment_while, is_own_segment};
pub use record::{EntryRef, Record};
pub use segment::leftover_bytes;
pub use spare::Spare;

#[cfg(test)]
mod tests;
