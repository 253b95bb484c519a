//! One member of a cluster, from its requests and messages to the store: consensus, proposals, read indexes, snapshots, expiring leases,
//! and the turn that drives them. Without I/O: clocks, randomness, sockets, disks, threads and locks belong to the caller, a
//! [`Shell`]; only [`Tokens`], which request threads ask without a turn, has locks of its own. `docs/design/turns.md` has the idea of a turn.
//!
//! # The contract
//!
//! A [`Replica`] is driven in turns. One thread at a time takes a turn:
//!
//! 1. Call [`Replica::accept`] with everything that has arrived ([`Inputs`]), then [`Replica::tick_if_due`]. All that arrives between two
//!    turns shares one write and one sync.
//! 2. [`Replica::advance`] does the work: it calls the shell to send messages, to apply or queue committed entries, to install a
//!    snapshot, to end requests without an answer. It does so in the order that Raft requires, and the shell does each before it returns.
//! 3. [`Replica::take_log_batch`] returns what the Raft log needs. Append it ([`LogBatch::append_to`]), sync it if it
//!    [says so](LogBatch::must_sync), and report [`Replica::persisted`]; then repeat from 2, until there is nothing for the log. Only one batch
//!    may be on its way at a time. While its sync runs nothing needs to be locked, and another thread may use the replica:
//!    [`Replica::stall`] says what must be done meanwhile ([`Replica::stand_in`], [`Replica::keep_time`]).
//! 4. [`Replica::settle`] publishes the member's status and returns the reads that may be answered. They are tokens of the shell, which
//!    evaluates them where it wants, without holding anything of the replica's.
//! 5. Until [`Replica::deadline`], or until something arrives, there is nothing to do.
//!
//! Before the first turn the steps 2 to 4 replay what was committed, and [`Replica::begin`] follows.
//!
//! Another thread may apply entries: [`ApplyQueue`] says what to apply in place and what to queue. When an entry is applied, its waiter is
//! in [`Pending`], the deadlines of leases change ([`Lessor::applied`]), and a checkpoint may be due ([`CheckpointDue`]).
//!
//! The tables [`Pending`], [`ReadIndex`] and [`Lessor`] belong to the shell, because threads that take no turns use them too: to apply, to
//! end requests in time, to renew leases. The replica reaches them through the shell.
//!
//! [`consensus`] is the Raft state machine inside of it, with a contract of its own.
//!
//! # Mistakes
//!
//! A simulator proves its checks by planting a [`Mistake`] through [`Shell::makes`]. No other shell overrides that method, so the compiler
//! leaves nothing of it.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod apply_queue;
mod checkpoint_due;
mod clock;
pub mod consensus;
mod lessor;
mod log_batch;
mod log_memory;
mod mistake;
mod now;
mod pending;
mod proposals;
mod read_index;
mod replica;
mod retries;
mod shell;
mod snapshot_transfer;
mod tokens;
mod turn;

pub use apply_queue::{APPLY_IN_PLACE_ENTRIES_MAX, ApplyQueue};
pub use checkpoint_due::{CheckpointDue, CheckpointPace};
pub use clock::Stall;
pub use consensus::*;
pub use lessor::{Lessor, Takeover};
pub use log_batch::{LogBatch, LogChange};
pub use mistake::Mistake;
pub use now::Now;
pub use pending::{CLASSES_MAX, Pending, Waiter, Waiting};
pub use proposals::{ConfChangeProposal, Proposal};
pub use read_index::{Late, ReadIndex};
pub use replica::{Inputs, InputsOf, Options, Replica};
pub use shell::{Note, Observed, Shell};
pub use snapshot_transfer::Install;
pub use tokens::{Found, Tokens};
