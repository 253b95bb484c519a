//! `cairn-sim`: runs seeds on all cores, or one with its trace.
//!
//! ```text
//! cairn-sim --seeds 20000 [--from 1]     seeds from a number on
//! cairn-sim --seconds 60 [--from N]      fresh seeds, from the clock unless told otherwise, for so long
//! cairn-sim --seed N                     one seed with its full trace on standard output
//! cairn-sim --twice ...                  each seed twice: a second trace that differs from the first is a violation
//! cairn-sim --set-back ...               a member is set back to an older copy of its directory in each run that can have it
//! cairn-sim --long ...                   each seed as a long run: 500 operations, a minute, ten faults of three kinds, a crash and a compaction
//! cairn-sim --two-learners ...           five members, and two learners beside them as soon as members change
//! cairn-sim --table FILE                 the seeds of a table, one a line with what they once found; `plain` behind a seed is as --plain
//! cairn-sim --plain ...                  runs without what only some have beside the plan: seeds of before 2026-11-24
//! cairn-sim --planted FILE [--seeds N]   plants each known mistake until a seed finds it; the table goes to FILE
//! ```

#![allow(clippy::disallowed_methods, reason = "only how long a search takes, and where it begins, come from the clock")]

mod planted;

use sim::{Failure, Mutation, Options, Report, Trace};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Failures after which no more seeds are begun.
const FAILURES_MAX: usize = 5;

#[derive(Default)]
struct Arguments {
    seed: Option<u64>,
    seeds: Option<u64>,
    seconds: Option<u64>,
    from: Option<u64>,
    table: Option<String>,
    planted: Option<String>,
    twice: bool,
    options: Options,
}

fn parse() -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut words = std::env::args().skip(1);
    while let Some(flag) = words.next() {
        let mut value = || words.next().ok_or(format!("{flag} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
        match flag.as_str() {
            "--seed" => arguments.seed = Some(number(value()?)?),
            "--seeds" => arguments.seeds = Some(number(value()?)?),
            "--seconds" => arguments.seconds = Some(number(value()?)?),
            "--from" => arguments.from = Some(number(value()?)?),
            "--table" => arguments.table = Some(value()?),
            "--planted" => arguments.planted = Some(value()?),
            "--twice" => arguments.twice = true,
            "--plain" => arguments.options.plain = true,
            "--two-learners" => arguments.options.two_learners = true,
            "--long" => arguments.options.long = true,
            "--set-back" => arguments.options.sets_back = true,
            "--clients-only" => arguments.options.clients_only = true,
            "--mutation" => {
                let name = value()?;
                let found = Mutation::all().into_iter().find(|mutation| format!("{mutation:?}") == name);
                arguments.options.mutation =
                    Some(found.ok_or(format!("no mutation {name}; there are {:?}", Mutation::all()))?);
            }
            _ => return Err(format!("unknown argument {flag}")),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    sim::catch_panics();
    if let Some(path) = &arguments.planted {
        return plant(path, &arguments);
    }
    match arguments.seed {
        Some(seed) => replay(seed, arguments.options),
        None => search(&arguments),
    }
}

/// Runs one seed and prints its trace.
fn replay(seed: u64, options: Options) -> ExitCode {
    let trace = Trace::on();
    let outcome = sim::run(seed, options, trace.clone());
    print!("{}", trace.text());
    match outcome {
        Ok(report) => {
            println!("seed {seed}: no violation\n{report:#?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("seed {seed}: {}", failure.message);
            ExitCode::FAILURE
        }
    }
}

/// Seeds that a planted mistake may take.
const PLANTED_SEEDS_MAX: u64 = 2_000;

/// Plants mistakes, and writes the table of what found them.
fn plant(path: &str, arguments: &Arguments) -> ExitCode {
    let (from, seeds_max) = (arguments.from.unwrap_or(1), arguments.seeds.unwrap_or(PLANTED_SEEDS_MAX));
    let (table, is_complete) = planted::run(arguments.options.mutation, from, seeds_max);
    if let Err(error) = std::fs::write(path, &table) {
        eprintln!("cannot write `{path}`: {error}");
        return ExitCode::from(2);
    }
    print!("{table}");
    if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Seeds of a table: lines `<seed> <what it found>`; empty lines and those with a `#` are skipped.
fn read_table(path: &str) -> Result<Vec<(u64, bool)>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read `{path}`: {error}"))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let seed = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next() == Some("plain")))
    };
    lines.map(|line| seed(line).ok_or(format!("`{path}`: no seed in {line:?}"))).collect()
}

fn found(failure: &Failure, options: Options) -> String {
    let long = if options.long { " LONG=1" } else { "" };
    format!("seed {0}: {1}\n  replay: make sim SEED={0}{long}", failure.seed, failure.message)
}

/// Runs a seed twice. That both traces are equal is what makes a seed worth keeping.
fn twice(seed: u64, options: Options) -> Result<Report, Failure> {
    let traces = [Trace::on(), Trace::on()];
    let [first, second] = traces.each_ref().map(|trace| sim::run(seed, options, trace.clone()));
    let [one, other] = traces.map(|trace| trace.text());
    if one != other {
        let line = one.lines().zip(other.lines()).take_while(|(one, other)| one == other).count() + 1;
        return Err(Failure { seed, message: format!("its second trace differs from its first in line {line}") });
    }
    first.and(second)
}

fn search(arguments: &Arguments) -> ExitCode {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    let from = arguments.from.unwrap_or(if arguments.seeds.is_some() { 1 } else { clock });
    let listed = match arguments.table.as_deref().map(read_table) {
        Some(Ok(seeds)) => Some(seeds),
        Some(Err(error)) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
        None => None,
    };
    let count = match (&listed, arguments.seeds, arguments.seconds) {
        (Some(listed), ..) => listed.len() as u64,
        (None, Some(seeds), _) => seeds,
        (None, None, Some(_)) => u64::MAX,
        (None, None, None) => 100,
    };
    let began = Instant::now();
    let until = arguments.seconds.map(|seconds| began + Duration::from_secs(seconds));
    let total = Mutex::new((0_u64, Report::default(), Vec::<Failure>::new()));
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    println!("seeds from {from}");
    let worker = || {
        while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            let fresh = (from.wrapping_add(number), false);
            let (seed, plain) = listed.as_ref().map_or(fresh, |listed| listed[number as usize]);
            let options = Options { plain: plain || arguments.options.plain, ..arguments.options };
            let outcome = if arguments.twice { twice(seed, options) } else { sim::run(seed, options, Trace::off()) };
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            total.0 += 1;
            if total.0.is_multiple_of(1000) {
                println!("{} seeds, {:.1} minutes", total.0, began.elapsed().as_secs_f64() / 60.0);
            }
            match outcome {
                Ok(report) => total.1.add(&report),
                Err(failure) => {
                    println!("{}", found(&failure, arguments.options));
                    total.2.push(failure);
                    stop.store(total.2.len() >= FAILURES_MAX, Ordering::Relaxed);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
    });
    let (seeds, report, failures) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    println!("{report:#?}");
    // Repeated for readers who see only the end of a log.
    failures.iter().for_each(|failure| println!("{}", found(failure, arguments.options)));
    println!(
        "{seeds} seeds in {minutes:.1} minutes, {:.0} per minute; {} violations",
        seeds as f64 / minutes,
        failures.len()
    );
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
