//! The page in a terminal of any size.

use super::view::{Figures, Row, STAGES, View};
use crate::checks::format::{bytes, number};
use crate::failure::Outcome;
use crate::print::{self, go};

/// The page while it is in the terminal, which has its former look again afterwards.
pub(super) struct Screen;

impl Screen {
    pub(super) fn open() -> Outcome<Screen> {
        print::out(b"\x1b[?1049h\x1b[?25l")?;
        Ok(Screen)
    }

    pub(super) fn draw(&mut self, view: &View) -> Outcome {
        let (width, height) = size();
        let mut out = String::from("\x1b[H");
        let all = lines(view, width, height);
        for (place, line) in all.iter().enumerate() {
            // What was there before goes with the rest of the line.
            go::put(&mut out, format_args!("{line}\x1b[K{}", if place + 1 < all.len() { "\r\n" } else { "" }));
        }
        out += "\x1b[J";
        print::out(out.as_bytes())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = print::out(b"\x1b[?25h\x1b[?1049l");
    }
}

/// Columns and lines of the terminal; those of an old one if there is none.
pub(super) fn size() -> (usize, usize) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointer is valid for the call, which leaves zeros where it fails.
    unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    match (size.ws_col, size.ws_row) {
        (0, _) | (_, 0) => (80, 24),
        (columns, lines) => (columns.into(), lines.into()),
    }
}

/// A column of the table of members: heading, least width, and what stands in it.
type Column = (&'static str, usize, fn(&Row, &Figures) -> String);

/// In the order of their importance: what has no room is left out from the end.
const COLUMNS: [Column; 15] = [
    ("LAG", 5, |row, _| row.lag.to_string()),
    ("PUT/S", 7, |_, figures| rate(figures.puts)),
    ("RANGE/S", 7, |_, figures| rate(figures.ranges)),
    ("PUT P99", 8, |_, figures| time(figures.put_seconds)),
    ("FSYNC P99", 9, |_, figures| time(figures.fsync_seconds)),
    ("CONNS", 6, |_, figures| count(figures.connections)),
    ("WATCHES", 7, |_, figures| count(figures.watches)),
    ("LEASES", 7, |_, figures| count(figures.leases)),
    ("RANGE P99", 9, |_, figures| time(figures.range_seconds)),
    ("TXN/S", 7, |_, figures| rate(figures.txns)),
    ("DEL/S", 7, |_, figures| rate(figures.deletes)),
    ("EVENTS/S", 8, |_, figures| rate(figures.events)),
    ("LEASES/S", 8, |_, figures| rate(figures.leases_granted)),
    ("ALIVE/S", 7, |_, figures| rate(figures.leases_renewed)),
    ("DATABASE", 9, |row, _| bytes(row.db_bytes)),
];

/// The stages in nine characters.
const STAGE_HEADINGS: [&str; STAGES.len()] = ["queue", "log_sync", "replicate", "apply", "readindex", "range", "send"];

const NAME_WIDTH: usize = 10;
const ROLE_WIDTH: usize = 9;

/// All lines, no more than `height`, none longer than `width`.
pub(super) fn lines(view: &View, width: usize, height: usize) -> Vec<String> {
    let mut out = vec![title(view)];
    if !view.alarms.is_empty() {
        out.push(format!("ALARMS: {}", plain(&view.alarms.join(", "))));
    }
    out.push(String::new());
    members(&mut out, view, width, height.saturating_sub(10).max(1));
    out.push(String::new());
    stages(&mut out, view, width);
    let left = height.saturating_sub(out.len() + 4);
    // Of a tall terminal both lists have half.
    let hot = view.hottest.prefixes.len().min(left.saturating_sub(view.slow.len().min(left / 2)));
    out.push(String::new());
    hottest(&mut out, view, hot);
    out.push(String::new());
    let rest = height.saturating_sub(out.len() + 1);
    slow(&mut out, view, rest);
    out.truncate(height);
    out.iter().map(|line| cut(line, width)).collect()
}

fn title(view: &View) -> String {
    let leader = view.leader.as_deref().unwrap_or("none");
    let up = view.members.iter().filter(|row| row.error.is_none()).count();
    format!(
        "cairn top   {up} of {} members   leader {}   term {}   revision {}   over {:.1} s",
        view.members.len(),
        plain(leader),
        view.term,
        number(view.revision as f64),
        view.seconds
    )
}

fn members(out: &mut Vec<String>, view: &View, width: usize, rows_max: usize) {
    let (mut shown, mut taken) = (Vec::new(), NAME_WIDTH + 1 + ROLE_WIDTH);
    for column in &COLUMNS {
        taken += 1 + column.1;
        if taken > width {
            break;
        }
        shown.push(column);
    }
    let mut line = format!("{:<NAME_WIDTH$} {:<ROLE_WIDTH$}", "MEMBER", "ROLE");
    shown.iter().for_each(|(name, width, _)| go::put(&mut line, format_args!(" {name:>width$}", width = *width)));
    out.push(line);
    for row in view.members.iter().take(rows_max) {
        let mut line = format!("{:<NAME_WIDTH$} {:<ROLE_WIDTH$}", cut(&plain(&row.name), NAME_WIDTH), row.role);
        match (&row.figures, &row.error) {
            (Some(figures), _) => {
                for (_, width, cell) in &shown {
                    go::put(&mut line, format_args!(" {:>width$}", cell(row, figures), width = *width));
                }
            }
            (None, Some(error)) => go::put(&mut line, format_args!(" {}", plain(error))),
            (None, None) => go::put(&mut line, format_args!(" {:>5} (it shows no metrics there)", row.lag)),
        }
        out.push(line);
    }
    if view.members.len() > rows_max {
        out.push(format!("... and {} more", view.members.len() - rows_max));
    }
}

/// Where the time of requests goes, by member.
fn stages(out: &mut Vec<String>, view: &View, width: usize) {
    let mut line = format!("{:<NAME_WIDTH$}", "STAGE P99");
    let cell = ((width.saturating_sub(NAME_WIDTH)) / STAGES.len()).clamp(9, 14) - 1;
    STAGE_HEADINGS.iter().for_each(|stage| go::put(&mut line, format_args!(" {stage:>cell$}")));
    out.push(line);
    let leads = |row: &&Row| row.role == "leader";
    for row in view.members.iter().filter(leads).chain(view.members.iter().filter(|row| !leads(row))).take(3) {
        let Some(figures) = &row.figures else { continue };
        let mut line = format!("{:<NAME_WIDTH$}", cut(&plain(&row.name), NAME_WIDTH));
        figures.stages.iter().for_each(|p99| go::put(&mut line, format_args!(" {:>cell$}", time(*p99))));
        out.push(line);
    }
}

fn hottest(out: &mut Vec<String>, view: &View, rows: usize) {
    let sample = &view.hottest;
    if let Some(why) = &sample.refused {
        out.push(format!("HOTTEST PREFIXES: cannot watch: {}", plain(why)));
        return;
    }
    out.push(format!("HOTTEST PREFIXES of {} writes that were sampled", sample.writes));
    for (prefix, count) in sample.prefixes.iter().take(rows) {
        let share = *count as f64 * 100.0 / sample.writes.max(1) as f64;
        out.push(format!("  {share:>5.1} %  {}", go::quote(&prefix[..prefix.len().min(200)])));
    }
}

fn slow(out: &mut Vec<String>, view: &View, rows: usize) {
    out.push("SLOW REQUESTS (more than about 0.25 s; their keys are in the members' logs)".into());
    if view.slow.is_empty() {
        out.push("  none since the page began".into());
    }
    for one in view.slow.iter().rev().take(rows) {
        out.push(format!("  at {:>4} s  {}  {} {}", one.at, plain(&one.member), one.count, plain(&one.kind)));
    }
}

/// A text of others, in which nothing can command the terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn cut(line: &str, width: usize) -> String {
    line.chars().take(width).collect()
}

