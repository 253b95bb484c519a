//! What slow threads do beside requests: checkpoints ([`capture`], [`checkpoint`]), compactions and what they free ([`maintain`],
//! [`rewrite`]) as far as readers let them ([`pins`]), hashes over the history ([`hash`]), key files ([`keyfiles`]), and the check of what a start has
//! not read ([`scrub`]).

mod capture;
pub mod checkpoint;
mod hash;
pub(crate) mod keyfiles;
mod maintain;
mod pins;
pub(crate) mod rewrite;
pub(crate) mod scrub;

pub use capture::CheckpointJob;
pub(crate) use capture::{loaded_leases, saved};
pub(crate) use hash::HashCache;
pub(crate) use maintain::{Maintenance, Replaced};
pub use maintain::{Progress, Work};
pub(crate) use pins::{OwnedPin, Pin, Pins};
