//! A bar as etcd's `benchmark` draws it, where somebody looks: on the standard error output, if that is a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time between two drawings.
const STEP: Duration = Duration::from_millis(200);
/// Time after which the bar shows a rate.
const SPEED_AFTER: Duration = Duration::from_secs(1);
/// Assumed width of a terminal that does not report one.
const WIDTH: usize = 80;

/// A progress bar.
pub(crate) struct Bar {
    total: Option<u64>,
    width: Option<usize>,
    began: Instant,
    drawn_at: Option<Instant>,
}

impl Bar {
    /// `total` is the number of requests to do, if it is known.
    pub(crate) fn new(total: Option<u64>) -> Bar {
        let is_seen = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Bar { total, width: is_seen.then(terminal_width), began: Instant::now(), drawn_at: None }
    }

    pub(crate) fn draw(&mut self, done: u64) {
        let Some(width) = self.width else { return };
        if self.drawn_at.is_some_and(|at| at.elapsed() < STEP) {
            return;
        }
        self.drawn_at = Some(Instant::now());
        flags::say_part!("\r{}", line(done, self.total, self.began.elapsed(), width));
        // An error does not matter: the terminal is gone.
        let _ = std::io::stderr().flush();
    }

    /// Draws the bar for the last time.
    pub(crate) fn end(&mut self, done: u64) {
        self.drawn_at = None;
        self.draw(done);
        if self.width.is_some() {
            flags::say!();
        }
    }
}

fn terminal_width() -> usize {
    // SAFETY: a plain structure of numbers, filled in by the call; nothing is used if that fails.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let outcome = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    if outcome == 0 && size.ws_col > 0 { usize::from(size.ws_col) } else { WIDTH }
}

fn line(done: u64, total: Option<u64>, time: Duration, width: usize) -> String {
    let speed = match time > SPEED_AFTER {
        true => format!("{:.0} p/s", done as f64 / time.as_secs_f64()),
        false => "? p/s".to_string(),
    };
    let total = total.filter(|total| *total > 0);
    let (counters, percent) = match total {
        Some(total) => (format!("{done} / {total}"), format!("{:.2}%", 100.0 * done as f64 / total as f64)),
        None => (done.to_string(), "?%".into()),
    };
    let room = width.saturating_sub(counters.len() + percent.len() + speed.len() + "  []  ".len() - 1);
    let share = total.map_or(0.0, |total| (done as f64 / total as f64).min(1.0));
    let filled = (room as f64 * share) as usize;
    let bar = match filled {
        _ if filled == room => "-".repeat(room),
        0 if share <= 0.0 => "_".repeat(room),
        _ => {
            let shaft = filled.saturating_sub(1);
            format!("{}>{}", "-".repeat(shaft), "_".repeat((room - shaft).saturating_sub(1)))
        }
    };
    format!("{counters} [{bar}] {percent} {speed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_wide_as_the_terminal() {
        let ms = Duration::from_millis;
        let wanted =
            "185 / 2000 [----->__________________________________________________________________] 9.25% ? p/s";
        assert_eq!(line(185, Some(2000), ms(600), 100).len(), 100);
        assert_eq!(line(185, Some(2000), ms(600), wanted.len()), wanted);
        assert!(line(2000, Some(2000), ms(2000), 80).ends_with("-] 100.00% 1000 p/s"));
        assert!(line(7, None, ms(1), 40).starts_with("7 [____"));
        assert!(line(0, Some(0), ms(1), 5).starts_with("0 []"));
        assert!(line(u64::MAX, Some(1), ms(1), 200).len() >= 100);
    }
}
