//! Yielding the processor in long background work, so that no client waits for it.
//!
//! A thread that computes without a pause keeps its processor for milliseconds at a time, whatever its priority. Until then neither the
//! threads that serve clients run on it, nor the kernel's threads that submit requests to the disk. One put passes a dozen of such threads.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a thread works at a time.
const WORK: Duration = Duration::from_micros(500);
/// How long it then sleeps. A thread that waits for the processor gets it at once, and keeps it for as long as it needs.
const REST: Duration = Duration::from_micros(50);

/// Sleeps for a moment if the calling thread has worked for a while since it last did. Cheap enough for every few records.
pub(crate) fn rest() {
    thread_local! {
        static RESTED: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    if RESTED.get().is_none_or(|rested| rested.elapsed() >= WORK) {
        std::thread::sleep(REST);
        RESTED.set(Some(Instant::now()));
    }
}

/// How long a read works before others may have its processor.
const READ: Duration = Duration::from_micros(50);

/// Yields the processor if the calling thread has kept it for a while. Unlike [`rest`] it costs nothing while no other thread wants the
/// processor, because a client waits for this work too. Otherwise a thread that was just woken would keep its processor for the
/// milliseconds that the kernel grants after a sleep, and one put meets several such moments.
pub(crate) fn pause() {
    thread_local! {
        static PAUSED: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    if PAUSED.get().is_none_or(|paused| paused.elapsed() >= READ) {
        std::thread::yield_now();
        PAUSED.set(Some(Instant::now()));
    }
}

/// Makes the calling thread run only while no other wants the processor.
pub(crate) fn yield_to_all() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: plain system call, for this thread only, with a structure that outlives it. If it is refused, the next one is tried.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) } != 0 {
        yield_to_others();
    }
}

/// Lowers the priority of the calling thread, which does only background work.
pub(crate) fn yield_to_others() {
    // SAFETY: plain system call, for this thread only. If it is refused, the thread runs as all others do.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}
