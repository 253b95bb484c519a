//! A sweep from its first row to its last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bench::{BenchError, EXIT_CODE, Place, check_connections, is_interrupted, utc_now};

use super::case::{Case, Target};
use super::options::Options;
use super::screen::{Screen, say, words};
use super::stock::{Room, Stock};
use super::stop::{Interruption, left_behind, on_interrupt, undisturbed};
use super::{MEASURED, STOPPED, WITH_ERRORS, resume, tables};
use crate::measure::{Access, Cluster, Kind, Load, Task};
use crate::runfile::{self, Measured, Row, Run, State};

/// Limit of the time of rows with concurrent writes: writes that are offered and not taken accumulate.
const MIXED_TIME_MAX: Duration = Duration::from_secs(10);
/// Part of the error text of a full store.
const NO_SPACE: &str = "database space exceeded";

/// Measures the missing rows. Returns the exit code.
pub(super) fn run(options: &Options) -> Result<i32, BenchError> {
    // Every thread started from here on must block the signals.
    let done = Arc::new(Done::default());
    let (out, seen) = (options.out.display().to_string(), done.clone());
    on_interrupt(tables::OWN, move || seen.interruption(&out))?;
    let cluster = Cluster::connect(&options.access)?;
    // Two names of one member count once.
    let access = Access { endpoints: cluster.endpoints().to_vec(), ..options.access.clone() };
    let options = &Options { access, ..options.clone() };
    let cases = tables::cases(options);
    // Writes that accompany a load have connections of their own.
    let connections = |case: &Case| case.connections * if case.writes.is_some() { 2 } else { 1 };
    check_connections(cases.iter().map(connections).max().unwrap_or(0))?;
    let side = cluster.describe(&options.name)?;
    let run = resume::begin(options, &cases, side)?;
    Sweep { options, cluster: &cluster, cases, run, done }.run()
}

/// State for the message after an interruption.
#[derive(Default)]
struct Done {
    /// The number of measured rows, and of all rows.
    rows: AtomicUsize,
    all: AtomicUsize,
    /// The sweep may have written keys.
    has_begun: AtomicBool,
}

impl Done {
    fn interruption(&self, out: &str) -> Interruption {
        let all = self.all.load(Ordering::Relaxed);
        let text = match self.rows.load(Ordering::Relaxed) {
            0 => "interrupted before the first row was finished".to_owned(),
            rows => format!("interrupted: {rows} of {all} rows are in `{out}`; the same command goes on after them"),
        };
        Interruption { text, has_keys: self.has_begun.load(Ordering::Relaxed) }
    }
}

struct Sweep<'a> {
    options: &'a Options,
    cluster: &'a Cluster,
    cases: Vec<Case>,
    run: Run,
    done: Arc<Done>,
}

