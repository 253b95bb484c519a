//! The commands as pages, for man pages.

use crate::command::{Action, Command};
use crate::flags::{Entry, Page};
use crate::tool::{BACKUP, CHECKS, CTL, RESTORE, TAKEOVER, TOP, Tool, UTIL};

/// The pages of `cairn ctl`, `util`, `check`, `doctor`, `takeover`, `top`, `backup` and `restore`.
pub fn pages() -> Vec<Page> {
    let mut all = vec![of_tool("ctl", &CTL), of_tool("util", &UTIL)];
    for tool in [&CHECKS, &TAKEOVER, &TOP, &BACKUP, &RESTORE] {
        // They are commands of `cairn` itself.
        all.extend(tool.commands.iter().map(|command| {
            let mut page = of(command);
            page.flags.extend(tool.flags.iter().map(Entry::from));
            page
        }));
    }
    all
}

fn of_tool(name: &str, tool: &Tool) -> Page {
    Page {
        name: name.into(),
        arguments: "[command] [flags]".into(),
        help: tool.help.into(),
        notes: String::new(),
        flags: tool.flags.iter().map(Entry::from).collect(),
        commands: tool.commands.iter().map(of).collect(),
    }
}

fn of(command: &Command) -> Page {
    let commands = match command.action {
        Action::Run(_) => Vec::new(),
        Action::Group(commands) => commands.iter().map(of).collect(),
    };
    Page {
        name: command.name.into(),
        arguments: command.usage.into(),
        help: command.help.into(),
        notes: command.notes.into(),
        flags: command.flags.iter().map(Entry::from).collect(),
        commands,
    }
}
