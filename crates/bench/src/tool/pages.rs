//! The commands of the tool as a page, for completions and man pages.

use flags::{Entry, Page};

use super::command::{Action, Command};
use super::globals;
use super::help::{LONG, Program};
use super::table::COMMANDS;

/// The page of the program, with its further commands.
pub fn page(program: Program<'_>) -> Page {
    let others = program.others.iter().map(|(name, help)| Page {
        name: (*name).into(),
        arguments: "[flags]".into(),
        help: (*help).into(),
        ..Page::default()
    });
    Page {
        name: "bench".into(),
        arguments: "[command] [flags]".into(),
        help: LONG.into(),
        notes: String::new(),
        flags: globals::FLAGS.iter().chain([&globals::HELP]).map(Entry::from).collect(),
        commands: COMMANDS.iter().map(of).chain(others).collect(),
    }
}

fn of(command: &Command) -> Page {
    let commands = match command.action {
        Action::Run(_) => Vec::new(),
        Action::Group(commands) => commands.iter().map(of).collect(),
    };
    Page {
        name: command.name.into(),
        arguments: command.arguments.trim().into(),
        help: command.short.into(),
        notes: String::new(),
        flags: command.flags.iter().map(Entry::from).collect(),
        commands,
    }
}
