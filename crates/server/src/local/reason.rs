//! Why a member has ended, as its log says it.

use std::fs;
use std::path::Path;

/// Lines that a reason may have.
const LINES_MAX: usize = 8;
/// Names of the levels of lines that tell of a failure, the worst first, as the format `console` writes them.
const LEVELS: [&str; 4] = ["panic", "fatal", "error", "warn"];

/// The line that says so and those that continue it.
pub(super) fn of(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let found = told(&text);
    if found.is_empty() { "(the log says nothing)".into() } else { found }
}

/// The last line of the worst level, or what stands below the last line of the log that has a level: what is said before the log is
/// started, or instead of it, has none.
fn told(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let plain = lines.iter().rposition(|line| level(line).is_some()).map_or(0, |place| place + 1);
    if plain < lines.len() {
        // The reason comes last.
        return lines[plain.max(lines.len().saturating_sub(LINES_MAX))..].join("\n");
    }
    let worst = LEVELS.iter().find_map(|wanted| lines.iter().rposition(|line| level(line) == Some(*wanted)));
    let Some(begin) = worst.or(lines.len().checked_sub(1)) else { return String::new() };
    let more = lines[begin + 1..].iter().take_while(|line| level(line).is_none()).take(LINES_MAX - 1);
    std::iter::once(&lines[begin]).chain(more).copied().collect::<Vec<_>>().join("\n")
}

/// The level of a line, in either format of the log.
fn level(line: &str) -> Option<&str> {
    let named = match line.strip_prefix("{\"level\":\"") {
        Some(rest) => rest.split('"').next(),
        None => line.split('\t').nth(1),
    };
    LEVELS
        .into_iter()
        .chain(["info", "debug"])
        .find(|level| named.is_some_and(|named| named.eq_ignore_ascii_case(level)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_found() {
        for (log, wanted) in [
            ("Usage: cairn serve [flags].\nflag provided but not defined: -nonsense\n", "defined: -nonsense"),
            (
                "T\tinfo\ta\tstarting\nT\terror\ta\tcannot start\t{}\nT\tinfo\ta\tgoing\n",
                "T\terror\ta\tcannot start\t{}",
            ),
            ("T\tINFO\ta\tstarting\nT\tWARN\ta\tfailed to verify flags\n", "T\tWARN\ta\tfailed to verify flags"),
            ("T\terror\ta\tcannot start:\n  line two\nT\tinfo\ta\tb\n", "T\terror\ta\tcannot start:\n  line two"),
            ("{\"level\":\"warn\",\"msg\":\"wrong\"}\n", "{\"level\":\"warn\",\"msg\":\"wrong\"}"),
            ("T\tinfo\ta\tstarting\nthread panicked\n", "thread panicked"),
            ("T\tinfo\ta\tstarting\n", "T\tinfo\ta\tstarting"),
        ] {
            assert!(told(log).ends_with(wanted), "{:?} of {log:?}", told(log));
        }
        assert_eq!(told(""), "");
    }
}
