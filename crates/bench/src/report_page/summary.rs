//! What the page says, as JSON for programs.

use serde::Serialize;

use super::view::{View, ratio};
use crate::compare::spreads;
use crate::published;
use crate::runfile::{Measured, Parameters, Side};

#[derive(Serialize)]
struct Summary<'a> {
    label: &'a str,
    started: &'a str,
    finished: Option<&'a str>,
    sides: &'a [Side],
    baseline: Option<&'a str>,
    rows: Vec<Line<'a>>,
    ratios: Vec<Compared>,
}

#[derive(Serialize)]
struct Line<'a> {
    table: &'a str,
    parameters: &'a Parameters,
    result: &'a Measured,
    /// Of etcd, on other machines.
    published: Vec<Told>,
    baseline: Option<Beside<'a>>,
}

#[derive(Serialize)]
struct Told {
    study: &'static str,
    setup: &'static str,
    rate: f64,
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
        label: &run.label,
        started: &run.started,
        finished: run.finished.as_deref(),
        sides: &run.sides,
        baseline: view.baseline.map(|other| other.label.as_str()),
        rows: rows.collect(),
        ratios: ratios.collect(),
    };
    serde_json::to_string_pretty(&summary)
}
