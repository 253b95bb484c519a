//! Ctrl-C: somebody has enough of a run.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Exit code of a process that was stopped by Ctrl-C.
pub const EXIT_CODE: i32 = 128 + libc::SIGINT;
/// A signal that follows another one within this time is the same one: `timeout` and others send it to a process and to
/// its group.
const AGAIN: Duration = Duration::from_millis(300);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// How often Ctrl-C was pressed, once there is a listener.
static PRESSED: Mutex<Option<watch::Sender<u64>>> = Mutex::new(None);

/// Ends everything that runs, like Ctrl-C.
pub fn interrupt() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Whether Ctrl-C was pressed.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Waits for presses of Ctrl-C. As soon as one of these exists, Ctrl-C no longer ends the process, and no press is
/// lost: a thread that lives as long as the process takes them.
pub(crate) struct Interruptions(watch::Receiver<u64>);

impl Interruptions {
    /// Listens from now on.
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

    /// Waits for the next press.
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
