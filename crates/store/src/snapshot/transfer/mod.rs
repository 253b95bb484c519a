//! The transfer of a snapshot from one member to another: a checkpoint and the segments it lists.
//!
//! The sender captures it between two entries ([`Applier::export`](crate::Applier::export)) and hands out its bytes for as long as
//! the [`Export`] lives: nothing that it lists is removed. The receiver writes them under temporary names ([`Intake`]), checks every
//! record and rebuilds the index beside the running store ([`Prepared`]), and swaps the snapshot in
//! ([`Applier::install`](crate::Applier::install)): the checkpoint gets its name, and readers see the new snapshot at once.
//!
//! More than some thousands of leases are sent apart from the checkpoint, as a table ([`lease_table`]) that is fetched like a segment.
//!
//! A store that was founded beside the running one is taken with less: its files are moved, and its index is used as it is (`moved.rs`).
//!
//! Each member numbers its segments on its own. So a received segment gets a number of this store, which stands in its header and in no
//! record. Everything after the header is the sender's, byte for byte.

mod error;
mod export;
mod install;
mod intake;
mod lease_table;
mod manifest;
mod moved;
mod part;
mod prepared;
mod shelf;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use error::{ExportError, IntakeError};
pub use export::Export;
pub use intake::Intake;
pub use prepared::Prepared;
pub(crate) use shelf::Shelf;

use crate::log::INTAKE_SUFFIX;
