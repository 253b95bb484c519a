//! What slow threads do beside requests: checkpoints ([`capture`], [`checkpoint`]), compactions and what they free ([`maintain`],
//! [`rewrite`]) as far as readers let them ([`pins`]), and hashes over the history ([`hash`]).

mod capture;
pub mod checkpoint;
mod hash;
mod maintain;
mod pins;
pub(crate) mod rewrite;

pub use capture::CheckpointJob;
pub(crate) use capture::{loaded_leases, saved};
pub(crate) use hash::HashCache;
pub(crate) use maintain::{Maintenance, Replaced};
pub use maintain::{Progress, Work};
pub(crate) use pins::{OwnedPin, Pin, Pins};
