//! The table of commands, one file per group.

mod alarm;
mod auth;
pub(crate) mod check;
mod compaction;
pub(crate) mod completion;
mod defrag;
mod del;
mod downgrade;
mod elect;
mod endpoint;
mod get;
mod keys;
mod lease;
pub(crate) mod lock;
mod make_mirror;
mod member;
mod move_leader;
mod observers;
mod options;
mod put;
mod role;
pub(crate) mod snapshot;
mod txn;
mod usage;
mod user;
mod version;
mod watch;
mod words;

use crate::command::Command;

/// Every command, in the order in which etcd's tool proposes them.
pub(crate) const COMMANDS: &[Command] = &[
    get::COMMAND,
    put::COMMAND,
    del::COMMAND,
    txn::COMMAND,
    compaction::COMMAND,
    alarm::COMMAND,
    defrag::COMMAND,
    endpoint::COMMAND,
    move_leader::COMMAND,
    watch::COMMAND,
    version::COMMAND,
    lease::COMMAND,
    member::COMMAND,
    snapshot::COMMAND,
    make_mirror::COMMAND,
    lock::COMMAND,
    elect::COMMAND,
    auth::COMMAND,
    user::COMMAND,
    role::COMMAND,
    check::COMMAND,
    completion::COMMAND,
    downgrade::COMMAND,
    observers::COMMAND,
    options::COMMAND,
    usage::COMMAND,
];
