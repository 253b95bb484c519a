//! The matrix of reads by prefix.

use super::super::chart::{Heat, Lines, Look, Series};
use super::super::numbers::{Unit, count};
use super::super::view::{View, at, axis, ratio};
use super::{of_clients, percentiles, sized, sizes};
use crate::published;

/// Sizes of answers are held against each other at this many clients, or at the most below.
const CLIENTS_SHOWN: u64 = 100;

pub(super) fn charts(view: View<'_>) -> Vec<String> {
    let rows = view.both("get");
    let (clients, answers, sizes) = (axis(&rows[0], "clients"), axis(&rows[0], "keys_per_answer"), sizes(&rows[0]));
    let Some(middle) = sizes.get(sizes.len() / 2).copied() else { return Vec::new() };
    let shown = clients.iter().copied().rfind(|clients| *clients <= CLIENTS_SHOWN).or(clients.first().copied());
    let Some(shown) = shown else { return Vec::new() };
    let names = view.names();
    let find = |which: usize, clients: u64, keys: u64, size| {
        at(&rows[which], &[&[("clients", clients), ("keys_per_answer", keys)], &sized(size)[..]].concat())
    };
    let steps: Vec<String> = answers.iter().map(|keys| count(*keys)).collect();
    let mut series = Vec::new();
    for which in 0..=usize::from(view.baseline.is_some()) {
        for (number, clients) in clients.iter().enumerate() {
            let name = of_clients(*clients);
            series.push(Series {
                name: if which == 0 { name } else { format!("{name}, {}", names[1]) },
                look: Look::Colour(number),
                is_dashed: which == 1,
                values: answers.iter().map(|keys| Some(find(which, *clients, *keys, middle)?.result.rate)).collect(),
            });
        }
    }
    series.push(Series {
        name: format!("{}, etcd elsewhere", of_clients(shown)),
        look: Look::Published,
        is_dashed: true,
        values: answers
            .iter()
            .map(|keys| Some(published::figures(find(0, shown, *keys, middle)?).first()?.rate))
            .collect(),
    });
    series.retain(|series| series.values.iter().any(Option::is_some));
    let (key, value) = middle;
    let by_clients = |title: &str, unit, of: &dyn Fn(u64, u64) -> Option<f64>| {
        let cells = clients.iter().map(|clients| answers.iter().map(|keys| of(*clients, *keys)).collect()).collect();
        let names = clients.iter().map(|clients| count(*clients)).collect();
        Heat { title, unit, across: "keys in an answer", columns: steps.clone(), down: "clients", rows: names, cells }
            .html()
    };
    let mut charts = vec![
        Lines {
            title: &format!("Reads by keys in an answer, prefixes of {key} and {value} B"),
            unit: Unit::Rate,
            across: "keys in an answer",
            steps: steps.clone(),
            series,
        }
        .html(),
        Lines {
            title: &format!("Latency, {}, prefixes of {key} and {value} B", of_clients(shown)),
            unit: Unit::Time,
            across: "keys in an answer",
            steps: steps.clone(),
            series: percentiles(&answers, &names, |which, keys| find(which, shown, *keys, middle)),
        }
        .html(),
        by_clients("Reads, clients x answers", Unit::Rate, &|clients, keys| {
            Some(find(0, clients, keys, middle)?.result.rate)
        }),
        by_clients("Reads beside the baseline", Unit::Ratio, &|clients, keys| {
            let row = find(0, clients, keys, middle)?;
            ratio(Some(row.result.rate), view.base(row).map(|base| base.result.rate))
        }),
    ];
    if sizes.len() > 1 {
        let cell = |size, keys: &u64| Some(find(0, shown, *keys, size)?.result.rate);
        charts.push(
            Heat {
                title: &format!("Reads, all sizes, {}", of_clients(shown)),
                unit: Unit::Rate,
                across: "keys in an answer",
                columns: steps.clone(),
                down: "key + value prefix, B",
                rows: sizes.iter().map(|(key, value)| format!("{key}+{value}")).collect(),
                cells: sizes.iter().map(|size| answers.iter().map(|keys| cell(*size, keys)).collect()).collect(),
            }
            .html(),
        );
    }
    charts
}
