//! A load generator that costs so little that the server under it is what is measured.
//!
//! One thread has many connections and many calls on each; every answer is decoded and compared with what it has to be, and an
//! error is counted by its code and never as a success. [`run`] reads the command line (`arguments`, `plan`). Loads of single
//! requests are some `work` (`plain`: `range`, `put`, `list`, made by `request`, checked by `answer` and `listing`), which `singles`
//! has sent by `lane`s, one connection each, in a closed loop or at the times that `pacer` sets; `watch` and `keepalive` are loads of
//! streams. `limits` says how much there may be of all that, `interrupt` when it is enough. What was measured is gathered in `meter`
//! (with a `histogram`) and told by `report`.
//!
//! [`run_tool`] is etcd's `benchmark` on the same engine: `tool`.
//!
//! Studies are on top of it: `run_study`. A `runfile` has the rows of many loads, `report_page` makes a page of it, beside figures
//! that were `published`.

mod answer;
mod arguments;
mod compare;
mod cutter;
mod histogram;
mod interrupt;
mod keepalive;
mod lane;
mod limits;
mod link;
mod listing;
mod measure;
mod meter;
mod pacer;
mod pass;
mod perfdash;
mod plain;
mod plan;
mod progress;
mod published;
mod report;
mod report_page;
mod request;
mod runfile;
mod seeker;
mod series;
mod singles;
mod socket;
mod sweep;
mod tool;
mod usage;
mod watch;
mod wire;
mod words;
mod work;

/// Runs a command line of `cairn bench`, which is etcd's `benchmark` and more; returns the exit code. `program` is what it was started as.
pub fn run_tool(program: &str, args: impl IntoIterator<Item = String>) -> i32 {
    let words: Vec<String> = args.into_iter().collect();
    // Sub-commands that etcd's tool does not have, and that read their own command lines, go first here.
    if let Some((command, rest)) = words.split_first()
        && let Some(code) = run_study(command, rest.iter().cloned())
    {
        return code;
    }
    let code = tool::run(program, &words);
    // Whoever has ended a run by Ctrl-C has its report, and nothing that looks like a success or a mistake.
    if interrupt::is_interrupted() { interrupt::EXIT_CODE } else { code }
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

/// Runs `sweep`, `report` or `compare` with what stands behind that word, and returns the exit code. None: `command` is none of them.
fn run_study(command: &str, args: impl Iterator<Item = String>) -> Option<i32> {
    match command {
        "compare" => Some(compare::run(args)),
        "report" => Some(report_page::run(args)),
        "sweep" => Some(sweep::run(args)),
        _ => None,
    }
}

/// Runs the load that the arguments describe and prints what came of it as JSON. Returns the exit code: 0 if every request was
/// answered as it should be, 1 if not, 2 if nothing was measured.
pub fn run(args: impl Iterator<Item = String>) -> i32 {
    let plan = match plan::Plan::parse(args) {
        Ok(plan) => plan,
        Err(error) => {
            flags::say!("{error}\n\n{}", plan::USAGE);
            return 2;
        }
    };
    let measured = match plan.load {
        plan::Load::Watch => watch::run(&plan),
        plan::Load::KeepAlive => keepalive::run(&plan),
        _ => singles::run(&plan),
    };
    match measured {
        Ok(report) => {
            tool::say(&(report.json() + "\n"));
            i32::from(!report.is_clean())
        }
        Err(error) => {
            flags::say!("{error}");
            2
        }
    }
}
