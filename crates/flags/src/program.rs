//! Programs that are a group with commands under it, as `gateway start` is: which command a line names, its flags, and its usage.

use crate::{Entry, Error, Flag, Page, Parsed, parse, switch, takes_next};
use std::fmt::Write as _;
use std::io::Write as _;

/// A flag that every command has.
const HELP: Flag = switch("help", "what the command does, and its flags").or('h');

/// A command of a [`Program`].
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The word by which it is called.
    pub name: &'static str,
    /// What it is for, in one line.
    pub help: &'static str,
    /// More about it; mostly nothing.
    pub notes: &'static str,
    /// Its flags.
    pub flags: &'static [Flag],
}

/// A group of commands.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The word by which it is called.
    pub name: &'static str,
    /// What it is for, in one line.
    pub help: &'static str,
    /// The commands under it.
    pub commands: &'static [Command],
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// To run the command of this name.
    Run(&'static str, Parsed),
    /// A text for the standard output; nothing else is to be done.
    Help(String),
}

impl Program {
    /// The page of the program with all its commands.
    pub fn page(&self) -> Page {
        let commands = self.commands.iter().map(|command| Page {
            name: command.name.into(),
            arguments: "[flags]".into(),
            help: command.help.into(),
            notes: command.notes.into(),
            flags: command.flags.iter().map(Entry::from).collect(),
            commands: Vec::new(),
        });
        Page {
            name: self.name.into(),
            arguments: "[command]".into(),
            help: self.help.into(),
            commands: commands.collect(),
            ..Page::default()
        }
    }

    /// Runs a command line (the words behind the program's name, and `called`, by which it was started): prints what is asked for or what
    /// is wrong, or has `run` run the command of a name. Returns the exit code, which is 1 for a line that cannot be read.
    pub fn run(&self, called: &str, words: &[String], run: impl FnOnce(&str, &Parsed) -> i32) -> i32 {
        match self.asked(called, words) {
            Ok(Asked::Run(name, parsed)) => run(name, &parsed),
            Ok(Asked::Help(text)) => {
                let mut stdout = std::io::stdout().lock();
                // Nobody can be told that nobody reads this.
                let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
                0
            }
            Err((name, Error(why))) => {
                crate::say!("Error: {why}\nUsage: {called} {name} [flags]; `{called} {name} --help` shows all flags.");
                1
            }
        }
    }

    /// What a command line asks for. Flags may stand before the command, as cobra has it; a line without a command asks for help.
    ///
    /// # Errors
    /// If the flags of a command cannot be read: its name, and why.
    pub fn asked(&self, called: &str, words: &[String]) -> Result<Asked, (&'static str, Error)> {
        let Some((place, command)) = self.find(words) else { return Ok(Asked::Help(self.usage(called))) };
        let rest: Vec<String> =
            words.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, word)| word.clone()).collect();
        let flags: Vec<Flag> = command.flags.iter().chain([&HELP]).copied().collect();
        let parsed = parse(&rest, &flags).map_err(|error| (command.name, error))?;
        if parsed.switch("help") || words.first().is_some_and(|word| word == "help") {
            return Ok(Asked::Help(usage(command, called)));
        }
        Ok(Asked::Run(command.name, parsed))
    }

    fn find(&self, words: &[String]) -> Option<(usize, &'static Command)> {
        let all = || self.commands.iter().flat_map(|command| command.flags).chain([&HELP]);
        let mut words = words.iter().enumerate();
        while let Some((place, word)) = words.next() {
            if word == "--" {
                return None;
            }
            if word.len() > 1 && word.starts_with('-') {
                if takes_next(word, all()) {
                    words.next();
                }
            } else if !(place == 0 && word == "help") {
                return self.commands.iter().find(|command| command.name == word).map(|command| (place, command));
            }
        }
        None
    }

    fn usage(&self, called: &str) -> String {
        let mut out = format!("{}.\n\nUsage:\n  {called} [command]\n\nCommands:\n", self.help);
        for command in self.commands {
            put(&mut out, format_args!("  {:<12} {}\n", command.name, command.help));
        }
        put(&mut out, format_args!("\n`{called} [command] --help` says more about a command.\n"));
        out
    }
}

fn usage(command: &Command, called: &str) -> String {
    let mut out = format!("{}.\n\nUsage:\n  {called} {} [flags]\n\n", command.help, command.name);
    if !command.notes.is_empty() {
        put(&mut out, format_args!("{}\n\n", command.notes));
    }
    out.push_str("Flags:\n");
    for flag in command.flags.iter().chain([&HELP]) {
        let short = flag.short.map_or("    ".to_string(), |short| format!("-{short}, "));
        let named = format!("{}{}", flag.name, flag.kind.placeholder());
        let default = match flag.default {
            "" | "false" => String::new(),
            default => format!(" (default {default})"),
        };
        put(&mut out, format_args!("  {short}--{named:<40} {}{default}\n", flag.help));
    }
    out
}

/// Writing to a string cannot fail.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{list, text};

    const PROGRAM: Program = Program {
        name: "gate",
        help: "A gate",
        commands: &[Command {
            name: "start",
            help: "Starts it",
            notes: "",
            flags: &[text("listen", "here", "where"), list("to", "a,b", "whereto"), switch("fast", "how")],
        }],
    };

    fn asked(line: &str) -> Result<Asked, (&'static str, Error)> {
        PROGRAM.asked("cairn gate", &line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn flags_may_stand_before_the_command() {
        for line in ["start --to=x --to y", "--to x start --to=y", "--fast --to=x --to y start", "--to=x,y start more"]
        {
            let Ok(Asked::Run("start", parsed)) = asked(line) else { panic!("{line}") };
            assert_eq!((parsed.texts("to"), parsed.text("listen")), (vec!["x", "y"], "here"), "{line}");
        }
        let Ok(Asked::Run(_, parsed)) = asked("start") else { panic!("refused") };
        assert_eq!(parsed.texts("to"), ["a", "b"]);
        let Ok(Asked::Run(_, parsed)) = asked("start --to=") else { panic!("refused") };
        assert!(parsed.texts("to").is_empty());
    }

    #[test]
    fn help_is_given_and_wrong_flags_are_refused() {
        for (line, wanted) in [
            ("", "cairn gate [command]"),
            ("--help", "cairn gate [command]"),
            ("nonsense --to x", "cairn gate [command]"),
            ("start --help", "--to texts"),
            ("help start", "(default here)"),
        ] {
            let Ok(Asked::Help(text)) = asked(line) else { panic!("`{line}` is no call for help") };
            assert!(text.contains(wanted), "{line}: {text}");
        }
        let (name, error) = asked("start --nope").expect_err("refused");
        assert_eq!((name, error.0.as_str()), ("start", "unknown flag: --nope"));
        assert_eq!(PROGRAM.run("cairn gate", &["start".into(), "--nope".into()], |_, _| 0), 1);
    }

    #[test]
    fn the_page_has_everything() {
        let page = PROGRAM.page();
        assert_eq!((page.name.as_str(), page.commands[0].name.as_str()), ("gate", "start"));
        assert_eq!(page.commands[0].flags.len(), 3);
    }
}
