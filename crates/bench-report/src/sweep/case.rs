//! One row that is to be measured.

use crate::measure::Load;
use crate::runfile::Parameters;

/// The members that get the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Leader,
    All,
}

/// A row that is to be measured.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) table: &'static str,
    pub(super) parameters: Parameters,
    pub(super) load: Load,
    pub(super) target: Target,
    pub(super) connections: usize,
    /// Calls in flight on all connections together.
    pub(super) clients: usize,
    /// Number of requests; `None` if only the time is limited.
    pub(super) requests: Option<u64>,
    /// Puts per second that are offered at the same time.
    pub(super) writes: Option<u64>,
    /// Whether the keys must exist before.
    pub(super) needs_keys: bool,
}
