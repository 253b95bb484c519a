//! Long work with a progress bar, which can be stopped.

use crate::command::Context;
use crate::failure::{Failure, Outcome, code};
use crate::progress::Bar;
use crate::signals::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often a waiting thread looks.
const STEP: Duration = Duration::from_millis(100);

/// The progress of the work, counted by the threads that do it.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU64>);

impl Progress {
    pub(super) fn set(&self, done: u64) {
        self.0.store(done, Ordering::Relaxed);
    }

    pub(super) fn add(&self, done: u64) {
        self.0.fetch_add(done, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What `work` brings, which is done on a thread of its own in `total` steps and told by `name`. A signal ends the waiting at once, even
/// if the work hangs; the process ends then, and the thread with it.
pub(super) fn run<T: Send + 'static>(
    context: &Context,
    signals: &mut Signals,
    (name, total): (&str, u64),
    work: impl FnOnce(&Progress) -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    let progress = Progress::default();
    let (tell, mut told) = tokio::sync::oneshot::channel();
    let seen = progress.clone();
    std::thread::Builder::new().name("check".into()).spawn(move || {
        // After a signal no thread waits any more.
        let _ = tell.send(work(&seen));
    })?;
    context.wait(async {
        let mut bar = Bar::new();
        let outcome = loop {
            tokio::select! {
                outcome = &mut told => break outcome.unwrap_or_else(|_| Err(Failure::new(code::ERROR, "the check broke off"))),
                () = signals.any() => break Err(Failure::new(code::INTERRUPTED, "check interrupted")),
                () = tokio::time::sleep(STEP) => bar.draw(progress.get(), total, name),
            }
        };
        bar.clear();
        outcome
    })
}
