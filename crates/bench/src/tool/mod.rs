//! `cairn bench`: etcd's `benchmark`, with its sub-commands, flags and reports.
//!
//! [`run`] finds the sub-command (`table`), reads its flags (`globals` are those of all) and runs it: one file each. Those that
//! send single requests run on the engine of this crate (`session` makes its course, `singles` drives it), those of streams have
//! lanes of their own (`watching`), `stm` is on the `client` crate. `summary` writes the reports.

mod command;
mod failure;
mod globals;
mod help;
mod keys;
mod lease_keepalive;
mod mvcc;
mod output;
mod pages;
mod put;
mod range;
mod session;
mod single;
mod stm;
mod summary;
mod table;
mod txn_mixed;
mod txn_put;
mod watch;
mod watch_get;
mod watch_latency;
mod watching;

use command::Action;
use failure::{Failure, Outcome};
pub use help::Program;
pub use output::say;
pub use pages::page;

/// Runs a command line of the tool, without the program's name; returns the exit code.
pub(crate) fn run(program: Program<'_>, words: &[String]) -> i32 {
    let wants_help = words.first().is_some_and(|word| word == "help");
    let words = if wants_help { &words[1..] } else { words };
    let (path, outcome) = match table::find(words, globals::FLAGS) {
        Err(unknown) => {
            let program = program.name;
            let text = format!("unknown command {unknown:?} for {program:?}");
            flags::say!("Error: {text}\nRun '{program} --help' for usage.\n{text}");
            return Failure::unreadable("").code;
        }
        Ok(found) => {
            let outcome = execute(program, &found, wants_help);
            (found.path, outcome)
        }
    };
    let Err(failure) = outcome else { return 0 };
    // As in etcd's tool, the error is printed before the usage and again behind it; all of the usage would push it out of sight.
    if failure.shows_usage {
        if !failure.text.is_empty() {
            flags::say!("Error: {}", failure.text);
        }
        flags::say_part!("{}", help::brief(program, &path));
    }
    if !failure.text.is_empty() {
        flags::say!("{}", failure.text);
    }
    failure.code
}

fn execute(program: Program<'_>, found: &table::Found, wants_help: bool) -> Outcome {
    let own = found.path.last().map_or(&[][..], |command| command.flags);
    let flags: Vec<flags::Flag> = globals::FLAGS.iter().chain(own).chain([&globals::HELP]).copied().collect();
    let parsed = flags::parse(&found.rest, &flags).map_err(|error| Failure::unreadable(error.0))?;
    match found.path.last().map(|command| &command.action) {
        Some(Action::Run(run)) if !wants_help && !parsed.switch("help") => run(&parsed),
        _ => {
            say(&help::page(program, &found.path));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program<'_> = Program { name: "benchmark", others: &[("sweep", "Many loads")] };

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn sub_commands_are_found_among_flags() {
        let found = table::find(&words("--conns=3 --target-leader --clients 2 put --total 5"), globals::FLAGS);
        let found = found.unwrap_or_else(|word| panic!("{word}"));
        assert_eq!(found.path.iter().map(|command| command.name).collect::<Vec<_>>(), ["put"]);
        assert_eq!(found.rest, words("--conns=3 --target-leader --clients 2 --total 5"));
        assert_eq!(table::find(&words("nonsense"), globals::FLAGS).err().as_deref(), Some("nonsense"));
    }

    #[test]
    fn the_first_page_lists_what_else_the_program_has() {
        let page = help::page(PROGRAM, &[]);
        assert!(page.contains("  stm             ") && page.contains("  sweep           Many loads\n"), "{page}");
        assert!(!help::page(PROGRAM, &[&table::COMMANDS[0]]).contains("Many loads"));
    }

    #[test]
    fn flags_have_one_meaning_each() {
        fn check(table: &[command::Command]) {
            for command in table {
                let mut names: Vec<_> = globals::FLAGS.iter().chain(command.flags).map(|flag| flag.name).collect();
                let all = names.len();
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), all, "a flag of `{}`", command.name);
                if let Action::Group(table) = command.action {
                    check(table);
                }
            }
        }
        check(table::COMMANDS);
    }

    #[test]
    fn command_lines_that_cannot_be_read_end_with_255() {
        for line in ["nonsense", "put --nope", "put --total=x", "put --total", "--conns=-1 put", "--dial-timeout=5 put"]
        {
            assert_eq!(run(PROGRAM, &words(line)), 255, "{line}");
        }
        for line in [
            "range",
            "range a b c",
            "range a --consistency=x",
            "txn-mixed a --consistency=x",
            "stm --isolation=z",
            "stm --stm-locker=z",
            "stm --keys=0",
            "stm --txn-wr-percent=101",
            "stm --keys=2 --keys-per-txn=3",
            "put --key-space-size=0",
            "put --key-size=-1",
            "put --val-size=-1",
            "put --rate=-1",
            "--conns=0 put",
            "--clients=18446744073709551615 put",
            "--conns=18446744073709551615 put",
            "txn-put --txn-ops=2",
            "txn-put --txn-ops=-1",
            "watch --streams=-1",
            "watch --watched-key-total=0",
            "watch --streams=9223372036854775807",
            "watch-latency --streams=9223372036854775807",
            "watch-get --streams=0",
            "watch-latency --put-rate=-1",
            "mvcc put --total=-1",
            "--cacert=/nonexistent put",
            "--cert=/nonexistent put",
        ] {
            assert_eq!(run(PROGRAM, &words(line)), 1, "{line}");
        }
    }
}
