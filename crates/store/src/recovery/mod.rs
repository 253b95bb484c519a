//! Opening a store (`open.rs`), or founding one on another program's data (`founding.rs`).
//!
//! An existing store is recovered (`recover.rs`): load the newest checkpoint, cut the log to its lengths, rebuild the index from the records. The
//! Raft log replays the rest.
//!
//! Nothing on disk is changed before everything the checkpoint covers was verified. Damage is refused with file and offset, never
//! repaired or guessed. One checkpoint may be damaged, because two are kept and the Raft log reaches back to the older one: it is passed
//! over, and what it may list stays until two more were written. Only what no checkpoint covers is removed: unfinished checkpoints,
//! segments that were begun after the last one, and the tail of the segment that was being filled.

mod error;
mod files;
mod founding;
mod inspect;
mod open;
mod rebuild;
mod recover;
mod source;
mod tidy;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use error::OpenError;
pub use files::leftover_bytes;
pub use founding::{FOUNDING_REVISION_MAX, Founding, FoundingError, encode_auth};
pub use inspect::{Inspection, inspect};
pub(crate) use open::attach;
pub use open::{Applied, Opened, open};
pub(crate) use rebuild::{LeasedKeys, Rebuilt, Share, rebuild};
pub(crate) use recover::{Recovered, recover};
pub(crate) use source::Source;
