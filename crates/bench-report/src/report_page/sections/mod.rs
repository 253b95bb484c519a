//! The charts of each table.

mod compared;
mod get;
mod loads;
mod mixed;
mod put;

use super::chart::{Look, Series};
use super::numbers::count;
use super::view::{View, steps};
use crate::runfile::{Latency, Row};

/// A part of the page.
pub(super) struct Section {
    pub(super) table: &'static str,
    pub(super) title: &'static str,
    /// A sentence about what was measured.
    pub(super) text: &'static str,
    pub(super) charts: fn(View<'_>) -> Vec<String>,
}

/// All parts, in the order of the page.
pub(super) static SECTIONS: [Section; 8] = [
    Section {
        table: "put",
        title: "Puts by clients and sizes",
        text: "Each client is a connection of its own and puts one key after the other, each key once. Keys and values are a prefix \
               of so many bytes and a number.",
        charts: put::charts,
    },
    Section {
        table: "get",
        title: "Reads by clients and keys in an answer",
        text: "Each client is a connection of its own and reads all keys with a prefix, linearizably, again and again another one.",
        charts: get::charts,
    },
    Section {
        table: "write",
        title: "Writes to the leader and to all members",
        text: "Puts with values of 256 bytes: one client, and 1,000 clients on 100 connections.",
        charts: loads::write,
    },
    Section {
        table: "read",
        title: "Linearizable and serializable reads",
        text: "Reads of one key with a value of 256 bytes: one client, and 1,000 clients on 100 connections.",
        charts: loads::read,
    },
    Section {
        table: "mixed",
        title: "Reads while more and more is written",
        text: "Linearizable reads of 100 clients, as fast as they are answered, while puts are sent at a rate that is set.",
        charts: mixed::charts,
    },
    Section {
        table: "large",
        title: "Values of one megabyte",
        text: "Puts and linearizable reads of one key with a value of 1,000,000 bytes.",
        charts: loads::large,
    },
    Section {
        table: "auth",
        title: "Logging in",
        text: "Authenticate with the right password, again and again.",
        charts: loads::auth,
    },
    Section {
        table: crate::compare::TABLE,
        title: "A beside B",
        text: "Both were measured on the same machine in turn, in changing order. Each ratio is of one pair: the median of them, and the \
               smallest and largest.",
        charts: compared::charts,
    },
];

/// A percentile's name, and the percentile.
type Percentile = (&'static str, fn(&Latency) -> f64);

/// The percentiles that are drawn.
const PERCENTILES: [Percentile; 4] = [
    ("p50", |latency| latency.p50),
    ("p90", |latency| latency.p90),
    ("p99", |latency| latency.p99),
    ("p99.9", |latency| latency.p999),
];

/// Lines of percentiles over `steps`. `find` returns the row of a step in the run or in the baseline.
fn percentiles<'a, S>(steps: &[S], names: &[String; 2], find: impl Fn(usize, &S) -> Option<&'a Row>) -> Vec<Series> {
    let line = |which: usize, number: usize| {
        let (name, of) = PERCENTILES[number];
        let values: Vec<Option<f64>> =
            steps.iter().map(|step| Some(of(&find(which, step)?.result.latency_us?))).collect();
        let name = if which == 0 { name.to_owned() } else { format!("{name}, {}", names[1]) };
        Series { name, look: Look::Colour(number), is_dashed: which == 1, values }
    };
    let own = (0..PERCENTILES.len()).map(|number| line(0, number));
    // Two percentiles of the baseline are enough for a comparison.
    let others = [0, 2].into_iter().map(|number| line(1, number));
    own.chain(others).filter(|series| series.values.iter().any(Option::is_some)).collect()
}

/// The first, the middle and the last value, without repetition.
fn some_of<T: Copy + PartialEq>(all: &[T]) -> Vec<T> {
    let mut chosen: Vec<T> = Vec::new();
    for one in [all.first(), all.get(all.len() / 2), all.last()].into_iter().flatten() {
        if !chosen.contains(one) {
            chosen.push(*one);
        }
    }
    chosen
}

/// The lengths of key and value prefixes in the rows, sorted and thinned out by [`steps`].
fn sizes(rows: &[&Row]) -> Vec<(u64, u64)> {
    let of =
        |row: &&Row| Some((row.parameters.count("key_prefix_bytes")?, row.parameters.count("value_prefix_bytes")?));
    steps(rows.iter().filter_map(of).collect())
}

/// The parameters that name a size.
const SIZED: [&str; 2] = ["key_prefix_bytes", "value_prefix_bytes"];

/// The number of clients, in words.
fn of_clients(clients: u64) -> String {
    if clients == 1 { "1 client".into() } else { format!("{} clients", count(clients)) }
}
