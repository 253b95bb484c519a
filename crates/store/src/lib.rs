//! store

#[allow(dead_code, unused_imports, reason = "recovery and rewriting, which use the rest, are still to come")]
pub mod log;
pub mod types;

#[allow(dead_code, reason = "the applier that uses all of it is still to come")]
mod index;
