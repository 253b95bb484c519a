//! The matrix of puts.

use super::super::chart::{Heat, Lines, Look, Series};
use super::super::numbers::{Unit, count};
use super::super::view::{Index, View, axis, ratio};
use super::{SIZED, percentiles, sizes, some_of};
use crate::published;
use crate::runfile::Row;

pub(super) fn charts(view: View<'_>) -> Vec<String> {
    let rows = view.both("put");
    let (clients, sizes) = (axis(&rows[0], "clients"), sizes(&rows[0]));
    let Some(middle) = sizes.get(sizes.len() / 2).copied() else { return Vec::new() };
    let names = view.names();
    let indices = rows.each_ref().map(|rows| Index::of(rows, ["clients", SIZED[0], SIZED[1]]));
    let find = |which: usize, clients: u64, (key, value): (u64, u64)| indices[which].get([clients, key, value]);
    let steps = || clients.iter().map(|clients| count(*clients)).collect::<Vec<_>>();
    let (key, value) = middle;
    let of_middle = format!("Latency, prefixes of {key} and {value} B");
    let cost = |which: usize, name: &str, is_dashed| {
        let cost = |clients: &u64| find(which, *clients, middle)?.result.server_cpu_us;
        let values: Vec<Option<f64>> = clients.iter().map(cost).collect();
        Series { name: name.to_owned(), look: Look::Colour(0), is_dashed, values }
    };
    let mut costs = vec![cost(0, &names[0], false), cost(1, &names[1], true)];
    costs.retain(|series| series.values.iter().any(Option::is_some));
    vec![
        Lines {
            title: "Puts by clients",
            unit: Unit::Rate,
            across: "clients",
            steps: steps(),
            series: throughput(view, &clients, &some_of(&sizes), middle, &find),
        }
        .html(),
        Lines {
            title: &of_middle,
            unit: Unit::Time,
            across: "clients",
            steps: steps(),
            series: percentiles(&clients, &names, |which, clients| find(which, *clients, middle)),
        }
        .html(),
        heat("Puts, all sizes", Unit::Rate, &clients, &sizes, |clients, size| {
            Some(find(0, clients, size)?.result.rate)
        }),
        heat("Puts beside the baseline", Unit::Ratio, &clients, &sizes, |clients, size| {
            let row = find(0, clients, size)?;
            ratio(Some(row.result.rate), view.base(row).map(|base| base.result.rate))
        }),
        Lines {
            title: "CPU of the servers for a put",
            unit: Unit::Time,
            across: "clients",
            steps: steps(),
            series: costs,
        }
        .html(),
    ]
}

/// A line for each of `chosen`, for the same of the baseline, and for the published figures of the middle size.
fn throughput<'a>(
    view: View<'a>,
    clients: &[u64],
    chosen: &[(u64, u64)],
    middle: (u64, u64),
    find: &impl Fn(usize, u64, (u64, u64)) -> Option<&'a Row>,
) -> Vec<Series> {
    let mut series = Vec::new();
    for which in 0..=usize::from(view.baseline.is_some()) {
        for (number, size) in chosen.iter().enumerate() {
            let name = format!("{} + {} B", size.0, size.1);
            series.push(Series {
                name: if which == 0 { name } else { format!("{name}, {}", view.names()[1]) },
                look: Look::Colour(number),
                is_dashed: which == 1,
                values: clients.iter().map(|clients| Some(find(which, *clients, *size)?.result.rate)).collect(),
            });
        }
    }
    let told = |clients: &u64| Some(published::figures(find(0, *clients, middle)?).first()?.rate);
    series.push(Series {
        name: format!("{} + {} B, etcd elsewhere", middle.0, middle.1),
        look: Look::Published,
        is_dashed: true,
        values: clients.iter().map(told).collect(),
    });
    series.retain(|series| series.values.iter().any(Option::is_some));
    series
}

fn heat(
    title: &str,
    unit: Unit,
    clients: &[u64],
    sizes: &[(u64, u64)],
    value: impl Fn(u64, (u64, u64)) -> Option<f64>,
) -> String {
    Heat {
        title,
        unit,
        across: "clients",
        columns: clients.iter().map(|clients| count(*clients)).collect(),
        down: "key + value prefix, B",
        rows: sizes.iter().map(|(key, value)| format!("{key}+{value}")).collect(),
        cells: sizes.iter().map(|size| clients.iter().map(|clients| value(*clients, *size)).collect()).collect(),
    }
    .html()
}
