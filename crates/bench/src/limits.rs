//! How much a run may be told to do: what is more than that is a slip of the pen, or would only fail later.

use std::time::Duration;

/// Limit of calls in flight.
pub(crate) const CALLS_MAX: u64 = 1 << 20;
/// Limit of the time of a run, and of any part of it.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Open files besides the connections.
const OTHER_FILES: u64 = 64;

/// The limit of connections, and the limit of open files from which it follows. The process first raises its limit as
/// far as it may.
pub(crate) fn connections_max() -> (u64, u64) {
    let files = raise_file_limit();
    (files.saturating_sub(OTHER_FILES), files)
}

/// Raises the soft limit of open files to the hard one.
fn raise_file_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a struct of ours for the kernel to write to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 1024;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: the kernel only reads `raised`.
    let outcome = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
    if outcome == 0 { raised.rlim_cur } else { limit.rlim_cur }
}
