//! Ratios of pairs, and how far they lie apart.

use std::collections::{BTreeMap, HashMap};

use crate::runfile::{Measured, Run};

/// The table of a comparison, with the parameters `load`, `pair` and `side`.
pub(crate) const TABLE: &str = "compare";
/// The values of `side`, in the order of `Run::sides`.
pub(crate) const SIDES: [&str; 2] = ["A", "B"];

/// A metric by which two servers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    Rate,
    P99,
    ServerCpu,
    ClientCpu,
}

/// All metrics, in the order of the output.
pub(crate) const METRICS: [Metric; 4] = [Metric::Rate, Metric::P99, Metric::ServerCpu, Metric::ClientCpu];

impl Metric {
    /// The metric's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Metric::Rate => "requests per second",
            Metric::P99 => "p99 latency",
            Metric::ServerCpu => "server CPU per request",
            Metric::ClientCpu => "client CPU per request",
        }
    }

    /// The metric's value in a row. `None` if nothing was measured, or nothing succeeded.
    fn of(self, row: &Measured) -> Option<f64> {
        let value = match self {
            _ if !row.is_measured() => None,
            Metric::Rate => Some(row.rate),
            Metric::P99 => row.latency_us.map(|latency| latency.p99),
            Metric::ServerCpu => row.server_cpu_us,
            Metric::ClientCpu => row.client_cpu_us,
        };
        value.filter(|value| *value > 0.0)
    }
}

/// A load and a metric over all pairs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) load: String,
    pub(crate) metric: Metric,
    /// Medians of both sides.
    pub(crate) sides: [f64; 2],
    /// Median of the pairs' ratios, A to B; the smallest and the largest of them.
    pub(crate) ratio: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) pairs: usize,
}

/// Values of one load by pair, of A and of B.
type Pairs<'a> = [BTreeMap<u64, &'a Measured>; 2];

/// The spreads of all loads of a comparison, load by load. Pairs with a missing side do not count.
pub(crate) fn spreads(run: &Run) -> Vec<Spread> {
    let mut loads: Vec<(&str, Pairs<'_>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for row in run.rows.iter().filter(|row| row.table == TABLE) {
        let load = row.parameters.text("load").unwrap_or_default();
        let place = *places.entry(load).or_insert_with(|| {
            loads.push((load, Pairs::default()));
            loads.len() - 1
        });
        let side = SIDES.iter().position(|side| row.parameters.text("side") == Some(side));
        if let (Some(side), Some(pair)) = (side, row.parameters.count("pair")) {
            loads[place].1[side].entry(pair).or_insert(&row.result);
        }
    }
    let each = loads.iter().flat_map(|load| METRICS.iter().map(move |metric| (load, *metric)));
    each.filter_map(|((load, pairs), metric)| spread(load, pairs, metric)).collect()
}

fn spread(load: &str, [a, b]: &Pairs<'_>, metric: Metric) -> Option<Spread> {
    let both = a.iter().filter_map(|(pair, own)| Some((metric.of(own)?, metric.of(b.get(pair)?)?)));
    let pairs: Vec<(f64, f64)> = both.collect();
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| a / b).collect();
    Some(Spread {
        load: load.to_owned(),
        metric,
        sides: [median(pairs.iter().map(|pair| pair.0))?, median(pairs.iter().map(|pair| pair.1))?],
        ratio: median(ratios.iter().copied())?,
        least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        most: ratios.iter().copied().fold(0.0, f64::max),
        pairs: pairs.len(),
    })
}

/// The middle of `values`; of an even number the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(f64::midpoint(values[last / 2], values[last.div_ceil(2)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runfile::{Kind, Parameters, Row, State};

    fn row(pair: u64, side: &str, rate: f64) -> Row {
        let parameters = Parameters::default().with("load", "put").with("pair", pair).with("side", side);
        Row { table: TABLE.into(), parameters, result: Measured { rate, ..Measured::default() } }
    }

    #[test]
    fn pairs_are_compared_with_each_other_alone() {
        let mut run = Run::begin(Kind::Compare, String::new(), vec![], Parameters::default(), vec![]);
        assert!(spreads(&run).is_empty());
        // The machine became slower, but the ratio stayed the same.
        for (pair, a, b) in [(1, 800.0, 100.0), (2, 400.0, 50.0), (3, 90.0, 10.0), (4, 70.0, 0.0)] {
            run.rows.push(row(pair, "A", a));
            run.rows.push(row(pair, "B", b));
        }
        run.rows.push(row(5, "A", 1e9));
        run.rows.push(Row { result: Measured::without(State::Stopped, String::new()), ..row(5, "B", 1.0) });
        let found = spreads(&run);
        assert_eq!(found.len(), 1);
        let Spread { sides, ratio, least, most, pairs, .. } = found[0];
        assert_eq!((sides, ratio, least, most, pairs), ([400.0, 50.0], 8.0, 8.0, 9.0, 3));
        assert_eq!(median([1.0, 4.0, 2.0, 3.0].into_iter()), Some(2.5));
    }
}
