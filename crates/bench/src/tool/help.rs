//! The pages that `--help` shows, in the layout of etcd's tool.

use std::fmt::Write;

use flags::{Flag, Kind};

use super::command::{Action, Command};
use super::globals;
use super::table::COMMANDS;

/// What the tool is for.
pub(crate) const LONG: &str =
    "Measures a cluster that speaks the etcd v3 protocol: etcd's benchmark, on a generator that costs little itself";

/// The program that the tool is part of.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The name under which the program was started.
    pub name: &'a str,
    /// Further commands of the program, each with a short description. The page of the tool lists them.
    pub others: &'a [(&'a str, &'a str)],
}

/// The page of the sub-command at the end of `path`; that of the tool, if it is empty.
pub(crate) fn page(program: Program<'_>, path: &[&'static Command]) -> String {
    format!("{}\n\n{}", path.last().map_or(LONG, |command| command.long), usage(program, path))
}

/// What is told of the usage where a command line cannot be read.
pub(crate) fn brief(program: Program<'_>, path: &[&'static Command]) -> String {
    let names: Vec<&str> = std::iter::once(program.name).chain(path.iter().map(|command| command.name)).collect();
    let names = names.join(" ");
    let arguments = match path.last() {
        Some(Command { action: Action::Run(_), arguments, .. }) => format!("{arguments} [flags]"),
        _ => " [command]".to_owned(),
    };
    format!("Usage:\n  {names}{arguments}\n`{names} --help` shows all flags.\n")
}

/// How the sub-command is used.
pub(crate) fn usage(program: Program<'_>, path: &[&'static Command]) -> String {
    let names: Vec<&str> = std::iter::once(program.name).chain(path.iter().map(|command| command.name)).collect();
    let names = names.join(" ");
    let own = path.last().map_or(&[][..], |command| command.flags);
    let mut out = String::from("Usage:\n");
    let table = match path.last().map(|command| &command.action) {
        None => Some(COMMANDS),
        Some(Action::Group(table)) => Some(*table),
        Some(Action::Run(_)) => None,
    };
    let Some(table) = table else {
        let arguments = path.last().map_or("", |command| command.arguments);
        put(&mut out, format_args!("  {names}{arguments} [flags]\n\n"));
        flags_of(&mut out, "Flags", own.iter().chain([&globals::HELP]));
        flags_of(&mut out, "Global Flags", globals::FLAGS);
        return out;
    };
    put(&mut out, format_args!("  {names} [command]\n\nAvailable Commands:\n"));
    let mut listed: Vec<(&str, &str)> = table.iter().map(|command| (command.name, command.short)).collect();
    if path.is_empty() {
        listed.extend(program.others);
        listed.push(("help", "Help about any command"));
        listed.sort_unstable();
    }
    for (name, short) in listed {
        put(&mut out, format_args!("  {name:<15} {short}\n"));
    }
    out.push('\n');
    if path.is_empty() {
        flags_of(&mut out, "Flags", globals::FLAGS.iter().chain([&globals::HELP]));
    } else {
        flags_of(&mut out, "Flags", own.iter().chain([&globals::HELP]));
        flags_of(&mut out, "Global Flags", globals::FLAGS);
    }
    put(&mut out, format_args!("Use \"{names} [command] --help\" for more information about a command.\n"));
    out
}

fn flags_of<'a>(out: &mut String, title: &str, flags: impl IntoIterator<Item = &'a Flag>) {
    let mut flags: Vec<&Flag> = flags.into_iter().collect();
    flags.sort_unstable_by_key(|flag| flag.name);
    let left: Vec<String> = flags.iter().map(|flag| left(flag)).collect();
    let width = left.iter().map(String::len).max().unwrap_or(0);
    put(out, format_args!("{title}:\n"));
    for (flag, left) in flags.iter().zip(left) {
        let default = match (flag.kind, flag.default) {
            (_, "" | "false" | "0" | "0s") => String::new(),
            (Kind::Text, default) => format!(" (default {default:?})"),
            (Kind::List, default) => format!(" (default [{default}])"),
            (_, default) => format!(" (default {default})"),
        };
        put(out, format_args!("{left:width$}   {}{default}\n", flag.help));
    }
    out.push('\n');
}

fn left(flag: &Flag) -> String {
    let short = flag.short.map_or("      ".to_string(), |short| format!("  -{short}, "));
    let kind = match flag.kind {
        Kind::Switch => "",
        Kind::Text => " string",
        Kind::List => " strings",
        Kind::Int => " int",
        Kind::Uint => " uint",
        Kind::Float => " float",
        Kind::Duration => " duration",
    };
    format!("{short}--{}{kind}", flag.name)
}

/// Writing to a string cannot fail.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}
