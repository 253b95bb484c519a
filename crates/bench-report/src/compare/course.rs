//! A comparison, pair after pair.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::{BenchError, EXIT_CODE, is_interrupted, utc_now};

use super::options::Options;
use super::spread::{METRICS, Metric, SIDES, TABLE, spreads};
use crate::measure::{Cluster, Kind, Load, Task};
use crate::report_page::{rate, ratio, time_us};
use crate::runfile::{self, Measured, Parameters, Row, Run};
use crate::sweep::{Interruption, left_behind, on_interrupt, say, undisturbed};

/// The prefix of all keys that are written to both clusters.
const OWN: &str = "cairn-bench/c";
/// How long a load runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(300);
/// Connections for writing the keys at first.
const FILL_CONNECTIONS: usize = 10;
const FILL_CALLS: usize = 200;

/// Measures all pairs. Returns the exit code.
pub(super) fn run(options: &Options) -> Result<i32, BenchError> {
    let out = options.out.clone();
    let has_begun = Arc::new(AtomicBool::new(false));
    let seen = has_begun.clone();
    on_interrupt(OWN, move || {
        // From then on the file exists.
        let has_keys = seen.load(Ordering::Relaxed);
        let text = match out.as_ref().filter(|_| has_keys) {
            Some(out) => format!("interrupted: what was measured so far is in `{}`", out.display()),
            None => "interrupted".to_owned(),
        };
        Interruption { text, has_keys }
    })?;
    let clusters = [Cluster::connect(&options.sides[0])?, Cluster::connect(&options.sides[1])?];
    if clusters[0].is_same(&clusters[1], format!("{OWN}-same").as_bytes())? {
        return Err(BenchError::Server("A and B are the same cluster".into()));
    }
    let mut sides = Vec::new();
    for ((cluster, name), side) in clusters.iter().zip(&options.names).zip(SIDES) {
        let mut told = cluster.describe(name)?;
        say(format_args!("{side}: {}", told.words()));
        if name.is_empty() && sides.iter().any(|other: &runfile::Side| other.name == told.name) {
            told.name = format!("{} {side}", told.name);
        }
        sides.push(told);
    }
    let run = Run::begin(runfile::Kind::Compare, options.label.clone(), options.command.clone(), options.plan(), sides);
    let compacts = [has_only_own(&clusters[0])?, has_only_own(&clusters[1])?];
    let mut comparison = Comparison { options, clusters: &clusters, compacts, run };
    comparison.save()?;
    has_begun.store(true, Ordering::Relaxed);
    let measured = comparison.fill().and_then(|()| comparison.all());
    // Cleans up each cluster, even if the other one does not answer.
    let cleared = clusters.iter().map(|cluster| cluster.delete(OWN.as_bytes())).fold(Ok(()), Result::and);
    if cleared.is_err() {
        flags::say!("{}", left_behind(OWN));
    }
    if is_interrupted() {
        return Ok(EXIT_CODE);
    }
    let finished = measured.and(cleared).and_then(|()| {
        comparison.run.finished = Some(utc_now());
        comparison.save()
    });
    if let Err(error) = finished {
        flags::say!("stopped: {error}");
        return Ok(3);
    }
    if let Some(out) = &options.out {
        let out = out.display();
        say(format_args!(
            "\n{} samples are in `{out}`. Make a page of them: cairn bench report {out}",
            comparison.run.rows.len()
        ));
    }
    Ok(i32::from(comparison.run.rows.iter().any(|row| row.result.errors_all() > 0)))
}

/// Whether the cluster has no keys of others, whose history would have to stay.
fn has_only_own(cluster: &Cluster) -> Result<bool, BenchError> {
    cluster.keys(OWN.as_bytes()).map(|(own, all)| own == all)
}

struct Comparison<'a> {
    options: &'a Options,
    clusters: &'a [Cluster; 2],
    /// Which of the clusters may be compacted.
    compacts: [bool; 2],
    run: Run,
}

