//! What was measured under one set of parameters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Parameters;

/// One row of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) table: String,
    pub(crate) parameters: Parameters,
    pub(crate) result: Measured,
}

/// The state of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// Measured to its end.
    #[default]
    Measured,
    /// Not begun; `reason` says why. A resumed run tries it again.
    LeftOut,
    /// Stopped; `reason` says why. A resumed run begins with it.
    Stopped,
}

/// The result of a row. Rates and costs count correct answers only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) state: State,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) reason: Option<String>,
    pub(crate) requests: u64,
    pub(crate) succeeded: u64,
    /// Requests of open loops that were due but not sent because too many answers were outstanding. Includes those of
    /// the accompanying load.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub(crate) unsent: u64,
    /// Failed requests by the name of the error, and wrong answers by the reason.
    pub(crate) errors: BTreeMap<String, u64>,
    /// The server's text of the first error of each kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(crate) examples: BTreeMap<String, String>,
    pub(crate) seconds: f64,
    /// Requests per second.
    pub(crate) rate: f64,
    /// `None` if no request succeeded.
    pub(crate) latency_us: Option<Latency>,
    pub(crate) client_cpu_us: Option<f64>,
    /// Processor time of all members together, from their metrics.
    pub(crate) server_cpu_us: Option<f64>,
    /// Resident memory after the row of the member that has most, from its metrics.
    pub(crate) server_memory_bytes: Option<u64>,
    /// The result of another load that ran at the same time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) beside: Option<Beside>,
}

/// Times from the request to its answer, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// The result of a load that accompanied the measured one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Beside {
    pub(crate) load: String,
    /// Requests per second while the measured load ran as well.
    pub(crate) rate: f64,
    pub(crate) p99_us: Option<f64>,
    pub(crate) errors: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Measured {
    /// The result of a row that was not measured, with the reason.
    pub(crate) fn without(state: State, reason: String) -> Measured {
        Measured { state, reason: Some(reason), ..Measured::default() }
    }

    /// The number of errors of all kinds.
    pub(crate) fn errors_all(&self) -> u64 {
        self.errors.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Whether the row was measured to its end.
    pub(crate) fn is_measured(&self) -> bool {
        self.state == State::Measured
    }

    /// The numbers that must be at least zero.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let latency = self.latency_us.into_iter().flat_map(|latency| {
            [latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.max]
                .map(|us| ("latency_us", us))
        });
        let costs = [("client_cpu_us", self.client_cpu_us), ("server_cpu_us", self.server_cpu_us)];
        let beside =
            self.beside.iter().flat_map(|beside| [("beside", beside.rate), ("beside", beside.p99_us.unwrap_or(0.0))]);
        [("seconds", self.seconds), ("rate", self.rate)]
            .into_iter()
            .chain(costs.into_iter().filter_map(|(name, cost)| Some((name, cost?))))
            .chain(latency)
            .chain(beside)
    }
}
