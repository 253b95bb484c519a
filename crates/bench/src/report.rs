//! What a run has shown, as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::meter::{Cost, Meter};
use crate::plan::Plan;

/// One run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    load: &'static str,
    connections: usize,
    streams: usize,
    threads: usize,
    offered_rate: Option<f64>,
    /// Requests that were sent; for watches, events that were due.
    requests: u64,
    /// Requests of an open loop that were due and never sent.
    unsent: u64,
    succeeded: u64,
    failed: BTreeMap<&'static str, u64>,
    errors: BTreeMap<&'static str, String>,
    wrong: BTreeMap<&'static str, u64>,
    data_bytes: u64,
    items: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tokens: Vec<String>,
    seconds: f64,
    /// Successes per second; for watches, events per second.
    rate: f64,
    latency_us: Latency,
    /// Processor time of the generator per success. `None` where only answers are counted.
    client_cpu_us: Option<f64>,
    /// Processor time of `--pids` per success.
    server_cpu_us: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Latency {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) load: &'static str,
    pub(crate) connections: usize,
    pub(crate) streams: usize,
    pub(crate) threads: usize,
    pub(crate) rate: Option<f64>,
}

impl Report {
    pub(crate) fn new(plan: &Plan, meter: &Meter, cost: Cost) -> Report {
        let shape = Shape {
            load: plan.load.name(),
            connections: plan.connections,
            streams: plan.streams,
            threads: plan.threads,
            rate: plan.rate,
        };
        Report::of(&shape, meter, cost, !plan.pids.is_empty())
    }

    /// The report of a run of this shape. `knows_servers` tells whether the processor time of the servers is known.
    pub(crate) fn of(shape: &Shape, meter: &Meter, cost: Cost, knows_servers: bool) -> Report {
        let each = |cpu: std::time::Duration| cpu.as_secs_f64() * 1e6 / meter.succeeded.max(1) as f64;
        let latency = &meter.latency;
        Report {
            load: shape.load,
            connections: shape.connections,
            streams: shape.streams,
            threads: shape.threads,
            offered_rate: shape.rate,
            requests: meter.sent,
            unsent: meter.unsent,
            succeeded: meter.succeeded,
            failed: meter.failed.clone(),
            errors: meter.examples.clone(),
            wrong: meter.wrong.clone(),
            data_bytes: meter.data_bytes,
            items: meter.items,
            tokens: meter.tokens.iter().cloned().collect(),
            seconds: cost.time.as_secs_f64(),
            rate: meter.succeeded as f64 / cost.time.as_secs_f64().max(1e-9),
            latency_us: Latency {
                mean: latency.mean_us(),
                p50: latency.quantile_us(0.5),
                p90: latency.quantile_us(0.9),
                p99: latency.quantile_us(0.99),
                p999: latency.quantile_us(0.999),
                max: latency.max_us(),
            },
            client_cpu_us: (!cost.own_cpu.is_zero()).then(|| each(cost.own_cpu)),
            server_cpu_us: knows_servers.then(|| each(cost.servers_cpu)),
        }
    }

    /// Whether every request was answered correctly.
    pub(crate) fn is_clean(&self) -> bool {
        let all = self.requests + self.unsent;
        all > 0 && self.succeeded == all && self.failed.is_empty() && self.wrong.is_empty()
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }
}
