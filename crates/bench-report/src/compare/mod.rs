//! `bench compare`: two clusters, measured from one machine in turn.
//!
//! `options` reads the command line, `course` measures pair after pair, `spread` makes ratios of them.

mod course;
mod options;
mod spread;

use bench::BenchError;
pub(crate) use spread::{METRICS, Metric, Spread, TABLE, spreads};

/// Runs the command. Returns the exit code: 0 if every request was answered correctly, 1 if not, 2 if nothing was
/// begun, 3 if the comparison could not be completed; Ctrl-C ends it with 130.
pub(crate) fn run(args: impl Iterator<Item = String>) -> i32 {
    let args: Vec<String> = args.collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        bench::say(&options::usage());
        return 0;
    }
    match options::Options::parse(&args).and_then(|options| course::run(&options)) {
        Ok(code) => code,
        Err(BenchError::Usage(text)) => {
            flags::say!("Usage: cairn bench compare [flags]; `cairn bench compare --help` shows all flags.\n{text}");
            2
        }
        Err(error) => {
            flags::say!("{error}");
            2
        }
    }
}
