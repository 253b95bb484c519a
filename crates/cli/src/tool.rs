//! The programs: what commands and flags each has.

use crate::command::Command;
use crate::flags::Flag;
use crate::{backup, checks, commands, globals, takeover, top, util};

/// A program.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    /// What it is for.
    pub(crate) help: &'static str,
    pub(crate) commands: &'static [Command],
    /// Flags of all commands.
    pub(crate) flags: &'static [Flag],
    /// Whether flags may be given by `ETCDCTL_*` as well.
    pub(crate) has_variables: bool,
}

/// `cairn ctl`, or `etcdctl`: asks and changes a cluster.
pub(crate) const CTL: Tool = Tool {
    help: "Asks and changes a cluster",
    commands: commands::COMMANDS,
    flags: globals::FLAGS,
    has_variables: true,
};

/// `cairn util`, or `etcdutl`: works on the files of members that are stopped.
pub(crate) const UTIL: Tool = Tool {
    help: "Works on snapshots, and on the data of members that are stopped",
    commands: util::COMMANDS,
    flags: util::FLAGS,
    has_variables: false,
};

/// `cairn check` and `cairn doctor`: whether machine, disk and network are good enough.
pub(crate) const CHECKS: Tool =
    Tool { help: "Tests what a member needs", commands: checks::COMMANDS, flags: globals::FLAGS, has_variables: true };

/// `cairn takeover`: moves a running cluster from etcd to Cairn, or back.
pub(crate) const TAKEOVER: Tool = Tool {
    help: "Moves a running cluster from etcd to Cairn, or back",
    commands: takeover::COMMANDS,
    flags: globals::FLAGS,
    has_variables: true,
};

/// `cairn top`: a page about a running cluster.
pub(crate) const TOP: Tool =
    Tool { help: "Shows what a cluster does", commands: top::COMMANDS, flags: globals::FLAGS, has_variables: true };

/// `cairn backup`: archives of a running cluster.
pub(crate) const BACKUP: Tool = Tool {
    help: "Archives what a cluster applies, continuously",
    commands: backup::COMMANDS,
    flags: globals::FLAGS,
    has_variables: true,
};

/// `cairn restore`: states of an archive. It asks no member.
pub(crate) const RESTORE: Tool = Tool {
    help: "Makes the data of a new cluster's member of an archive",
    commands: backup::RESTORE,
    flags: &[],
    has_variables: false,
};
