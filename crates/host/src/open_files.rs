//! The limit of open files.

use telemetry::logging;

/// Raises the limit of open files to its hard limit: with the usual soft limit of 1024 a server loses clients.
pub fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return;
    }
    let before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        limit.rlim_cur = before;
    }
    logging::info("open file limit", &[("before", before.into()), ("now", limit.rlim_cur.into())]);
}

/// The limit of open files.
pub fn open_files_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_cur
}

/// One connection for so much memory: what a client may have it hold in any case is a quarter of that at most, half a header, half a frame
/// and half a record of TLS; and as much again is the kernel's.
const MEMORY_OF_CONNECTION: u64 = 1 << 20;
/// So many there may be in any case.
const CONNECTIONS_MIN: u64 = 256;

/// Connections that clients may have, unless somebody says otherwise. The rest of the open files is for the process's own ones, and for
/// connections that it opens itself.
pub fn connections_max() -> u64 {
    connections_of(open_files_limit(), crate::memory_limit_bytes())
}

fn connections_of(files: u64, memory_bytes: Option<u64>) -> u64 {
    let by_memory = memory_bytes.map_or(u64::MAX, |bytes| (bytes / MEMORY_OF_CONNECTION).max(CONNECTIONS_MIN));
    files.saturating_sub(files / 4).min(by_memory).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_memory_bound_the_connections() {
        assert_eq!(connections_of(1024, None), 768);
        assert_eq!(connections_of(1 << 20, None), 3 << 18);
        assert_eq!(connections_of(1 << 20, Some(24 << 30)), 24 << 10);
        assert_eq!(connections_of(1 << 20, Some(1)), 256);
        assert_eq!(connections_of(0, Some(1)), 1);
        assert_eq!(connections_of(u64::MAX, Some(u64::MAX)), u64::MAX / (1 << 20));
    }
}
