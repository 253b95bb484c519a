//! The text of `--help`.

use crate::command::{Action, Command};
use crate::flags::{Flag, Kind};
use crate::globals;
use crate::tool::Tool;
use std::fmt::Write;

/// The usage of the command at the end of `path`; of the program, if that is empty.
pub(crate) fn of(tool: &Tool, program: &str, path: &[&'static Command]) -> String {
    let mut out = String::new();
    let names: Vec<&str> = std::iter::once(program).chain(path.iter().map(|command| command.name)).collect();
    let names = names.join(" ");
    // Writing to a string cannot fail.
    match path.last() {
        None => {
            let _ = write!(out, "{}.\n\nUsage:\n  {names} [command]\n\n", tool.help);
            list(&mut out, tool.commands);
            flags(&mut out, "Flags", tool.flags);
        }
        Some(command) => {
            let _ = write!(out, "{}.\n\n", command.help);
            match command.action {
                Action::Group(commands) => {
                    let _ = write!(out, "Usage:\n  {names} [command]\n\n");
                    list(&mut out, commands);
                }
                Action::Run(_) => {
                    let arguments =
                        if command.usage.is_empty() { String::new() } else { format!(" {}", command.usage) };
                    let _ = write!(out, "Usage:\n  {names}{arguments} [flags]\n\n");
                    if !command.notes.is_empty() {
                        let _ = writeln!(out, "{}", command.notes);
                    }
                    flags(&mut out, "Flags", command.flags);
                    flags(&mut out, "Flags of all commands", tool.flags);
                }
            }
        }
    }
    out
}

/// What follows an error in the command line: one line, so that the error stays in sight.
pub(crate) fn brief(program: &str, path: &[&'static Command]) -> String {
    let names: Vec<&str> = std::iter::once(program).chain(path.iter().map(|command| command.name)).collect();
    let names = names.join(" ");
    let behind = match path.last() {
        Some(Command { action: Action::Run(_), usage: "", .. }) => " [flags]".to_string(),
        Some(Command { action: Action::Run(_), usage, .. }) => format!(" {usage} [flags]"),
        _ => " [command]".to_string(),
    };
    format!("Usage: {names}{behind}; `{names} --help` shows all flags.\n")
}

/// What `options` says.
pub(crate) fn global_flags() -> String {
    let mut out = String::new();
    flags(&mut out, "Every command takes these flags", globals::FLAGS);
    out
}

fn list(out: &mut String, commands: &[Command]) {
    out.push_str("Commands:\n");
    for command in commands {
        match command.action {
            Action::Run(_) => {
                let _ = writeln!(out, "  {:<24} {}", command.name, command.help);
            }
            Action::Group(inner) => {
                for one in inner {
                    let _ = writeln!(out, "  {:<24} {}", format!("{} {}", command.name, one.name), one.help);
                }
            }
        }
    }
    out.push('\n');
}

fn flags(out: &mut String, title: &str, flags: &[Flag]) {
    if flags.is_empty() {
        return;
    }
    let _ = writeln!(out, "{title}:");
    for flag in flags {
        let short = flag.short.map_or("    ".to_string(), |short| format!("-{short}, "));
        let kind = match flag.kind {
            Kind::Switch => "",
            Kind::Text => " text",
            Kind::List => " texts",
            Kind::Int | Kind::Uint | Kind::Float => " number",
            Kind::Duration => " duration",
        };
        let default = match (flag.kind, flag.default) {
            (_, "" | "false" | "0") => String::new(),
            (Kind::Text | Kind::List, default) => format!(" (default {default:?})"),
            (_, default) => format!(" (default {default})"),
        };
        let _ = writeln!(out, "  {short}--{:<32} {}{default}", format!("{}{kind}", flag.name), flag.help);
    }
    out.push('\n');
}
