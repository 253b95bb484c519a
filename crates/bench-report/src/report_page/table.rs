//! The rows of a run as a table, for HTML and for Markdown.

use super::numbers::{bytes, count, rate, ratio as times, time_us};
use super::text::escape;
use super::view::{View, ratio};
use crate::compare::{Spread, spreads};
use crate::published::{self, AMOUNTS, Figure, Study};
use crate::runfile::{Row, State, Value};

/// Limit of parameters of a table; our tables have about six.
const NAMES_MAX: usize = 40;

/// Names over columns, and rows of as many cells.
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Index of the first column with numbers.
    pub(super) words: usize,
}

impl Table {
    /// All rows of `table`: parameters, measurements, published figures, baseline.
    pub(super) fn of(view: View<'_>, table: &str) -> Table {
        let rows = view.rows(table);
        let names = names(&rows);
        let mut studies: Vec<&Study> = Vec::new();
        for figure in rows.iter().flat_map(|row| published::figures(row)) {
            if !studies.contains(&figure.study) {
                studies.push(figure.study);
            }
        }
        let mut head: Vec<String> = names.iter().map(|name| heading(name)).collect();
        head.extend(
            ["rate /s", "mean", "p50", "p99", "p99.9", "errors", "server memory", "server CPU", "client CPU"]
                .map(str::to_owned),
        );
        if rows.iter().any(|row| row.result.beside.is_some()) {
            head.push("puts done /s".into());
        }
        if view.baseline.is_some() {
            let name = &view.names()[1];
            head.extend([format!("{name}: rate /s"), "rate ratio".into(), format!("{name}: p99"), "p99 ratio".into()]);
        }
        head.extend(studies.iter().map(|study| format!("{}*", study.name)));
        if rows.iter().any(|row| !note(row).is_empty()) {
            head.push("note".into());
        }
        let width = head.len();
        let cells = rows.iter().map(|row| {
            let mut cells: Vec<String> =
                names.iter().map(|name| row.parameters.get(name).map_or(String::new(), value)).collect();
            cells.extend(measured(row));
            if head.iter().any(|name| name == "puts done /s") {
                cells.push(row.result.beside.as_ref().map_or(String::new(), |beside| rate(beside.rate)));
            }
            if view.baseline.is_some() {
                cells.extend(beside(view, row));
            }
            let told = published::figures(row);
            let figure = |study: &&Study| told.iter().find(|figure| figure.study == *study);
            cells.extend(studies.iter().map(|study| figure(study).map_or(String::new(), published_words)));
            if cells.len() < width {
                cells.push(note(row));
            }
            cells
        });
        let words = names.iter().position(|name| !matches!(rows[0].parameters.get(name), Some(Value::Text(_))));
        let (rows, words) = (cells.collect(), words.unwrap_or(names.len()));
        Table { head, rows, words }
    }

    /// The ratios of a comparison.
    pub(super) fn compared(view: View<'_>) -> Table {
        let name = |side: usize| view.run.sides.get(side).map_or("?", |side| side.name.as_str()).to_owned();
        let head = [
            "load".into(),
            "measure".into(),
            name(0),
            name(1),
            "ratio".into(),
            "smallest".into(),
            "largest".into(),
            "pairs".into(),
        ];
        let line = |spread: Spread| {
            let is_rate = spread.metric == crate::compare::Metric::Rate;
            let side = |value: f64| if is_rate { rate(value) } else { time_us(value) };
            let ratios = [spread.ratio, spread.least, spread.most].map(times);
            let mut cells =
                vec![spread.load, spread.metric.name().to_owned(), side(spread.sides[0]), side(spread.sides[1])];
            cells.extend(ratios);
            cells.push(spread.pairs.to_string());
            cells
        };
        Table { head: head.into(), rows: spreads(view.run).into_iter().map(line).collect(), words: 2 }
    }

    /// `name` is the table's name for screen readers.
    pub(super) fn html(&self, name: &str) -> String {
        let class = |column: usize| {
            let is_note = self.head.get(column).is_some_and(|name| name == "note");
            if column < self.words || is_note { " class=\"word\"" } else { "" }
        };
        let name = escape(name);
        // A table that is wider than the page scrolls, also by the keyboard.
        let mut html = format!(
            "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\"><table>\n\
             <caption class=\"aloud\">{name}</caption>\n<thead><tr>"
        );
        for (column, name) in self.head.iter().enumerate() {
            html.push_str(&format!("<th scope=\"col\"{}>{}</th>", class(column), escape(name)));
        }
        html.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            html.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                html.push_str(&format!("<td{}>{}</td>", class(column), escape(cell)));
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody></table></div>\n");
        html
    }

