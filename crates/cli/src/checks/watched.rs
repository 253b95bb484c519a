//! Long work with a progress bar, which can be stopped.

use crate::command::Context;
use crate::failure::{Failure, Outcome, code};
use crate::progress::Bar;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

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

/// Ctrl-C, SIGTERM and the end of the terminal, held back while this lives.
pub(super) struct Signals([Signal; 3]);

impl Signals {
    /// Must be called within the runtime.
    pub(super) fn new() -> Outcome<Signals> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(signal);
        Ok(Signals([interrupt?, terminate?, hangup?]))
    }

    async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
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
