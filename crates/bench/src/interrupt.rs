//! Ctrl-C: somebody has enough of a run.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// What a process ends with that was stopped so.
pub const EXIT_CODE: i32 = 128 + libc::SIGINT;
/// A signal that comes so soon behind another is the same one: `timeout` and others send it to a process and to its group.
const AGAIN: Duration = Duration::from_millis(300);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// How often it was pressed, once somebody listens.
static PRESSED: Mutex<Option<watch::Sender<u64>>> = Mutex::new(None);

/// Has everything that runs come to its end.
pub fn interrupt() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Whether somebody has enough.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// The times that somebody presses Ctrl-C. From the first of these on a process does not end of its own accord, and none is lost: they
/// are taken by a thread that lives as long as the process.
pub(crate) struct Interruptions(watch::Receiver<u64>);

impl Interruptions {
    /// From now on.
    pub(crate) fn listen() -> io::Result<Interruptions> {
        let mut pressed = PRESSED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = pressed.as_ref() {
            return Ok(Interruptions(sender.subscribe()));
        }
        let (sender, receiver) = watch::channel(0);
        let (ready, is_ready) = mpsc::channel();
        let count = sender.clone();
        std::thread::Builder::new().name("interrupt".into()).spawn(move || take(&count, &ready))?;
        is_ready.recv().unwrap_or_else(|_| Err(io::Error::other("nobody takes signals")))?;
        *pressed = Some(sender);
        Ok(Interruptions(receiver))
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Takes signals for as long as there are any.
fn take(count: &watch::Sender<u64>, ready: &mpsc::Sender<io::Result<()>>) {
    let work = async {
        let mut signals = match signal(SignalKind::interrupt()) {
            Ok(signals) => signals,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let _ = ready.send(Ok(()));
        let mut last: Option<Instant> = None;
        while signals.recv().await.is_some() {
            let now = Instant::now();
            if last.is_none_or(|last| now.duration_since(last) >= AGAIN) {
                last = Some(now);
                interrupt();
                count.send_modify(|count| *count += 1);
            }
        }
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => drop(ready.send(Err(error))),
    }
}
