//! Locking the process into memory.

use std::io;

/// Locks what the process has and will have, page by page as it is touched. Where only some memory may be locked this is refused:
/// the member would fail later, when it maps a file.
pub(crate) fn lock_memory() -> Result<(), String> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for the call.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } == 0;
    // SAFETY: no pointers are passed.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root && (!known || limit.rlim_cur != libc::RLIM_INFINITY) {
        return Err("--memory-mlock needs an unlimited RLIMIT_MEMLOCK (LimitMEMLOCK=infinity) or the user root".into());
    }
    // SAFETY: no pointers are passed.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) } {
        0 => Ok(()),
        _ => Err(format!("cannot keep the process in memory (--memory-mlock): {}", io::Error::last_os_error())),
    }
}
