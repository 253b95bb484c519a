//! Ctrl-C, and what a terminal that closes or a service manager says instead.

use std::io::IsTerminal;
use std::sync::Mutex;

use crate::BenchError;

/// The exit code of a program that was interrupted.
const INTERRUPTED: i32 = 128 + libc::SIGINT;
const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Held while the file is being replaced: nobody ends the process then.
static WRITING: Mutex<()> = Mutex::new(());

/// Does `work` without being interrupted.
pub(crate) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let _held = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    work()
}

/// Has the process print what `text` makes and end when it is interrupted. To be called before there are other threads.
pub(crate) fn on_interrupt(text: impl Fn() -> String + Send + 'static) -> Result<(), BenchError> {
    // SAFETY: all zeroes is a value of this plain set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours, and the kernel takes it by reference.
    let outcome = unsafe {
        libc::sigemptyset(&raw mut set);
        for signal in SIGNALS {
            libc::sigaddset(&raw mut set, signal);
        }
        // Threads that are made from here on hold them back as well.
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
    };
    if outcome != 0 {
        return Err(BenchError::Io("cannot wait for signals".into(), std::io::Error::from_raw_os_error(outcome)));
    }
    std::thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: both are ours; the set has been filled in.
        while unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {}
        undisturbed(|| {
            // In the place of what is said to be on its way.
            let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
            flags::say!("{clear}{}", text());
            std::process::exit(INTERRUPTED)
        })
    });
    Ok(())
}
