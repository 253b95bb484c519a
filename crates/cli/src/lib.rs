//! The commands of `etcdctl` and `etcdutl`, under the names of `cairn ctl` and `cairn util` and under etcd's own; `cairn check`,
//! `cairn doctor`, `cairn takeover`, `cairn backup` and `cairn restore`.
//!
//! [`run`] finds the command in the table ([`commands`]), reads flags as Go's `pflag` does ([`mod@flags`]), and prints in etcd's forms
//! ([`print`]); the work is done by the `client` crate.

// `print!` and `eprint!` panic if the reader is gone.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod backup;
mod checks;
mod command;
mod commands;
mod failure;
mod globals;
mod pages;
mod print;
mod progress;
mod raw;
mod signals;
mod suggest;
mod takeover;
mod terminal;
mod tool;
mod top;
mod usage;
mod util;

pub use commands::completion::script_of_all;
pub use pages::pages;

pub(crate) use ::flags;
use command::{Action, Command, Context};
use commands::completion;
use failure::{Outcome, code};
use flags::{Flag, Parsed};
use std::ffi::OsString;
use tool::Tool;

/// Runs a command line of `etcdctl` (without the program's name); returns the exit code.
pub fn run(program: &str, args: impl IntoIterator<Item = OsString>) -> i32 {
    tool(program, &tool::CTL, args)
}

/// Runs a command line of `etcdutl` (without the program's name); returns the exit code.
pub fn run_util(program: &str, args: impl IntoIterator<Item = OsString>) -> i32 {
    tool(program, &tool::UTIL, args)
}

/// Runs a command line of `cairn check` or `cairn doctor` (with that word, without the program's name); returns the exit code.
pub fn run_checks(program: &str, args: impl IntoIterator<Item = OsString>) -> i32 {
    tool(program, &tool::CHECKS, args)
}

/// Runs a command line of `cairn takeover` (with that word, without the program's name); returns the exit code.
pub fn run_takeover(program: &str, args: impl IntoIterator<Item = OsString>) -> i32 {
    tool(program, &tool::TAKEOVER, args)
}

/// Runs a command line of `cairn top` (with that word, without the program's name); returns the exit code.
pub fn run_top(program: &str, args: impl IntoIterator<Item = OsString>) -> i32 {
    tool(program, &tool::TOP, args)
}

/// Runs a command line of `cairn backup` (with that word, without the program's name); returns the exit code.
pub fn run_backup(program: &str, args: impl IntoIterator<Item = OsString>) -> i32 {
    tool(program, &tool::BACKUP, args)
}

/// Runs a command line of `cairn restore` (with that word, without the program's name); returns the exit code.
pub fn run_restore(program: &str, args: impl IntoIterator<Item = OsString>) -> i32 {
    tool(program, &tool::RESTORE, args)
}

fn tool(program: &str, tool: &Tool, args: impl IntoIterator<Item = OsString>) -> i32 {
    let words: Vec<String> = args.into_iter().map(|word| raw::word(&word)).collect();
    match words.split_first() {
        Some((first, rest)) if first == completion::HIDDEN => return completion::complete(tool, rest, true),
        Some((first, rest)) if first == completion::HIDDEN_BARE => return completion::complete(tool, rest, false),
        _ => {}
    }
    let (path, rest) = match find(tool, &words) {
        Ok(found) => found,
        Err(unknown) if unknown == HELP => {
            let named = words.iter().skip_while(|word| *word != HELP).skip(1);
            return help(tool, program, &named.cloned().collect::<Vec<_>>());
        }
        Err(unknown) => {
            let quoted = print::go::quote(&raw::bytes(&unknown));
            flags::say!("Error: unknown command {quoted} for \"{program}\"");
            let meant = suggest::names(tool.commands, &unknown);
            if !meant.is_empty() {
                flags::say!("\nDid you mean this?\n\t{}\n", meant.join("\n\t"));
            }
            flags::say!("Run '{program} --help' for usage.");
            return code::ERROR;
        }
    };
    let failure = match execute(program, tool, &path, &rest) {
        Ok(()) => return 0,
        Err(failure) => failure,
    };
    if !failure.text.is_empty() {
        flags::say_bytes(&raw::message(&format!("Error: {}\n", failure.text)));
    }
    if failure.shows_usage {
        flags::say_part!("{}", usage::brief(program, &path));
    }
    failure.code
}

