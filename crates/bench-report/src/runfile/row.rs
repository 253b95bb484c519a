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

/// How far a row has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// To its end.
    #[default]
    Measured,
    /// It was not begun: `reason` says why. A run that is gone on with tries it again.
    LeftOut,
    /// It was stopped: `reason` says by what. A run that is gone on with begins with it.
    Stopped,
}

/// What came of a row. Rates and costs are of requests that were answered as they should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) state: State,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) reason: Option<String>,
    pub(crate) requests: u64,
    pub(crate) succeeded: u64,
    /// Requests of open loops that were due, and not sent because too many answers were missing; of the load beside it, too.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub(crate) unsent: u64,
    /// Requests that failed, by the name of the error, and answers that were not what they have to be, by what was wrong.
    pub(crate) errors: BTreeMap<String, u64>,
    /// What the server said with the first of each error.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(crate) examples: BTreeMap<String, String>,
    pub(crate) seconds: f64,
    /// Per second.
    pub(crate) rate: f64,
    /// None if no request succeeded.
    pub(crate) latency_us: Option<Latency>,
    pub(crate) client_cpu_us: Option<f64>,
    /// All members together, by their metrics.
    pub(crate) server_cpu_us: Option<f64>,
    /// Resident memory of the member that has most of it, after the row, by its metrics.
    pub(crate) server_memory_bytes: Option<u64>,
    /// Another load that ran at the same time.
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

/// What became of a load that ran beside the one that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Beside {
    pub(crate) load: String,
    /// Per second, while the other load ran as well.
    pub(crate) rate: f64,
    pub(crate) p99_us: Option<f64>,
    pub(crate) errors: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Measured {
    /// A row that was not measured, and why.
    pub(crate) fn without(state: State, reason: String) -> Measured {
        Measured { state, reason: Some(reason), ..Measured::default() }
    }

    /// Errors of every kind.
    pub(crate) fn errors_all(&self) -> u64 {
        self.errors.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Whether it was measured to its end.
    pub(crate) fn is_measured(&self) -> bool {
        self.state == State::Measured
    }

    /// The numbers in it that have to be at least zero.
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
