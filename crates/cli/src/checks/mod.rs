//! `cairn check` and `cairn doctor`: whether machine, disk and network are good enough for a member.

mod disk;
mod doctor;
pub(crate) mod format;
mod network;
mod times;
mod watched;

use crate::command::{Command, group};
use crate::commands::check;
use crate::failure::{Failure, Outcome, code};
use crate::flags::{Flag, Parsed, switch, text};
use crate::print::Format;

/// Every command.
pub(crate) const COMMANDS: &[Command] = &[
    group("check", "Tests what a member needs", &[disk::COMMAND, network::COMMAND, check::PERF, check::DATASCALE]),
    doctor::COMMAND,
];

const JSON: Flag = switch("json", "print JSON (as --write-out=json does)");
const DATA_DIR: Flag =
    text("data-dir", "", "directory of the member's data (default: $ETCD_DATA_DIR, or \"default.etcd\")");

/// Whether JSON is asked for; these commands have no other form but text for people.
fn wants_json(parsed: &Parsed) -> Outcome<bool> {
    match Format::parse(parsed.text("write-out"))? {
        Format::Json => Ok(true),
        Format::Simple => Ok(parsed.switch("json")),
        _ => Err(Failure::new(code::BAD_FEATURE, "only simple and json are supported as output formats")),
    }
}
