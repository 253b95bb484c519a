//! `completion`: scripts for a shell's completion of command lines. They call the hidden command [`HIDDEN`], as those of etcd's tool do.

use crate::command::{Action, Command, Context, command};
use crate::failure::{Failure, Outcome};
use crate::flags::Kind;
use crate::tool::Tool;
use crate::{print, suggest};
use std::path::Path;

pub(crate) const COMMAND: Command = of(run);

/// The same of the other program.
pub(crate) const COMMAND_OF_UTIL: Command = of(run_util);

const fn of(run: fn(&Context) -> Outcome) -> Command {
    command("completion", "bash|zsh|fish|powershell", "Prints a script with which a shell completes command lines", run)
}

/// The possible completions of the last word.
pub(crate) const HIDDEN: &str = "__complete";
/// The same without what each is for.
pub(crate) const HIDDEN_BARE: &str = "__completeNoDesc";

const SHELLS: [(&str, &str); 4] = [
    ("bash", include_str!("completion/bash.sh")),
    ("zsh", include_str!("completion/zsh.sh")),
    ("fish", include_str!("completion/fish.fish")),
    ("powershell", include_str!("completion/powershell.ps1")),
];

fn run(context: &Context) -> Outcome {
    script(context, "etcdctl")
}

fn run_util(context: &Context) -> Outcome {
    script(context, "etcdutl")
}

/// A script for each of the names under which the binary is a program, if the shell is known: they ask the program that is called.
pub fn script_of_all(shell: &str) -> Option<String> {
    let (_, script) = SHELLS.iter().find(|(name, _)| *name == shell)?;
    Some(
        ["cairn", "etcd", "etcdctl", "etcdutl", "benchmark"]
            .map(|program| script.replace("etcdctl", program))
            .join("\n"),
    )
}

/// The scripts are written for `etcdctl`; where the commands are those of the one binary, they are registered under its name.
fn script(context: &Context, tool: &str) -> Outcome {
    let started = std::env::args_os().next().unwrap_or_default();
    let started = Path::new(&started).file_name().and_then(|name| name.to_str()).unwrap_or(tool);
    let program = if ["etcdctl", "etcdutl"].contains(&started) { tool } else { started };
    let [shell] = context.args() else {
        return Err(Failure::usage(format!("accepts 1 arg(s), received {}", context.args().len())));
    };
    match SHELLS.iter().find(|(name, _)| name == shell) {
        Some((_, script)) => print::out(script.replace("etcdctl", program).as_bytes()),
        None => Err(Failure::usage(format!("invalid argument {shell:?} for \"{tool} completion\""))),
    }
}

/// Prints what may be meant: a word and what it is, on a line each, then a line that tells the shell not to propose files.
pub(crate) fn complete(tool: &Tool, words: &[String], describes: bool) -> i32 {
    let line = |(word, help): &(String, &str)| match describes {
        true => format!("{word}\t{help}\n"),
        false => format!("{word}\n"),
    };
    let mut out: String = candidates(tool, words).iter().map(line).collect();
    // Cobra's number for "no files".
    out.push_str(":4\n");
    print::out(out.as_bytes()).map_or_else(|failure| failure.code, |()| 0)
}

fn candidates(tool: &Tool, words: &[String]) -> Vec<(String, &'static str)> {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    let (mut table, mut path): (&'static [Command], Option<&'static Command>) = (tool.commands, None);
    for word in before.iter().filter(|word| !word.starts_with('-')) {
        // The value of a flag may look like a command's name: then the completions are wrong until the line goes on.
        if let Some(found) = suggest::find(table, word) {
            path = Some(found);
            table = match found.action {
                Action::Group(commands) => commands,
                Action::Run(_) => &[],
            };
        }
    }
    let kept = |word: &String| word.starts_with(last);
    if before.last().is_some_and(|word| word == "-w" || word == "--write-out") {
        let formats = ["fields", "json", "protobuf", "simple", "table"].map(|format| (format.to_string(), ""));
        return formats.into_iter().filter(|(word, _)| kept(word)).collect();
    }
    if last.starts_with('-') {
        let own = path.map_or(&[][..], |command| command.flags);
        let flags = own.iter().chain(tool.flags).map(|flag| {
            let equals = if flag.kind == Kind::Switch { "" } else { "=" };
            (format!("--{}{equals}", flag.name), flag.help)
        });
        return flags.filter(|(word, _)| kept(word)).collect();
    }
    let shells = SHELLS.iter().map(|(name, _)| ((*name).to_string(), ""));
    let commands = table.iter().map(|command| (command.name.to_string(), command.help));
    match path {
        Some(command) if command.name == COMMAND.name => shells.filter(|(word, _)| kept(word)).collect(),
        _ => commands.filter(|(word, _)| kept(word)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::CTL;

    #[test]
    fn what_may_follow_is_proposed() {
        let proposed = |line: &str| {
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            candidates(&CTL, &words).into_iter().map(|(word, _)| word).collect::<Vec<_>>()
        };
        assert_eq!(proposed("com"), ["compaction", "completion"]);
        assert_eq!(proposed("user g"), ["get", "grant-role"]);
        assert_eq!(proposed("get --pref"), ["--prefix"]);
        assert_eq!(proposed("get k -w p"), ["protobuf"]);
        assert_eq!(proposed("completion b"), ["bash"]);
        assert!(proposed("get ").is_empty());
        assert!(proposed("put --cac").contains(&"--cacert=".to_string()));
    }
}
