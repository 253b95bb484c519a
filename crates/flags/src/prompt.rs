//! A question that is answered on the terminal.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Asks for a password. What is typed is not shown.
///
/// # Errors
///
/// Those of the standard input and output.
pub fn password(prompt: &str) -> io::Result<String> {
    let hidden = Hidden::begin();
    let guarded = hidden.as_ref().map(Guarded::begin);
    let mut out = io::stdout();
    out.write_all(prompt.as_bytes())?;
    out.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    drop(guarded);
    drop(hidden);
    // The end of the line was not shown either.
    out.write_all(b"\n")?;
    Ok(line.trim_end_matches(['\r', '\n']).to_string())
}

/// The terminal does not show what is typed while this lives.
struct Hidden(libc::termios);

impl Hidden {
    fn begin() -> Option<Hidden> {
        // SAFETY: a plain structure of numbers, filled in by the call; nothing is used if that fails.
        let mut before: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        if unsafe { libc::tcgetattr(libc::STDIN_FILENO, &raw mut before) } != 0 {
            return None;
        }
        let mut silent = before;
        silent.c_lflag &= !libc::ECHO;
        // SAFETY: the structure came from the terminal.
        (unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const silent) } == 0)
            .then_some(Hidden(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // SAFETY: the settings that the terminal had before.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const self.0) };
    }
}

/// Signals that end a question. After them the terminal must show again what is typed.
const SIGNALS: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// The terminal's settings before the question, for the handler of signals.
static BEFORE: AtomicPtr<libc::termios> = AtomicPtr::new(std::ptr::null_mut());

/// While this lives, a signal that ends the process gives the terminal back first.
struct Guarded([libc::sighandler_t; SIGNALS.len()]);

impl Guarded {
    fn begin(hidden: &Hidden) -> Guarded {
        // Leaked, since a handler may run at any time: a few bytes per question.
        BEFORE.store(Box::into_raw(Box::new(hidden.0)), Ordering::SeqCst);
        let handler: extern "C" fn(libc::c_int) = give_back;
        Guarded(SIGNALS.map(|signal| {
            // SAFETY: the handler does only what one may.
            let before = unsafe { libc::signal(signal, handler as libc::sighandler_t) };
            if before == libc::SIG_IGN {
                // The parent process ignores this signal on purpose.
                // SAFETY: what was there before.
                unsafe { libc::signal(signal, before) };
            }
            before
        }))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        for (signal, before) in SIGNALS.into_iter().zip(self.0) {
            // SAFETY: what was there before.
            unsafe { libc::signal(signal, before) };
        }
    }
}

/// Restores the terminal, and has the signal do what it does without a handler.
extern "C" fn give_back(signal: libc::c_int) {
    let before = BEFORE.load(Ordering::SeqCst);
    // SAFETY: these functions may be called in handlers; the structure lives for ever once it is there.
    unsafe {
        if !before.is_null() {
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, before);
        }
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
