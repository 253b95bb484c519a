//! Ctrl-C: somebody has enough of a run.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

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

/// A signal that comes so soon behind another is the same one: `timeout` and others send it to a process and to its group.
const AGAIN: Duration = Duration::from_millis(300);

/// The times that somebody presses Ctrl-C. From the first of these on a process does not end of its own accord.
pub(crate) struct Interruptions {
    signal: Signal,
    last: Option<Instant>,
}

impl Interruptions {
    /// From now on.
    pub(crate) fn listen() -> io::Result<Interruptions> {
        Ok(Interruptions { signal: signal(SignalKind::interrupt())?, last: None })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        loop {
            if self.signal.recv().await.is_none() {
                return std::future::pending().await;
            }
            let now = Instant::now();
            if self.last.is_none_or(|last| now.duration_since(last) >= AGAIN) {
                self.last = Some(now);
                return interrupt();
            }
        }
    }
}
