//! Signals that end a program which has nothing to clean up.

/// Has SIGINT and SIGTERM end this process also where it is the first of its namespace, as in a container: there the kernel ignores a signal
/// that has no handler.
pub fn end_at_signals() {
    if std::process::id() != 1 {
        return;
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler makes a system call that is async-signal-safe, and nothing else.
        unsafe { libc::signal(signal, end as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

/// Ends with the code that a shell gives to a process ended by the signal.
extern "C" fn end(signal: libc::c_int) {
    // SAFETY: no pointers are passed.
    unsafe { libc::_exit(128 | signal) }
}
