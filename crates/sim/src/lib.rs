//! Whole clusters in one thread, from a seed.
//!
//! A seed decides everything: how many members there are, how fast disks and links are, what clients ask for, what goes wrong and
//! when. Members are the real ones: `replica`, `wal` and `store` on a disk that loses what was not synced; only the threads around
//! them, the network and the clock are simulated ([`run`] says what came of it).
//!
//! The parts: [`plan`] (what a seed decides), [`world`] (the clock and its events), [`host`] (a machine with a disk), [`process`]
//! (a running member: drives a replica as its contract says), [`network`], [`client`], [`faults`], [`transfer`] (snapshots).
//! What is checked: [`ledger`] (Raft, at every step), [`history`] with [`model`] (what clients see, at every answer), [`watches`]
//! (what watches are promised, at every response), [`finale`] (recovery and agreement at the end). [`extras`] says what only some runs have,
//! [`observers`] among it. [`mutation`] has the mistakes that prove the checks.

mod admin;
mod client;
mod clock;
mod clock_jumps;
mod connection;
mod disk_faults;
mod env;
mod extras;
mod fault_kind;
mod faults;
mod finale;
mod happened;
mod history;
mod host;
mod ledger;
mod length;
mod model;
mod mutation;
mod network;
mod observers;
mod operation;
mod operator;
mod outbox;
mod permissions;
mod plan;
mod process;
mod removals;
mod run;
mod schedule;
mod set_back;
mod settings;
mod shadow;
mod show;
mod trace;
mod transfer;
mod watch_options;
mod watches;
mod world;

pub use fault_kind::{KINDS, Kind};
pub use happened::Happened;
pub use history::Counts;
pub use mutation::Mutation;
pub use observers::ObserverCounts;
pub use plan::Options;
pub use run::{Failure, Report, catch_panics, run};
pub use trace::Trace;
pub use watches::WatchCounts;
