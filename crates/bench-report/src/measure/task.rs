//! Runs one load between two looks at the servers.

use std::time::Duration;

use bench::{BenchError, Cost, Course, Meter, Place, drive};

use super::load::Load;
use super::metrics::Use;
use super::requests::Requests;
use crate::runfile::{Latency, Measured};

/// How a load is run.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) load: Load,
    /// The places to which the connections go, in rotation.
    pub(crate) places: Vec<Place>,
    pub(crate) connections: usize,
    /// Calls in flight on all connections together.
    pub(crate) calls: usize,
    pub(crate) threads: usize,
    /// The load ends after this many requests or after `time`, whichever comes first.
    pub(crate) requests: Option<u64>,
    pub(crate) time: Option<Duration>,
    /// Open loop: requests a second.
    pub(crate) rate: Option<f64>,
    pub(crate) token: Option<String>,
}

/// Limit of the length of a request; those of these loads are shorter.
const REQUEST_BYTES_MAX: usize = 2 << 20;
/// How long a load waits for outstanding answers after its time: for a thousand clients they may be a gigabyte in all.
const GRACE: Duration = Duration::from_secs(120);

impl Task {
    /// Runs the load. Only a failure of the generator is an error: failed requests are part of the measurements.
    pub(crate) fn run(&self) -> Result<(Meter, Cost), BenchError> {
        let course = Course {
            places: self.places.clone(),
            connections: self.connections,
            calls: self.calls,
            threads: self.threads,
            groups: 1,
            requests: self.requests,
            time: self.time,
            rate: self.rate,
            timeout: None,
            grace: GRACE,
            pids: Vec::new(),
            metadata: self.token.iter().map(|token| ("token", token)).collect(),
            request_bytes_max: REQUEST_BYTES_MAX,
            attended: None,
        };
        let (mut meters, cost) = drive(&course, |thread, threads| Requests::new(&self.load, thread, threads))?;
        Ok((meters.swap_remove(0), cost))
    }
}

/// The result of a load. `all` is the number of successes over which the processor time is divided, including those of
/// other loads.
pub(super) fn measured(meter: &Meter, cost: &Cost, used: &Use, all: u64) -> Measured {
    let seconds = cost.time.as_secs_f64();
    let each = |seconds: f64| (all > 0).then(|| seconds * 1e6 / all as f64);
    let wrong = meter.wrong.iter().map(|(why, count)| ((*why).to_owned(), *count));
    let errors = meter.failed.iter().map(|(name, count)| ((*name).to_owned(), *count)).chain(wrong);
    Measured {
        requests: meter.sent,
        succeeded: meter.succeeded,
        errors: errors.collect(),
        examples: meter.examples.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect(),
        unsent: meter.unsent,
        seconds,
        rate: rate(meter.succeeded, cost.time),
        latency_us: latency(meter),
        client_cpu_us: each(cost.own_cpu.as_secs_f64()),
        server_cpu_us: used.cpu_seconds.and_then(each),
        server_memory_bytes: used.memory_bytes,
        ..Measured::default()
    }
}

/// The rate per second.
pub(super) fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

fn latency(meter: &Meter) -> Option<Latency> {
    let all = &meter.latency;
    (meter.succeeded > 0).then(|| Latency {
        mean: all.mean_us(),
        p50: all.quantile_us(0.5),
        p90: all.quantile_us(0.9),
        p99: all.quantile_us(0.99),
        p999: all.quantile_us(0.999),
        max: all.max_us(),
    })
}
