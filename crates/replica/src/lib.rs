//! One member of a cluster, from the requests and messages that reach it to the store: consensus, proposals, read indexes, snapshots, leases
//! that expire, and the turn in which all of that is carried on. Without I/O: clocks, randomness, sockets, disks, threads and locks belong
//! to the caller, a [`Shell`].
//!
//! # The contract
//!
//! A [`Replica`] is driven in turns. One thread at a time takes a turn, from what has arrived to what is to be said:
//!
//! 1. [`Replica::accept`] with everything that has arrived ([`Inputs`]), then [`Replica::tick_if_due`]. The more arrives between two turns,
//!    the more shares one write and one sync.
//! 2. [`Replica::advance`] does the work there is: it calls the shell to send messages, to apply or queue committed entries, to install a
//!    snapshot, to end who waits in vain. It does so in the order that keeps Raft's promises, and the shell does each before it returns.
//! 3. [`Replica::take_log_batch`] is what the Raft log needs. Append it ([`LogBatch::append_to`]), sync it if it [says so](LogBatch::must_sync), and
//!    report [`Replica::persisted`]; then again from 2, until there is nothing for the log. Only one batch may be on its way at a time.
//!    While its sync runs nothing needs to be locked, and others may look at the replica: [`Replica::stall`] says what must be done
//!    for it meanwhile ([`Replica::stand_in`], [`Replica::keep_time`]).
//! 4. [`Replica::settle`] publishes where the member stands and gives back the reads that may be answered. They are tokens of the shell's:
//!    it evaluates them where it wants, and never has to hold anything of the replica's while it does.
//! 5. Until [`Replica::deadline`], or until something arrives, there is nothing to do.
//!
//! Before the first turn the steps 2 to 4 replay what was committed, and [`Replica::begin`] follows.
//!
//! Applying may be left to a thread of its own: [`ApplyQueue`] says what to apply in place and what to queue. When an entry is applied,
//! who waits for it is in [`Pending`], the deadlines of leases learn of it ([`Lessor::applied`]), and a checkpoint may be due
//! ([`CheckpointDue`]).
//!
//! The tables [`Pending`], [`ReadIndex`] and [`Lessor`] belong to the shell, since threads look at them that take no turns: those that apply,
//! that end what takes too long, that renew leases. The replica reaches them through the shell.
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
pub use shell::{Note, Shell};
pub use snapshot_transfer::Install;
