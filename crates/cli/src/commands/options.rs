//! `options`: the flags of all commands.

use crate::command::{Command, Context, command};
use crate::failure::Outcome;
use crate::{print, usage};

pub(crate) const COMMAND: Command = command("options", "", "Lists the flags that every command takes", run);

fn run(_context: &Context) -> Outcome {
    print::out(usage::global_flags().as_bytes())
}
