//! Signals that stop a command, for those that have something to put back before they end.

use crate::command::Context;
use crate::failure::{Failure, Outcome, code};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, SIGTERM and the end of the terminal, held back from when this is made on until the process ends. One that the process was
/// started to ignore, as `nohup` does it with SIGHUP, stays ignored.
pub(crate) struct Signals([Option<Signal>; 3]);

impl Signals {
    /// Must be called within the runtime.
    pub(crate) fn new() -> Outcome<Signals> {
        let held = |kind: SignalKind| if is_ignored(kind) { Ok(None) } else { signal(kind).map(Some) };
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(held);
        Ok(Signals([interrupt?, terminate?, hangup?]))
    }

    /// Waits for one of them; for one that came before, not at all.
    pub(crate) async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            () = next(interrupt) => {}
            () = next(terminate) => {}
            () = next(hangup) => {}
        }
    }

    /// What `work` brings, which is done on a thread of its own. A signal ends the waiting at once, with the failure that is told by `text`;
    /// the thread goes on until the process ends.
    pub(crate) fn unless<T: Send + 'static>(
        &mut self,
        context: &Context,
        text: &str,
        work: impl FnOnce() -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let (tell, told) = tokio::sync::oneshot::channel();
        // After a signal no thread waits any more.
        std::thread::Builder::new().name("work".into()).spawn(move || tell.send(work()).is_ok())?;
        context.wait(async {
            tokio::select! {
                outcome = told => outcome.unwrap_or_else(|_| Err(Failure::new(code::ERROR, "the command broke off"))),
                () = self.any() => Err(Failure::new(code::INTERRUPTED, text)),
            }
        })
    }
}

async fn next(signal: &mut Option<Signal>) {
    let came = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if came.is_none() {
        std::future::pending().await
    }
}

fn is_ignored(kind: SignalKind) -> bool {
    // SAFETY: the structure is plain data, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call, which changes nothing but what it points to.
    let is_told = unsafe { libc::sigaction(kind.as_raw_value(), std::ptr::null(), &raw mut action) } == 0;
    is_told && action.sa_sigaction == libc::SIG_IGN
}
