//! Ctrl-C: somebody has enough of a run.

use std::sync::atomic::{AtomicBool, Ordering};

/// What a process ends with that was stopped so.
pub(crate) const EXIT_CODE: i32 = 128 + libc::SIGINT;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Has everything that runs come to its end.
pub(crate) fn interrupt() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Whether somebody has enough.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
