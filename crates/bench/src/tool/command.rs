//! What a sub-command is.

use flags::{Flag, Parsed};

use super::failure::Outcome;

/// A sub-command, or a group of them.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// The text behind the name in the usage.
    pub(crate) arguments: &'static str,
    /// The description in the list of all commands.
    pub(crate) short: &'static str,
    /// The description on the command's own page.
    pub(crate) long: &'static str,
    pub(crate) flags: &'static [Flag],
    pub(crate) action: Action,
}

/// What a sub-command does.
pub(crate) enum Action {
    Run(fn(&Parsed) -> Outcome),
    Group(&'static [Command]),
}
