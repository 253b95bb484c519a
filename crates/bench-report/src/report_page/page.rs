//! The page as a whole: one file without scripts that asks nobody for anything.

use super::facts::{Facts, facts, warnings};
use super::numbers::{count, ratio as times, time_us};
use super::sections::{SECTIONS, Section};
use super::table::Table;
use super::text::escape;
use super::view::{View, is_thinned, ratio};
use crate::published;
use crate::runfile::{Kind, Row, Run, Value};

const STYLE: &str = include_str!("style.css");
/// A value with more letters than this is placed below its name.
const LETTERS_BESIDE: usize = 60;
/// Tables with more rows than this are collapsed at first.
const ROWS_SHOWN: usize = 30;

/// The page about `view`.
pub(super) fn html(view: View<'_>) -> String {
    let run = view.run;
    let title = if run.label.trim().is_empty() { title_of(run) } else { run.label.trim().to_owned() };
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{}</h1>\n<p class=\"dim\">{}</p>\n</header>\n",
        escape(&title),
        escape(&title),
        escape(&subtitle(view)),
    );
    html.push_str(&warned(view));
    html.push_str(&tiles(view));
    html.push_str(&place(view));
    let mut is_empty = true;
    for section in &SECTIONS {
        if !view.rows(section.table).is_empty() {
            is_empty = false;
            html.push_str(&part(view, section));
        }
    }
    if is_empty {
        html.push_str("<p class=\"warn\">No row of this run is finished: there is nothing to show.</p>\n");
    }
    html.push_str(&foot(view));
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

fn title_of(run: &Run) -> String {
    let names: Vec<&str> = run.sides.iter().map(|side| side.name.as_str()).filter(|name| !name.is_empty()).collect();
    match run.kind {
        Kind::Sweep => format!("Benchmark of {}", names.first().unwrap_or(&"a cluster")),
        Kind::Compare => names.join(" beside "),
    }
}

fn subtitle(view: View<'_>) -> String {
    let run = view.run;
    let rows = run.rows.iter().filter(|row| row.result.is_measured()).count();
    let ended = run.finished.as_ref().map_or(", not finished".to_owned(), |finished| format!(" to {finished}"));
    let baseline =
        view.baseline.map_or(String::new(), |other| format!(" · baseline: {}, {}", view.names()[1], other.started));
    format!("{}{ended} · {} rows · {}{baseline}", run.started, count(rows as u64), run.tool)
}

fn warned(view: View<'_>) -> String {
    let said: Vec<String> = warnings(view).iter().map(|text| escape(text)).collect();
    if said.is_empty() { String::new() } else { format!("<p class=\"warn\">{}</p>\n", said.join("<br>")) }
}

/// The best row of each table.
fn tiles(view: View<'_>) -> String {
    let mut html = String::from("<div class=\"tiles\">\n");
    let mut number = 0;
    for (table, what) in [("put", "puts"), ("write", "puts"), ("get", "reads"), ("read", "reads"), ("auth", "logins")] {
        let [rows, _] = view.both(table);
        let Some(best) = rows.into_iter().max_by(|a, b| a.result.rate.total_cmp(&b.result.rate)) else { continue };
        number += 1;
        html.push_str(&format!("<div class=\"tile\"><b>{}/s</b>", escape(&super::numbers::rate(best.result.rate))));
        html.push_str(&format!("<span>{}, {}</span>", escape(what), escape(&parameters(best))));
        if let Some(latency) = best.result.latency_us {
            html.push_str(&format!("<span>p50 {}, p99 {}</span>", time_us(latency.p50), time_us(latency.p99)));
        }
        let base = view.base(best).map(|base| base.result.rate);
        if let Some(ratio) = ratio(Some(best.result.rate), base) {
            html.push_str(&format!("<span>{} of {}</span>", times(ratio), escape(&view.names()[1])));
        }
        html.push_str("</div>\n");
    }
    html.push_str("</div>\n");
    if number == 0 { String::new() } else { html }
}

/// The parameters of a row, in few words.
fn parameters(row: &Row) -> String {
    let told = row.parameters.without(&published::AMOUNTS).without(&["connections", "operation"]);
    let words = told.iter().filter_map(|(name, value)| match (name, value) {
        (_, Value::Text(text)) => Some(text.clone()),
        ("clients", Value::Count(1)) => Some("1 client".into()),
        ("clients", Value::Count(clients)) => Some(format!("{} clients", count(*clients))),
        ("keys_per_answer", Value::Count(1)) => Some("1 key each".into()),
        ("keys_per_answer", Value::Count(keys)) => Some(format!("{} keys each", count(*keys))),
        _ => None,
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Machine, disk, servers, command.
fn place(view: View<'_>) -> String {
    let mut html = String::from("<h2>Where and how</h2>\n<div class=\"place\">\n");
    for Facts { title, list } in facts(view) {
        html.push_str(&format!("<div><h3>{}</h3><dl>", escape(&title)));
        for (name, value) in &list {
            let class = if value.chars().count() > LETTERS_BESIDE { " class=\"long\"" } else { "" };
            html.push_str(&format!("<dt>{}</dt><dd{class}>{}</dd>", escape(name), escape(value)));
        }
        html.push_str("</dl></div>\n");
    }
    html.push_str("</div>\n");
    html
}

fn part(view: View<'_>, section: &Section) -> String {
    let mut html =
        format!("<section>\n<h2>{}</h2>\n<p class=\"dim\">{}</p>\n", escape(section.title), escape(section.text));
    let charts: String = (section.charts)(view).concat();
    if !charts.is_empty() {
        html.push_str(&format!("<div class=\"charts\">\n{charts}</div>\n"));
        if is_thinned(&view.rows(section.table)) {
            html.push_str(
                "<p class=\"dim\">There are more rows than the charts have room for: the table has all.</p>\n",
            );
        }
    }
    if section.table == crate::compare::TABLE {
        html.push_str(&Table::compared(view).html(&format!("{}: ratios", section.title)));
    }
    let table = Table::of(view, section.table);
    let open = if table.rows.len() <= ROWS_SHOWN { " open" } else { "" };
    let rows =
        if table.rows.len() == 1 { "1 row".into() } else { format!("All {} rows", count(table.rows.len() as u64)) };
    html.push_str(&format!(
        "<details{open}><summary>{rows}</summary>\n{}</details>\n</section>\n",
        table.html(section.title)
    ));
    html
}

fn foot(view: View<'_>) -> String {
    let mut html = String::from("<div class=\"foot\">\n");
    let mut setups: Vec<(&str, &str)> = Vec::new();
    for figure in view.run.rows.iter().flat_map(published::figures) {
        if !setups.contains(&(figure.study.name, figure.study.setup)) {
            setups.push((figure.study.name, figure.study.setup));
        }
    }
    if !setups.is_empty() {
        html.push_str(&format!("<p>* {}</p>\n<ul>\n", escape(published::CAVEAT)));
        for (name, setup) in setups {
            html.push_str(&format!("<li><b>{}</b>: {}</li>\n", escape(name), escape(setup)));
        }
        html.push_str("</ul>\n");
    }
    html.push_str(
        "<p>Rates and costs are of requests that were answered as they should be. CPU of the servers is that of all members together, \
         memory that of the member with most of it, both by their metrics; resident memory includes files that are mapped.</p>\n</div>\n",
    );
    html
}