impl Sweep<'_> {
    fn run(mut self) -> Result<i32, BenchError> {
        let all = self.cases.len();
        self.run.rows.retain(|row| row.result.is_measured());
        // Each row belongs to another case: that was checked.
        let before = self.run.rows.len();
        self.done.rows.store(before, Ordering::Relaxed);
        self.done.all.store(all, Ordering::Relaxed);
        let out = self.options.out.display().to_string();
        if self.run.finished.is_some() {
            say(format_args!(
                "`{out}` is finished: it has all {all} rows. Make a page of it: cairn bench report {out}"
            ));
            return Ok(MEASURED);
        }
        self.greet(before, all);
        let mut stock = Stock::new(self.cluster, self.options)?;
        let mut screen = Screen::new(self.run.sides.first().map_or(0, |side| side.members.len()));
        // The file is written before the first row, so that an error shows at once.
        self.save()?;
        self.done.has_begun.store(true, Ordering::Relaxed);
        for (number, case) in self.cases.clone().into_iter().enumerate() {
            if self.run.row(case.table, &case.parameters).is_some() {
                continue;
            }
            screen.doing(number + 1, all, &words(case.table, &case.parameters));
            let (result, stopped) = self.measure(&case, &mut stock);
            if is_interrupted() {
                tidy(self.cluster, &mut stock);
                return Ok(EXIT_CODE);
            }
            let row = Row { table: case.table.into(), parameters: case.parameters, result };
            screen.row(&row);
            self.run.rows.push(row);
            if let Some(why) = self.save().err().map(|error| error.to_string()).or(stopped) {
                screen.foot();
                flags::say!("\nstopped: {why}");
                tidy(self.cluster, &mut stock);
                let rows = self.done.rows.load(Ordering::Relaxed);
                flags::say!("{rows} rows are in `{out}`; the same command goes on after them");
                return Ok(STOPPED);
            }
        }
        tidy(self.cluster, &mut stock);
        if is_interrupted() {
            return Ok(EXIT_CODE);
        }
        self.run.finished = Some(utc_now());
        if let Err(error) = self.save() {
            flags::say!("\nstopped: {error}");
            return Ok(STOPPED);
        }
        screen.foot();
        say(format_args!(
            "\n{} rows are in `{out}`. Make a page of them: cairn bench report {out}",
            self.run.rows.len()
        ));
        let has_errors = self.run.rows.iter().any(|row| row.result.errors_all() > 0);
        Ok(if has_errors { WITH_ERRORS } else { MEASURED })
    }

    fn greet(&self, before: usize, all: usize) {
        self.run.sides.iter().for_each(|side| say(format_args!("{}", side.words())));
        let machine = &self.run.machine;
        say(format_args!("load from {}, {} cores, {}", machine.cpu, machine.cores, machine.kernel));
        match self.options.row_time {
            Some(time) => say(format_args!("{} rows of at most {} s each", all - before, time.as_secs_f64())),
            None => say(format_args!("{} rows, each until all its queries are done", all - before)),
        }
        if before > 0 {
            say(format_args!("going on after {before} rows in `{}`", self.options.out.display()));
        }
    }

    fn finished(&self) -> usize {
        self.run.rows.iter().filter(|row| row.result.is_measured()).count()
    }

    fn save(&self) -> Result<(), BenchError> {
        let written = undisturbed(|| {
            let written = runfile::write(&self.options.out, &self.run);
            if written.is_ok() {
                self.done.rows.store(self.finished(), Ordering::Relaxed);
            }
            written
        });
        written.map_err(|error| BenchError::Server(error.to_string()))
    }

    /// The result of a row, and the reason if the sweep cannot continue.
    fn measure(&self, case: &Case, stock: &mut Stock<'_>) -> (Measured, Option<String>) {
        let stop = |why: String| (Measured::without(State::Stopped, why.clone()), Some(why));
        let offered =
            case.writes.map_or(0, |rate| (rate as f64 * self.time(case).map_or(0.0, |time| time.as_secs_f64())) as u64);
        let room = match stock.prepare(case, offered) {
            Ok(room) => room,
            Err(error) => return stop(error.to_string()),
        };
        let (requests, note) = match room {
            Room::Enough(requests) => (requests, None),
            Room::Less(requests, why) => (Some(requests), Some(format!("no more than {requests} requests: {why}"))),
            Room::None(why) => return (Measured::without(State::LeftOut, why), None),
        };
        let measured = self.task(case, requests).and_then(|(task, other)| self.cluster.measure(&task, other.as_ref()));
        let mut result = match measured {
            Ok(result) => result,
            Err(error) => return stop(error.to_string()),
        };
        let unsent = (result.unsent > 0)
            .then(|| format!("{} puts were due and not sent: too many were not answered yet", result.unsent));
        result.reason = note.or(unsent);
        let why = self.ending(&result);
        if let Some(why) = &why {
            (result.state, result.reason) = (State::Stopped, Some(why.clone()));
        }
        (result, why)
    }

    /// Why nothing more can be measured after this row.
    fn ending(&self, result: &Measured) -> Option<String> {
        if result.errors_all() == 0 {
            return None;
        }
        if result.examples.values().any(|text| text.contains(NO_SPACE)) {
            return Some(
                "the store has no space left: raise `--quota-backend-bytes`, then `cairn ctl alarm disarm`".to_owned(),
            );
        }
        self.cluster.answers().err().map(|error| format!("a server does not answer any more: {error}"))
    }

    /// How long a row may take.
    fn time(&self, case: &Case) -> Option<Duration> {
        let most = case.writes.map(|_| MIXED_TIME_MAX);
        self.options.row_time.into_iter().chain(most).min()
    }

    /// The load of a row, and the writes that accompany it.
    fn task(&self, case: &Case, requests: Option<u64>) -> Result<(Task, Option<Task>), BenchError> {
        let all = self.cluster.places()?;
        let places: Vec<Place> = match case.target {
            Target::All => all.clone(),
            Target::Leader => match self.cluster.leader()? {
                Some(leader) => vec![leader],
                None => return Err(BenchError::Server("the leader is none of the endpoints: name all members".into())),
            },
        };
        let time = self.time(case);
        let task = Task {
            load: case.load.clone(),
            places,
            connections: case.connections,
            calls: case.clients,
            threads: self.options.threads,
            requests,
            time,
            rate: None,
            token: None,
        };
        let writes = case.writes.filter(|rate| *rate > 0).map(|rate| Task {
            load: Load { kind: Kind::Put, ..case.load.clone() },
            places: all,
            connections: case.connections,
            calls: case.clients * 10,
            threads: 1,
            requests: None,
            time,
            rate: Some(rate as f64),
            token: None,
        });
        Ok((task, writes))
    }
}

/// Deletes the written keys, or prints that they are left. A full store must be emptied before it can be used for
/// anything else.
fn tidy(cluster: &Cluster, stock: &mut Stock<'_>) {
    if let Err(error) = cluster.answers().and_then(|()| stock.clear()) {
        flags::say!("{error}\n{}", left_behind(tables::OWN));
    }
}
