//! Timeouts of calls between members.

use std::time::{Duration, Instant};

/// How long peers are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// A connection may take this long to be established: a second more than an election, as etcd has it.
    pub dial: Duration,
    /// A stream that is silent for so long is given up; heartbeats go out three times as often.
    pub read: Duration,
    /// A stream that takes nothing for so long is given up.
    pub write: Duration,
}

/// The moment so much later; a day later if the clock cannot represent it.
pub(crate) fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).or_else(|| now.checked_add(Duration::from_secs(24 * 3600))).unwrap_or(now)
}