fn rate(rate: f64) -> String {
    if rate < 9.95 { format!("{rate:.1}") } else { short(rate) }
}

fn count(count: Option<f64>) -> String {
    count.map_or("-".into(), short)
}

/// No more than six characters.
fn short(value: f64) -> String {
    match value {
        ..99_999.5 => format!("{value:.0}"),
        ..9_999_500.0 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.0}M", value / 1e6),
    }
}

/// A bound of a histogram: "no more than".
fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(seconds) if seconds < 0.001 => format!("{:.0}us", seconds * 1e6),
        Some(seconds) if seconds < 1.0 => format!("{:.1}ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::Slow;
    use super::*;

    fn view(members: usize, prefixes: usize) -> View {
        let figures = Figures {
            puts: 12_345.6,
            fsync_seconds: Some(0.008),
            connections: Some(123_456_789.0),
            stages: vec![Some(0.000_25); STAGES.len()],
            ..Figures::default()
        };
        let mut view = View { revision: 1_234_567, leader: Some("m0".into()), seconds: 2.0, ..View::default() };
        for number in 0..members {
            let role = if number == 0 { "leader" } else { "follower" };
            let name = format!("m{number}");
            view.members.push(Row {
                name,
                role,
                lag: 7,
                db_bytes: 5 << 20,
                figures: Some(figures.clone()),
                error: None,
            });
        }
        view.hottest.writes = 1000;
        view.hottest.prefixes =
            (0..prefixes).map(|number| (format!("/registry/{number}/").into(), 1000 / (number + 1))).collect();
        view.slow.push_back(Slow { at: 12, member: "m1".into(), kind: "Put".into(), count: 3 });
        view
    }

    #[test]
    fn an_old_terminal_has_what_matters() {
        let mut view = view(3, 40);
        view.alarms = vec!["NOSPACE\x1b]0;title\x07".into(), "CORRUPT".into()];
        view.members[2] =
            Row { name: "m2".into(), role: "down", error: Some("refused\x1b[2J".into()), ..Row::default() };
        let page = lines(&view, 80, 24);
        assert!(page.len() <= 24 && page.iter().all(|line| line.chars().count() <= 80), "{page:#?}");
        let text = page.join("\n");
        for part in [
            "2 of 3 members",
            "leader m0",
            "revision 1,234,567",
            "FSYNC P99",
            "WATCHES",
            "12346",
            "8.0ms",
            "123M",
            "refused?[2J",
            "ALARMS: NOSPACE?]0;title?, CORRUPT",
            "log_sync",
            "250us",
            "100.0 %  \"/registry/0/\"",
            "at   12 s  m1  3 Put",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(!text.contains("DATABASE") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn a_large_terminal_has_everything() {
        let page = lines(&view(9, 60), 200, 60);
        assert!(page.len() <= 60 && page.iter().all(|line| line.chars().count() <= 200), "{page:#?}");
        let text = page.join("\n");
        for part in ["DATABASE", "5 MiB", "ALIVE/S", "m8", "/registry/30/", "at   12 s"] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }

    #[test]
    fn any_size_is_a_page() {
        for (width, height) in [(1, 1), (10, 3), (20, 200), (500, 5)] {
            for (members, prefixes) in [(0, 0), (1, 0), (50, 100)] {
                let page = lines(&view(members, prefixes), width, height);
                assert!(
                    page.len() <= height && page.iter().all(|line| line.chars().count() <= width),
                    "{width} x {height}"
                );
            }
        }
    }
}
