//! What stands between a request and the store of a member, as code without I/O: clocks, randomness, sockets, disks and threads belong
//! to the caller.
//!
//! [`consensus`] is the Raft state machine; its documentation states the contract with the caller.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

pub mod consensus;

pub use consensus::*;