/// Tells about the command after it.
const HELP: &str = "help";

/// `help` and the name of a command.
fn help(tool: &Tool, program: &str, words: &[String]) -> i32 {
    let (path, text) = match find(tool, words) {
        Ok((path, rest)) if rest.is_empty() => (path, String::new()),
        _ => (Vec::new(), format!("Unknown help topic `{}`\n", words.join(" "))),
    };
    flags::say_part!("{text}");
    print::out(usage::of(tool, program, &path).as_bytes()).map_or_else(|failure| failure.code, |()| 0)
}

fn execute(program: &str, tool: &Tool, path: &[&'static Command], words: &[String]) -> Outcome {
    let own = path.last().map_or(&[][..], |command| command.flags);
    let flags: Vec<Flag> = tool.flags.iter().chain(own).copied().collect();
    let mut parsed: Parsed = flags::parse(words, &flags)?;
    let run = match path.last().map(|command| &command.action) {
        Some(Action::Run(run)) if !parsed.switch("help") => run,
        _ => return print::out(usage::of(tool, program, path).as_bytes()),
    };
    if tool.has_variables {
        globals::environment(&mut parsed, |name| std::env::var_os(name).map(|value| raw::word(&value)))?;
    }
    run(&Context::new(parsed)?)
}

/// The commands that the first words name, and all other words. Flags may stand before them.
fn find(tool: &Tool, words: &[String]) -> Result<(Vec<&'static Command>, Vec<String>), String> {
    let (mut path, mut rest, mut table): (Vec<&'static Command>, Vec<String>, &'static [Command]) =
        (Vec::new(), Vec::new(), tool.commands);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" || table.is_empty() {
            rest.push(word.clone());
            rest.extend(words.cloned());
            break;
        }
        if word.len() > 1 && word.starts_with('-') {
            rest.push(word.clone());
            let own = path.last().map_or(&[][..], |command| command.flags);
            if flags::takes_next(word, tool.flags.iter().chain(own)) {
                rest.extend(words.next().cloned());
            }
            continue;
        }
        match suggest::find(table, word) {
            Some(command) => {
                path.push(command);
                table = match command.action {
                    Action::Group(commands) => commands,
                    Action::Run(_) => &[],
                };
            }
            None if path.is_empty() => return Err(word.clone()),
            // A group answers with its usage.
            None => {
                rest.push(word.clone());
                table = &[];
            }
        }
    }
    Ok((path, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    fn names(line: &str) -> (Vec<&'static str>, Vec<String>) {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let (path, rest) = find(&tool::CTL, &words).expect("a command");
        (path.iter().map(|command| command.name).collect(), rest)
    }

    #[test]
    fn commands_are_found_among_flags() {
        assert_eq!(
            names("--endpoints a:1 get --debug k"),
            (vec!["get"], vec!["--endpoints".into(), "a:1".into(), "--debug".into(), "k".into()])
        );
        assert_eq!(names("-w json member list").0, ["member", "list"]);
        assert_eq!(names("--hex member list").0, ["member", "list"]);
        assert_eq!(names("put -- get x").0, ["put"]);
        assert_eq!(names("compact 5").0, ["compaction"]);
        assert_eq!(find(&tool::CTL, &["pit".to_string()]).err(), Some("pit".to_string()));
    }

    #[test]
    fn flags_have_one_meaning_each() {
        fn check(all: &[Flag], table: &[Command]) {
            for command in table {
                let flags: Vec<&Flag> = all.iter().chain(command.flags).collect();
                for (place, flag) in flags.iter().enumerate() {
                    let twice = flags[..place]
                        .iter()
                        .any(|other| other.name == flag.name || (flag.short.is_some() && other.short == flag.short));
                    assert!(!twice, "`{}` of `{}`", flag.name, command.name);
                }
                if let Action::Group(commands) = command.action {
                    check(all, commands);
                }
            }
        }
        for tool in [tool::CTL, tool::UTIL, tool::CHECKS, tool::TAKEOVER, tool::TOP, tool::BACKUP, tool::RESTORE] {
            check(tool.flags, tool.commands);
        }
    }

    #[test]
    fn failures_end_with_etcds_codes() {
        assert_eq!(Failure::args("no").code, 128);
        assert_eq!(Failure::usage("no").code, 1);
    }
}
