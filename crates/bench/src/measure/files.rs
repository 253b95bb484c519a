//! How many files this process may have open.

use crate::BenchError;

/// Files that are open beside those of connections.
const OTHER_FILES: u64 = 64;

/// Lets this process have `connections` open: the limit that it may raise itself, it does.
pub(crate) fn raise_file_limit(connections: usize) -> Result<(), BenchError> {
    let wanted = connections as u64 + OTHER_FILES;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a struct of ours for the kernel to write to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 || limit.rlim_cur >= wanted {
        return Ok(());
    }
    if limit.rlim_max < wanted {
        let text = format!(
            "{connections} connections need {wanted} open files, {} is the most: raise `ulimit -n`",
            limit.rlim_max
        );
        return Err(BenchError::Server(text));
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the kernel only reads `limit`.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(BenchError::Io("cannot raise the limit of open files".into(), std::io::Error::last_os_error()));
    }
    Ok(())
}
