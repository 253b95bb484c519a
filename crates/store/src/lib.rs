//! store

pub mod checkpoint;
pub mod image;
#[allow(dead_code, reason = "the applier, which uses the rest, is still to come")]
pub mod log;
#[allow(dead_code, reason = "the applier that opens the store is still to come")]
mod recovery;
#[allow(dead_code, reason = "the store that maintains itself is still to come")]
mod rewrite;
#[cfg(test)]
mod rig;
pub mod types;

#[allow(dead_code, reason = "the applier that uses all of it is still to come")]
mod index;

#[allow(dead_code, reason = "streams are opened by the store, which is still to come")]
pub mod watch;

pub use recovery::OpenError;
