//! Reads under writes.

use super::super::chart::{Lines, Look, Series};
use super::super::numbers::{Unit, count};
use super::super::view::{Index, View, axis};
use super::percentiles;

pub(super) fn charts(view: View<'_>) -> Vec<String> {
    let rows = view.both("mixed");
    let offered = axis(&rows[0], "writes_per_second");
    let names = view.names();
    let steps: Vec<String> = offered.iter().map(|rate| count(*rate)).collect();
    let indices = rows.each_ref().map(|rows| Index::of(rows, ["writes_per_second"]));
    let find = |which: usize, rate: u64| indices[which].get([rate]);
    let mut reads = Vec::new();
    let mut writes = Vec::new();
    for (which, name) in names.iter().enumerate().take(1 + usize::from(view.baseline.is_some())) {
        let suffix = if which == 0 { String::new() } else { format!(", {name}") };
        reads.push(Series {
            name: format!("reads{suffix}"),
            look: Look::Colour(0),
            is_dashed: which == 1,
            values: offered.iter().map(|rate| Some(find(which, *rate)?.result.rate)).collect(),
        });
        writes.push(Series {
            name: format!("puts{suffix}"),
            look: Look::Colour(1),
            is_dashed: which == 1,
            values: offered.iter().map(|rate| Some(find(which, *rate)?.result.beside.as_ref()?.rate)).collect(),
        });
    }
    reads.extend(writes);
    let across = "puts offered per second";
    vec![
        Lines {
            title: "Latency of reads",
            unit: Unit::Time,
            across,
            steps: steps.clone(),
            series: percentiles(&offered, &names, |which, rate| find(which, *rate)),
        }
        .html(),
        Lines { title: "Reads and puts that were done", unit: Unit::Rate, across, steps, series: reads }.html(),
    ]
}
