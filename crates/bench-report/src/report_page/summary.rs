//! What the page says, as JSON for programs.

use serde::Serialize;

use super::facts::warnings;
use super::view::{View, ratio};
use crate::compare::spreads;
use crate::published;
use crate::runfile::{Disk, Kind, Machine, Measured, Parameters, Run, Side};

/// The value of the field `format`, and the version of the format.
const FORMAT: &str = "cairn-bench-report";
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Summary<'a> {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    run: About<'a>,
    baseline: Option<About<'a>>,
    warnings: Vec<String>,
    rows: Vec<Line<'a>>,
    ratios: Vec<Compared>,
}

/// A run without its rows.
#[derive(Serialize)]
struct About<'a> {
    kind: Kind,
    tool: &'a str,
    label: &'a str,
    command: &'a [String],
    started: &'a str,
    finished: Option<&'a str>,
    plan: &'a Parameters,
    machine: &'a Machine,
    disk: Option<&'a Disk>,
    sides: &'a [Side],
}

impl<'a> About<'a> {
    fn of(run: &'a Run) -> About<'a> {
        About {
            kind: run.kind,
            tool: &run.tool,
            label: &run.label,
            command: &run.command,
            started: &run.started,
            finished: run.finished.as_deref(),
            plan: &run.plan,
            machine: &run.machine,
            disk: run.disk.as_ref(),
            sides: &run.sides,
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    table: &'a str,
    parameters: &'a Parameters,
    result: &'a Measured,
    /// Published figures of etcd, measured on other machines.
    published: Vec<Told>,
    baseline: Option<Beside<'a>>,
}

#[derive(Serialize)]
struct Told {
    study: &'static str,
    setup: &'static str,
    rate: f64,
    /// Whether the true value was lower.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_upper_bound: bool,
    mean_us: Option<f64>,
    memory_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Beside<'a> {
    result: &'a Measured,
    rate_ratio: Option<f64>,
    p99_ratio: Option<f64>,
}

#[derive(Serialize)]
struct Compared {
    load: String,
    measure: &'static str,
    a: f64,
    b: f64,
    ratio: f64,
    smallest: f64,
    largest: f64,
    pairs: usize,
}

/// The text of the JSON file.
pub(super) fn json(view: View<'_>) -> Result<String, serde_json::Error> {
    let run = view.run;
    let rows = run.rows.iter().map(|row| {
        let p99 = |result: &Measured| result.latency_us.map(|latency| latency.p99);
        let baseline = view.base(row).map(|base| Beside {
            result: &base.result,
            rate_ratio: ratio(Some(row.result.rate), Some(base.result.rate)),
            p99_ratio: ratio(p99(&row.result), p99(&base.result)),
        });
        let published = published::figures(row).into_iter().map(|figure| Told {
            study: figure.study.name,
            setup: figure.study.setup,
            rate: figure.rate,
            is_upper_bound: figure.is_bound,
            mean_us: figure.mean_us,
            memory_bytes: figure.memory_bytes,
        });
        Line {
            table: &row.table,
            parameters: &row.parameters,
            result: &row.result,
            published: published.collect(),
            baseline,
        }
    });
    let ratios = spreads(run).into_iter().map(|spread| Compared {
        load: spread.load,
        measure: spread.metric.name(),
        a: spread.sides[0],
        b: spread.sides[1],
        ratio: spread.ratio,
        smallest: spread.least,
        largest: spread.most,
        pairs: spread.pairs,
    });
    let summary = Summary {
        format: FORMAT,
        version: VERSION,
        run: About::of(run),
        baseline: view.baseline.map(About::of),
        warnings: warnings(view),
        rows: rows.collect(),
        ratios: ratios.collect(),
    };
    serde_json::to_string_pretty(&summary)
}
