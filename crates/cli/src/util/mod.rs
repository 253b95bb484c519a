//! The commands of `etcdutl`, one file per group, and those of our own that work on files.

mod defrag;
mod export;
mod hashkv;
mod migrate;
pub(crate) mod snapshot;
mod store;
mod version;
mod wal;

use crate::command::{Command, Context};
use crate::commands::completion;
use crate::failure::{Failure, Outcome, code};
use crate::flags::{Flag, duration, switch, text};
use crate::raw;
use etcd_import::{Database, Error};
use std::path::{Path, PathBuf};

/// Every command.
pub(crate) const COMMANDS: &[Command] = &[
    defrag::COMMAND,
    snapshot::COMMAND,
    hashkv::COMMAND,
    version::COMMAND,
    completion::COMMAND_OF_UTIL,
    migrate::COMMAND,
    export::COMMAND,
    store::COMMAND,
    wal::COMMAND,
];

/// Flags of all commands.
pub(crate) const FLAGS: &[Flag] = &[
    duration("timeout", "10s", "time to wait until nobody uses the files (0: for ever)"),
    text("write-out", "simple", "form of the output: simple, fields, json or table").or('w'),
    switch("help", "help for the command").or('h'),
];

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(code::ERROR, error.to_string())
    }
}

/// Fails as etcd's tool does if there is no such file.
fn exists(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(_) => Ok(()),
        Err(error) => {
            let text = format!("stat {}: {}", raw::word(path.as_os_str()), crate::print::go::io(&error));
            Err(Failure::new(code::ERROR, text))
        }
    }
}

/// A database file that no other process uses; one that does has `--timeout` to end.
fn open(context: &Context, path: &Path) -> Outcome<Database> {
    Ok(Database::open_unused(path, context.parsed.duration("timeout"))?)
}

/// The directory of a member's data, which `--data-dir` must name.
fn data_dir(parsed: &crate::flags::Parsed) -> Result<PathBuf, Failure> {
    match parsed.text("data-dir") {
        "" => Err(Failure::usage("required flag(s) \"data-dir\" not set")),
        dir => Ok(raw::path(dir)),
    }
}