    pub(super) fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| markdown_text(cell)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let ruler: Vec<&str> =
            (0..self.head.len()).map(|column| if column < self.words { "---" } else { "--:" }).collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}| {} |\n{rows}", line(&self.head), ruler.join(" | "))
    }
}

/// Text for Markdown: one line, with its special characters escaped.
pub(super) fn markdown_text(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if matches!(letter, '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '&' | '#' | '!') {
            escaped.push('\\');
        }
        escaped.push(if letter.is_control() { ' ' } else { letter });
    }
    escaped
}

/// Names of the parameters of all rows, without those that are equal in all rows and say only how much was done.
fn names<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| row.parameters.iter()) {
        if names.len() < NAMES_MAX && !names.contains(&name) {
            names.push(name);
        }
    }
    names.retain(|name| {
        let first = rows.first().and_then(|row| row.parameters.get(name));
        !AMOUNTS.contains(name) || rows.iter().any(|row| row.parameters.get(name) != first)
    });
    // Parameters with text values come first.
    let is_word = |name: &&str| rows.iter().any(|row| row.parameters.text(name).is_some());
    let (mut words, numbers): (Vec<&str>, Vec<&str>) = names.into_iter().partition(is_word);
    words.extend(numbers);
    words
}

/// A parameter's name as the heading of a column.
pub(crate) fn heading(name: &str) -> String {
    let (name, unit) = match (name.strip_suffix("_bytes"), name.strip_suffix("_per_second")) {
        (Some(name), _) => (name, ", B"),
        (_, Some(name)) => (name, " /s"),
        _ => (name, ""),
    };
    format!("{}{unit}", name.replace('_', " "))
}

fn value(value: &Value) -> String {
    match value {
        Value::Count(number) => count(*number),
        Value::Number(number) => rate(*number),
        Value::Text(text) => text.clone(),
    }
}

fn measured(row: &Row) -> Vec<String> {
    let result = &row.result;
    let latency = |of: fn(&crate::runfile::Latency) -> f64| {
        result.latency_us.as_ref().map_or(String::new(), |all| time_us(of(all)))
    };
    let each = |cost: Option<f64>| cost.map_or(String::new(), time_us);
    let is_begun = result.state != State::LeftOut;
    vec![
        if is_begun { rate(result.rate) } else { String::new() },
        latency(|all| all.mean),
        latency(|all| all.p50),
        latency(|all| all.p99),
        latency(|all| all.p999),
        if is_begun { count(result.errors_all()) } else { String::new() },
        result.server_memory_bytes.map_or(String::new(), |memory| bytes(memory as f64)),
        each(result.server_cpu_us),
        each(result.client_cpu_us),
    ]
}

/// The text of a cell with a published figure.
fn published_words(figure: &Figure) -> String {
    let mean = figure.mean_us.map(|us| format!(", mean {}", time_us(us)));
    let memory = figure.memory_bytes.map(|memory| format!(", {}", bytes(memory as f64)));
    format!("{}/s{}{}", figure.rate_words(), mean.unwrap_or_default(), memory.unwrap_or_default())
}

fn beside(view: View<'_>, row: &Row) -> Vec<String> {
    let Some(base) = view.base(row) else { return vec![String::new(); 4] };
    let p99 = |row: &Row| row.result.latency_us.map(|latency| latency.p99);
    vec![
        rate(base.result.rate),
        ratio(Some(row.result.rate), Some(base.result.rate)).map_or(String::new(), times),
        p99(base).map_or(String::new(), time_us),
        ratio(p99(row), p99(base)).map_or(String::new(), times),
    ]
}

/// The note about a row that was not measured completely or correctly.
fn note(row: &Row) -> String {
    let result = &row.result;
    if let Some(reason) = &result.reason {
        return match result.state {
            State::Measured => reason.clone(),
            State::LeftOut => format!("left out: {reason}"),
            State::Stopped => format!("stopped: {reason}"),
        };
    }
    let errors = result.errors.iter().map(|(name, number)| format!("{name} {}", count(*number)));
    errors.collect::<Vec<_>>().join(", ")
}
