//! The table of commands, one file per group.

mod alarm;
mod compaction;
mod defrag;
mod del;
mod elect;
mod endpoint;
mod get;
mod keys;
mod lease;
mod lock;
mod member;
mod move_leader;
mod put;
mod snapshot;
mod txn;
mod version;
mod watch;
mod words;

use crate::command::Command;

/// Every command.
pub(crate) const COMMANDS: &[Command] = &[
    alarm::COMMAND,
    compaction::COMMAND,
    defrag::COMMAND,
    del::COMMAND,
    elect::COMMAND,
    endpoint::COMMAND,
    get::COMMAND,
    lease::COMMAND,
    lock::COMMAND,
    member::COMMAND,
    move_leader::COMMAND,
    put::COMMAND,
    snapshot::COMMAND,
    txn::COMMAND,
    version::COMMAND,
    watch::COMMAND,
];
