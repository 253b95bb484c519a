//! One row that is to be measured.

use crate::measure::Load;
use crate::runfile::Parameters;

/// Which members are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Leader,
    All,
}

/// A row, before it is measured.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) table: &'static str,
    pub(super) parameters: Parameters,
    pub(super) load: Load,
    pub(super) target: Target,
    pub(super) connections: usize,
    /// Calls in flight on all connections together.
    pub(super) clients: usize,
    /// None: as many as there is time for.
    pub(super) requests: Option<u64>,
    /// Puts a second that are offered at the same time.
    pub(super) writes: Option<u64>,
    /// Whether the keys have to be there before.
    pub(super) needs_keys: bool,
}
