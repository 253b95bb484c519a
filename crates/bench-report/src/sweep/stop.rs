//! Ctrl-C, and what a terminal that closes or a service manager says instead.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bench::{BenchError, EXIT_CODE, interrupt, is_interrupted};

/// A signal that follows another one within this time is the same one: it is sent to a process and to its group.
const AGAIN: Duration = Duration::from_millis(300);
const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Held while the file is being replaced, so that an interruption does not end the process then.
static WRITING: Mutex<()> = Mutex::new(());

/// Does `work` without being interrupted.
pub(crate) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let _held = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    work()
}

/// The message and the action for an interruption.
pub(crate) struct Interruption {
    pub(crate) text: String,
    /// Whether there are keys to delete: then the process does that first, and ends at once only if it is interrupted
    /// again.
    pub(crate) has_keys: bool,
}

/// The text about keys of `prefix` that are left behind, and how to delete them.
pub(crate) fn left_behind(prefix: &str) -> String {
    format!("keys that begin with `{prefix}` are left: `cairn ctl del --prefix {prefix}` deletes them")
}

/// At the first interruption the process acts as `first` says. At a second one it ends, and keys with `prefix` stay.
/// Must be called before there are other threads.
pub(crate) fn on_interrupt(
    prefix: &'static str,
    first: impl Fn() -> Interruption + Send + 'static,
) -> Result<(), BenchError> {
    // SAFETY: all zeroes is a value of this plain set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours, and the kernel takes it by reference.
    let outcome = unsafe {
        libc::sigemptyset(&raw mut set);
        for signal in SIGNALS {
            libc::sigaddset(&raw mut set, signal);
        }
        // Threads started from here on inherit the blocked signals.
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
    };
    if outcome != 0 {
        return Err(BenchError::Io("cannot wait for signals".into(), std::io::Error::from_raw_os_error(outcome)));
    }
    std::thread::spawn(move || {
        let mut first_at: Option<Instant> = None;
        loop {
            let mut signal = 0;
            // SAFETY: both are ours; the set has been filled in.
            while unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {}
            undisturbed(|| {
                // Replaces the line about the current work.
                let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
                if first_at.is_some_and(|at| at.elapsed() < AGAIN) {
                    return;
                }
                if is_interrupted() {
                    flags::say!("{clear}{}", left_behind(prefix));
                    std::process::exit(EXIT_CODE);
                }
                let Interruption { text, has_keys } = first();
                flags::say!("{clear}{text}");
                if !has_keys {
                    std::process::exit(EXIT_CODE);
                }
                flags::say!("the keys are being deleted; Ctrl-C again ends at once");
                first_at = Some(Instant::now());
                interrupt();
            });
        }
    });
    Ok(())
}
