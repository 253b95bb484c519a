//! Timeouts of calls between members.

use std::time::{Duration, Instant};

/// The time limits for peers.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Connecting may take this long: a second more than an election timeout, as in etcd.
    pub dial: Duration,
    /// A stream that is silent for this long is given up; heartbeats are sent three times as often.
    pub read: Duration,
    /// A stream that takes nothing for this long is given up.
    pub write: Duration,
}

/// The instant after `time` from now; after a day if the clock cannot represent it.
pub(crate) fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).or_else(|| now.checked_add(Duration::from_secs(24 * 3600))).unwrap_or(now)
}