impl Comparison<'_> {
    fn load(&self, kind: Kind) -> Load {
        Load::new(kind, OWN.into(), self.options.value_bytes, self.options.keys)
    }

    fn task(&self, side: usize, kind: Kind) -> Result<Task, BenchError> {
        Ok(Task {
            load: self.load(kind),
            places: self.clusters[side].places()?,
            connections: self.options.connections,
            calls: self.options.connections.saturating_mul(self.options.streams),
            threads: self.options.threads,
            requests: None,
            time: Some(self.options.time),
            rate: self.options.rate,
            token: None,
        })
    }

    /// Runs a task to its end. A task interrupted by Ctrl-C has no result.
    fn measure(&self, side: usize, task: &Task) -> Result<Measured, BenchError> {
        let result = self.clusters[side].measure(task, None)?;
        if is_interrupted() { Err(BenchError::Server("interrupted".into())) } else { Ok(result) }
    }

    fn fill(&self) -> Result<(), BenchError> {
        for (side, cluster) in self.clusters.iter().enumerate() {
            cluster.delete(OWN.as_bytes())?;
            let task = self.task(side, Kind::Put)?;
            let requests = Some(self.options.keys);
            let (connections, calls) = (FILL_CONNECTIONS, FILL_CALLS);
            let load = task.load.fill();
            let fill = Task { load, requests, time: None, rate: None, connections, calls, threads: 1, ..task };
            let result = self.measure(side, &fill)?;
            if result.succeeded != self.options.keys {
                let why = result.examples.values().next().map_or("no reason was given", String::as_str);
                return Err(BenchError::Server(format!("{}: the keys could not be written: {why}", SIDES[side])));
            }
        }
        Ok(())
    }

    fn all(&mut self) -> Result<(), BenchError> {
        for (name, kind) in self.options.only.clone() {
            for side in 0..SIDES.len() {
                self.measure(side, &Task { time: Some(WARM_UP), ..self.task(side, kind)? })?;
                self.tidy(side, kind)?;
            }
            for pair in 1..=self.options.pairs {
                let order = if pair % 2 == 1 { [0, 1] } else { [1, 0] };
                for side in order {
                    let result = self.measure(side, &self.task(side, kind)?)?;
                    self.push(name, pair, side, result)?;
                    self.tidy(side, kind)?;
                }
            }
            self.print(name);
        }
        Ok(())
    }

    /// Drops the history that a load of writes has left, so that all loads begin in the same state.
    fn tidy(&self, side: usize, kind: Kind) -> Result<(), BenchError> {
        let writes = matches!(kind, Kind::Put | Kind::Txn);
        if writes && self.compacts[side] { self.clusters[side].compact() } else { Ok(()) }
    }

    fn push(&mut self, load: &str, pair: u64, side: usize, result: Measured) -> Result<(), BenchError> {
        if result.errors_all() > 0 {
            let told: Vec<String> = result.errors.iter().map(|(name, count)| format!("{name} {count}")).collect();
            flags::say!("{load}, pair {pair}, {}: {}", SIDES[side], told.join(", "));
        }
        if result.succeeded == 0 {
            self.clusters[side].answers()?;
        }
        let parameters = Parameters::default().with("load", load).with("pair", pair).with("side", SIDES[side]);
        self.run.rows.push(Row { table: TABLE.into(), parameters, result });
        self.save()
    }

    fn save(&self) -> Result<(), BenchError> {
        let Some(out) = &self.options.out else { return Ok(()) };
        undisturbed(|| runfile::write(out, &self.run)).map_err(|error| BenchError::Server(error.to_string()))
    }

    fn print(&self, load: &str) {
        let name = |side: usize| self.run.sides.get(side).map_or("", |side| side.name.as_str());
        say(format_args!(
            "\n{load:24}{:>12}{:>12}{:>10}   spread over {} pairs",
            name(0),
            name(1),
            "ratio",
            self.options.pairs
        ));
        let all = spreads(&self.run);
        for metric in METRICS {
            let Some(spread) = all.iter().find(|spread| spread.load == load && spread.metric == metric) else {
                continue;
            };
            let value = |value: f64| if metric == Metric::Rate { rate(value) } else { time_us(value) };
            say(format_args!(
                "  {:22}{:>12}{:>12}{:>10}   {} - {}",
                metric.name(),
                value(spread.sides[0]),
                value(spread.sides[1]),
                ratio(spread.ratio),
                ratio(spread.least),
                ratio(spread.most)
            ));
        }
    }
}
