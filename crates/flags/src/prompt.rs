//! A question that is answered on the terminal.

use std::io::{self, BufRead, Write};

/// Asks for a password. What is typed is not shown.
///
/// # Errors
///
/// Those of the standard input and output.
pub fn password(prompt: &str) -> io::Result<String> {
    let hidden = Hidden::begin();
    let mut out = io::stdout();
    out.write_all(prompt.as_bytes())?;
    out.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
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
        // SAFETY: what the terminal had before.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const self.0) };
    }
}
