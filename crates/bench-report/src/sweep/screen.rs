//! The rows as they come, in columns.

use std::io::{IsTerminal, Write};

use super::tables::TABLES;
use crate::published::{self, Study};
use crate::report_page::{bytes, count, heading, rate, time_us};
use crate::runfile::{Parameters, Row, State};

/// Minimum width of a parameter's column.
const PARAMETER_MIN: usize = 7;
/// Parameters without a column: the first line of a table or the plan shows them.
const HIDDEN: [&str; 4] = ["queries_per_client", "requests", "keys", "value_bytes"];
/// Columns of the measurements, and their widths.
const COLUMNS: [(&str, usize); 7] =
    [("rate /s", 10), ("mean", 9), ("p50", 9), ("p99", 9), ("errors", 7), ("memory", 9), ("CPU each", 9)];

/// Prints a line. A closed output is no error, because the rows are in the file.
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// The output of a sweep on the terminal.
pub(super) struct Screen {
    members: usize,
    is_seen: bool,
    table: String,
    studies: Vec<&'static Study>,
}

impl Screen {
    pub(super) fn new(members: usize) -> Screen {
        Screen { members, is_seen: std::io::stderr().is_terminal(), table: String::new(), studies: Vec::new() }
    }

    /// Shows the current work on a terminal; the row then replaces it.
    pub(super) fn doing(&self, number: usize, all: usize, what: &str) {
        if self.is_seen {
            flags::say_part!("\r\x1b[Krow {number} of {all}: {what} ...");
            // An error does not matter: the terminal is gone.
            let _ = std::io::stderr().flush();
        }
    }

    /// Prints a row, and before the first row of a table the names of its columns.
    pub(super) fn row(&mut self, row: &Row) {
        if self.is_seen {
            flags::say_part!("\r\x1b[K");
        }
        if self.table != row.table {
            self.table.clone_from(&row.table);
            let about = TABLES.iter().find(|(name, _)| *name == row.table).map_or("", |(_, text)| text);
            let puts = if row.result.beside.is_some() || row.table == "mixed" { "  puts done /s" } else { "" };
            say(format_args!("\n{}: {about}", row.table));
            say(format_args!(
                "{}{}{puts}  etcd elsewhere*",
                names(&row.parameters),
                columns(|(name, _)| name.to_string())
            ));
        }
        say(format_args!("{}", self.line(row)));
    }

    fn line(&mut self, row: &Row) -> String {
        let result = &row.result;
        let mut line = values(&row.parameters);
        if let (Some(reason), State::LeftOut | State::Stopped) = (&result.reason, result.state) {
            let state = if result.state == State::LeftOut { "left out" } else { "stopped" };
            return format!("{line}  {state}: {reason}");
        }
        let latency = |of: fn(&crate::runfile::Latency) -> f64| {
            result.latency_us.as_ref().map_or("-".to_owned(), |all| time_us(of(all)))
        };
        let cells = [
            rate(result.rate),
            latency(|all| all.mean),
            latency(|all| all.p50),
            latency(|all| all.p99),
            count(result.errors_all()),
            result.server_memory_bytes.map_or("-".into(), |memory| bytes(memory as f64)),
            result.server_cpu_us.map_or("-".into(), time_us),
        ];
        let mut cells = cells.into_iter();
        line.push_str(&columns(|_| cells.next().unwrap_or_default()));
        if row.table == "mixed" {
            let puts = result.beside.as_ref().map_or("-".into(), |beside| rate(beside.rate));
            line.push_str(&format!("  {puts:>13}"));
        }
        if let Some(figure) = published::nearest(row, self.members) {
            if !self.studies.contains(&figure.study) {
                self.studies.push(figure.study);
            }
            line.push_str(&format!("  {:>9} ({})", figure.rate_words(), figure.study.name));
        }
        if let Some(note) = &result.reason {
            line.push_str(&format!("  ({note})"));
        }
        for (name, text) in &result.examples {
            line.push_str(&format!("\n    {name}: {text}"));
        }
        line
    }

    /// Prints the sources of the published figures, if there were any.
    pub(super) fn foot(&self) {
        if self.studies.is_empty() {
            return;
        }
        say(format_args!("\n* {}", published::CAVEAT));
        for study in &self.studies {
            say(format_args!("  {}: {}", study.name, study.setup));
        }
    }
}

/// The subject of a row, in words.
pub(super) fn words(row: &str, parameters: &Parameters) -> String {
    let each = shown(parameters).map(|(name, value)| format!("{name} {value}"));
    format!("{row}, {}", each.collect::<Vec<_>>().join(", "))
}

fn shown(parameters: &Parameters) -> impl Iterator<Item = (String, String)> {
    let shown = parameters.iter().filter(|(name, _)| !HIDDEN.contains(name));
    shown.map(|(name, value)| (heading(name), value.to_string()))
}

fn names(parameters: &Parameters) -> String {
    shown(parameters).map(|(name, value)| format!("{name:>width$}  ", width = width(&name, &value))).collect()
}

fn values(parameters: &Parameters) -> String {
    shown(parameters).map(|(name, value)| format!("{value:>width$}  ", width = width(&name, &value))).collect()
}

/// Words of a column differ in length by a few letters.
fn width(name: &str, value: &str) -> usize {
    let is_word = value.parse::<f64>().is_err();
    name.chars().count().max(if is_word { "linearizable".len() } else { PARAMETER_MIN })
}

fn columns(mut cell: impl FnMut((&str, usize)) -> String) -> String {
    COLUMNS.map(|(name, width)| format!("{:>width$}", cell((name, width)))).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runfile::{Latency, Measured};

    #[test]
    fn values_stand_under_their_names() {
        let parameters = Parameters::default()
            .with("clients", 10_u64)
            .with("queries_per_client", 10_000_u64)
            .with("key_prefix_bytes", 0_u64)
            .with("value_prefix_bytes", 8_u64);
        let us = Latency { mean: 1000.0, p50: 900.0, p90: 1.0, p99: 123_456.0, p999: 1.0, max: 1.0 };
        let result = Measured { rate: 5210.0, latency_us: Some(us), server_cpu_us: Some(40.5), ..Measured::default() };
        let row = Row { table: "put".into(), parameters, result };
        let head = format!("{}{}", names(&row.parameters), columns(|(name, _)| name.to_string()));
        let line = Screen::new(3).line(&row);
        assert_eq!(
            head,
            "clients  key prefix, B  value prefix, B     rate /s      mean       p50       p99  errors    memory  CPU each"
        );
        assert_eq!(
            line,
            "     10              0                8       5,210      1 ms    900 µs    123 ms       0         -   40.5 µs        554 (etcd, test program)"
        );
        let stopped = Row { result: Measured::without(State::Stopped, "gone".into()), ..row };
        assert!(Screen::new(3).line(&stopped).ends_with("  stopped: gone"));
    }
}
