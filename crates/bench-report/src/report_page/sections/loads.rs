//! Tables of single loads: writes, reads, large values, logging in.

use super::super::chart::{Bar, Bars, Look, Strip, Strips};
use super::super::numbers::{Unit, bytes, time_us};
use super::super::view::{STEPS_MAX, View, axis};
use super::of_clients;
use crate::published::{self, Figure};
use crate::runfile::Row;

pub(super) fn write(view: View<'_>) -> Vec<String> {
    charts(view, "write", "Puts", &|row| target(row).to_owned())
}

pub(super) fn read(view: View<'_>) -> Vec<String> {
    let name = |row: &Row| format!("{}, {}", row.parameters.text("consistency").unwrap_or_default(), target(row));
    charts(view, "read", "Reads", &name)
}

pub(super) fn large(view: View<'_>) -> Vec<String> {
    charts(view, "large", "1 MB values", &|row| row.parameters.text("operation").unwrap_or_default().to_owned())
}

pub(super) fn auth(view: View<'_>) -> Vec<String> {
    charts(view, "auth", "Logins", &|_| "Authenticate".to_owned())
}

fn target(row: &Row) -> &'static str {
    if row.parameters.text("target") == Some("all") { "all members" } else { "leader only" }
}

/// One chart of rates for each number of clients, since they differ widely; one chart of latencies and of costs for
/// all.
fn charts(view: View<'_>, table: &str, what: &str, name: &dyn Fn(&Row) -> String) -> Vec<String> {
    let [rows, _] = view.both(table);
    let mut charts = Vec::new();
    for clients in axis(&rows, "clients") {
        let own = rows.iter().filter(|row| row.parameters.count("clients") == Some(clients));
        let groups = own.take(STEPS_MAX).map(|row| (name(row), rates(view, row))).collect();
        charts.push(Bars { title: &format!("{what}, {}", of_clients(clients)), unit: Unit::Rate, groups }.html());
    }
    let whole = |row: &Row| format!("{}, {}", name(row), of_clients(row.parameters.count("clients").unwrap_or(0)));
    let strips = rows.iter().map(|row| (whole(row), strips(view, row))).filter(|(_, strips)| !strips.is_empty());
    charts.push(Strips { title: &format!("{what}: latency"), groups: strips.take(STEPS_MAX).collect() }.html());
    let costs = rows.iter().map(|row| (whole(row), costs(view, row))).filter(|(_, bars)| !bars.is_empty());
    charts.push(
        Bars {
            title: &format!("{what}: CPU of the servers for one"),
            unit: Unit::Time,
            groups: costs.take(STEPS_MAX).collect(),
        }
        .html(),
    );
    charts
}

/// The row and the same row of the baseline, each with the number and name of its run.
fn sides<'a>(view: View<'a>, row: &'a Row) -> impl Iterator<Item = (usize, String, &'a Row)> {
    let rows = [Some(row), view.base(row)].into_iter().enumerate();
    rows.zip(view.names()).filter_map(|((number, row), name)| Some((number, name, row?)))
}

fn rates(view: View<'_>, row: &Row) -> Vec<Bar> {
    let own = sides(view, row).map(|(number, name, row)| {
        let latency = row.result.latency_us;
        let notes = latency.map(|latency| format!("mean {}, p99 {}", time_us(latency.mean), time_us(latency.p99)));
        Bar {
            name,
            tag: "",
            look: Look::Colour(number),
            value: row.result.rate,
            is_bound: false,
            notes: notes.into_iter().collect(),
        }
    });
    let others = published::figures(row).into_iter().map(|figure| Bar {
        name: "etcd elsewhere, as published".into(),
        tag: figure.study.name,
        look: Look::Published,
        value: figure.rate,
        is_bound: figure.is_bound,
        notes: told(&figure),
    });
    own.chain(others).collect()
}

/// Further values of a published figure besides the rate.
fn told(figure: &Figure) -> Vec<String> {
    let mean = figure.mean_us.map(|us| format!("mean {}", time_us(us)));
    let memory = figure.memory_bytes.map(|memory| format!("server memory {}", bytes(memory as f64)));
    let all: Vec<String> = [mean, memory].into_iter().flatten().collect();
    let line = if all.is_empty() { String::new() } else { format!(", {}", all.join(", ")) };
    vec![format!("{}{line}", figure.study.name)]
}

fn strips(view: View<'_>, row: &Row) -> Vec<Strip> {
    let each = sides(view, row);
    each.filter_map(|(number, name, row)| {
        Some(Strip { name, look: Look::Colour(number), latency: row.result.latency_us? })
    })
    .collect()
}

fn costs(view: View<'_>, row: &Row) -> Vec<Bar> {
    let each = sides(view, row);
    each.filter_map(|(number, name, row)| {
        let value = row.result.server_cpu_us.filter(|us| *us > 0.0)?;
        Some(Bar { name, tag: "", look: Look::Colour(number), value, is_bound: false, notes: Vec::new() })
    })
    .collect()
}
