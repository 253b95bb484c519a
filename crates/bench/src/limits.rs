//! How much a run may be told to do: what is more than that is a slip of the pen, or would only fail later.

use std::time::Duration;

/// So many calls in flight are the most.
pub(crate) const CALLS_MAX: u64 = 1 << 20;
/// No run, and no part of one, is longer.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Open files beside the connections.
const OTHER_FILES: u64 = 64;

/// How many connections there can be, and the limit of open files that says so: as far as this process may raise it itself, it does.
pub(crate) fn connections_max() -> (u64, u64) {
    let files = raise_file_limit();
    (files.saturating_sub(OTHER_FILES), files)
}

/// The hard limit of open files is taken as the soft one.
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
