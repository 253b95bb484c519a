//! A load generator that costs so little that the server under it is what is measured.
//!
//! One thread has many connections and many calls on each; every answer is decoded and compared with what it has to be, and an
//! error is counted by its code and never as a success. [`run`] reads the command line (`arguments`, `plan`). Loads of single
//! requests are some `work` (`plain`: `range`, `put`, `list`, made by `request`, checked by `answer` and `listing`), which `singles`
//! has sent by `lane`s, one connection each, in a closed loop or at the times that `pacer` sets; `watch` and `keepalive` are loads of
//! streams. `limits` says how much there may be of all that, `interrupt` when it is enough. What was measured is gathered in `meter`
//! (with a `histogram`) and told by `report`. `base` measures the machine without any server.
//!
//! [`run_tool`] is etcd's `benchmark` on the same engine: `tool`.
//!
//! Programs with loads of their own implement [`Work`] and have [`drive`] run it as a [`Course`] says; a [`Meter`] and a [`Cost`] are
//! what comes of it. [`wire`] makes requests, [`Cutter`], [`Listing`] and [`answer`] check answers.

pub mod answer;
mod arguments;
mod base;
mod cutter;
mod histogram;
mod interrupt;
mod keepalive;
mod lane;
mod limits;
mod link;
mod listing;
mod meter;
mod pacer;
mod pass;
mod perfdash;
mod plain;
mod plan;
mod progress;
mod report;
mod request;
mod seeker;
mod series;
mod singles;
mod socket;
mod tool;
mod usage;
mod utc;
mod watch;
pub mod wire;
mod work;

pub use arguments::{Arguments, check_connections};
pub use cutter::Cutter;
pub use histogram::Histogram;
pub use interrupt::{EXIT_CODE, interrupt, is_interrupted};
pub use link::{Place, open};
pub use listing::Listing;
pub use meter::{Cost, Meter};
pub use request::prefix_range;
pub use singles::{Attended, Course, drive};
pub use socket::Socket;
pub use tool::{Program, page, say};
pub use utc::utc_now;
pub use work::{Request, Work};

/// Runs a command line of etcd's `benchmark`, without the program's name; returns the exit code.
pub fn run_tool(program: Program<'_>, words: &[String]) -> i32 {
    let code = tool::run(program, words);
    // A run that was ended by Ctrl-C has printed its report. Its exit code is neither success nor failure.
    if is_interrupted() { EXIT_CODE } else { code }
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The command line.
    #[error("{0}")]
    Usage(String),
    /// The system.
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
    /// A server.
    #[error("{0}")]
    Server(String),
}

/// Runs the load that the arguments describe and prints its report as JSON. Returns the exit code: 0 if every request
/// was answered correctly, 1 if not, 2 if nothing was measured.
pub fn run(args: impl Iterator<Item = String>) -> i32 {
    let words: Vec<String> = args.collect();
    let outcome = match base::run(&words) {
        Some(outcome) => outcome.map(|json| (json, true)),
        None => send(words.into_iter()).map(|report| (report.json(), report.is_clean())),
    };
    match outcome {
        Ok((json, is_clean)) => {
            say(&(json + "\n"));
            i32::from(!is_clean)
        }
        Err(BenchError::Usage(text)) => {
            flags::say!("{}\n\n{text}", plan::USAGE);
            2
        }
        Err(error) => {
            flags::say!("{error}");
            2
        }
    }
}

/// Runs a load that sends requests.
fn send(args: impl Iterator<Item = String>) -> Result<report::Report, BenchError> {
    let plan = plan::Plan::parse(args)?;
    match plan.load {
        plan::Load::Watch => watch::run(&plan),
        plan::Load::KeepAlive => keepalive::run(&plan),
        _ => singles::run(&plan),
    }
}
