//! The consensus core of a member: `raft-rs` with the rules that make it safe to use, as a state machine without I/O.
//!
//! The contract, in the order the shell calls it:
//! 1. Inputs: [`Member::tick`], [`Member::propose`], [`Member::step`], [`Member::read_index`].
//! 2. While [`Member::has_work`]: take [`Member::work`]; append `entries` and `hard_state` to the log; send `messages` at once;
//!    when the log is durable call [`Member::persisted`] with the work's number and send its `persisted_messages`.
//! 3. Apply `committed` in order and report with [`Member::applied`]; a committed configuration change is handed to
//!    [`Member::apply_conf_change`] first.
//!
//! Time is counted in ticks, randomness comes from the seed, and sockets, disks and threads belong to the caller.

mod bootstrap;
mod convert;
mod core;
mod identity;
mod lessor;
mod log;

pub use bootstrap::{Bootstrap, bootstrap};
pub use core::{Config, Error, Member, Restored, Role, Status, Work};
pub use identity::{cluster_id, member_id};
pub use lessor::Lessor;
