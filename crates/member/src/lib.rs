//! The consensus core of a member: `raft-rs` with the rules that make it safe to use, as a state machine without I/O.
//!
//! The contract, in the order the shell calls it:
//! 1. Inputs: [`Member::tick`], [`Member::propose`], [`Member::step`], [`Member::read_index`].
//! 2. While [`Member::has_work`]: take [`Member::work`]; install its `snapshot`; append `entries` and `hard_state` to the log; send
//!    `messages` at once; when the log is durable call [`Member::persisted`] with the work's number and send its
//!    `persisted_messages`. Several pieces of work may wait for the disk at a time, but only in order.
//! 3. Apply `committed` in order and report with [`Member::applied`]; a committed configuration change is handed to
//!    [`Member::apply_conf_change`] first; a removal waits for the disk before that ([`Backlog`]).
//!
//! 4. A leader whose follower lags behind the entries in memory asks with [`Member::wants_snapshot`] for a state to offer; the
//!    state itself travels outside of this crate, and [`Member::report_snapshot`] tells how that ended.
//! 5. A follower that is far behind, but not that far, is sent what it lacks a little at a time: [`Member::send_lagging`].
//!
//! 6. When [`Member::proof`] has something to say (after [`Member::step`] has failed with [`Error::LogLost`]) the member ends at once, and
//!    the shell sees to it that it is never started on these files again.
//!
//! Time is counted in ticks, randomness comes from the seed, and sockets, disks and threads belong to the caller.

mod backlog;
mod bootstrap;
mod cluster;
mod config;
mod convert;
mod core;
mod election;
mod error;
mod identity;
mod lagging;
mod lessor;
mod log;
mod outbox;
mod proof;
mod propose;
mod reads;
mod status;
mod step;
mod work;

pub use backlog::{Backlog, Piece, is_to_last};
pub use bootstrap::{Bootstrap, bootstrap};
pub use cluster::{Mode, Progress};
pub use config::{Config, Restored};
pub use core::Member;
pub use error::Error;
pub use identity::{cluster_id, member_id};
pub use lessor::{Lessor, Takeover};
pub use proof::Proof;
pub use status::{Role, Status};
pub use step::Refusal;
pub use work::Work;
