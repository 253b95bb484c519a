//! Time, as the caller tells it.

use std::time::Duration;

/// One moment on the two clocks of a member. Both count from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// The monotonic clock: ticks, and how long a disk has not answered.
    pub at: Duration,
    /// The clock of leases, reads and time-outs, in milliseconds. Tests can advance it.
    pub ms: u64,
}
