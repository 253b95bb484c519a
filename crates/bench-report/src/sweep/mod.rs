//! `bench sweep`: the tables of published studies in one go.
//!
//! `options` reads the command line, `tables` makes the [`Case`](case::Case)s of it, and `course` measures one after the other: fills
//! in the keys that a case needs (`stock`), prints each row as it is there (`screen`) and puts it into the file, which a later run
//! goes on with (`resume`). `stop` is for Ctrl-C.

mod case;
mod course;
mod options;
mod resume;
mod screen;
mod stock;
mod stop;
mod tables;

use bench::BenchError;
pub(crate) use screen::say;
pub(crate) use stop::{Interruption, left_behind, on_interrupt, undisturbed};

/// Exit codes.
const MEASURED: i32 = 0;
const WITH_ERRORS: i32 = 1;
const NOT_BEGUN: i32 = 2;
const STOPPED: i32 = 3;

/// Runs the command. Returns the exit code: 0 if all rows were measured, 1 if requests failed in some, 2 if nothing was
/// begun, 3 if the sweep was stopped and can be resumed; Ctrl-C ends it with 130.
pub(crate) fn run(args: impl Iterator<Item = String>) -> i32 {
    let args: Vec<String> = args.collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        bench::say(&options::usage());
        return MEASURED;
    }
    let outcome = options::Options::parse(&args).and_then(|options| course::run(&options));
    match outcome {
        Ok(code) => code,
        Err(BenchError::Usage(text)) => {
            flags::say!("Usage: cairn bench sweep [flags]; `cairn bench sweep --help` shows all flags.\n{text}");
            NOT_BEGUN
        }
        Err(error) => {
            flags::say!("{error}");
            NOT_BEGUN
        }
    }
}
