//! store

pub mod types;

#[allow(dead_code, reason = "the applier that uses all of it is still to come")]
mod index;
