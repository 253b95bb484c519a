//! Figures that others have published of etcd, measured on other machines: they say where a run stands, never which server is
//! faster.
//!
//! The two matrices are `sweep-put.csv` and `sweep-get.csv`, the rest is in `pages`. [`figures`] finds what belongs to a row.

mod pages;

use std::sync::LazyLock;

use crate::report_page::rate;
use crate::runfile::{Parameters, Row};

/// The caveat that must accompany every published figure.
pub(crate) const CAVEAT: &str = "Published figures of etcd were measured by others on other machines: they say where this run \
                                 stands, not which server is faster. `cairn bench compare` measures two servers on one machine.";

/// A published study: who measured, and on which machines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Study {
    /// The heading of a column.
    pub(crate) name: &'static str,
    pub(crate) setup: &'static str,
    /// Members of the measured cluster.
    pub(crate) members: usize,
}

/// A published figure for one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) study: &'static Study,
    /// Operations per second.
    pub(crate) rate: f64,
    /// The true rate was lower, and was not published.
    pub(crate) is_bound: bool,
    pub(crate) mean_us: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
}

impl Figure {
    /// The rate as text for a table.
    pub(crate) fn rate_words(&self) -> String {
        format!("{}{}", if self.is_bound { "< " } else { "" }, rate(self.rate))
    }
}

static SMALL_PROGRAM: Study = Study {
    name: "etcd, test program",
    setup: "a small test program, three members in containers on one i7-8700 (12 threads, 64 GB); \
            1 M keys where keys are read",
    members: 3,
};

/// A row of a matrix: table, parameters, rate.
type Point = (&'static str, Vec<(&'static str, u64)>, f64);

/// The rows of both matrices.
static MATRICES: LazyLock<Vec<Point>> = LazyLock::new(|| {
    let put = matrix("put", include_str!("sweep-put.csv"));
    put.chain(matrix("get", include_str!("sweep-get.csv"))).collect()
});

/// The rows of one file. The columns have the names of parameters, and the last is the rate.
fn matrix(table: &'static str, csv: &'static str) -> impl Iterator<Item = Point> {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    lines.filter_map(move |line| {
        let rate = line.rsplit(',').next()?.parse().ok()?;
        let fields = names.iter().zip(line.split(','));
        let known = fields.filter_map(|(name, text)| Some((*name, text.parse().ok()?)));
        Some((table, known.filter(|(name, _)| *name != "seconds").collect(), rate))
    })
}

/// Parameters that say only how much was done. Rows that differ only in these can be compared.
pub(crate) const AMOUNTS: [&str; 4] = ["queries_per_client", "requests", "keys", "pair"];

/// The published figures for `row`; none if it belongs to another table.
pub(crate) fn figures(row: &Row) -> Vec<Figure> {
    match row.table.as_str() {
        "put" | "get" => of_matrix(&row.table, &row.parameters).into_iter().collect(),
        _ => pages::figures(row),
    }
}

/// The figure of a study with the same number of members, if there is one.
pub(crate) fn nearest(row: &Row, members: usize) -> Option<Figure> {
    let all = figures(row);
    all.iter().rev().find(|figure| figure.study.members == members).or(all.last()).copied()
}

fn of_matrix(table: &str, parameters: &Parameters) -> Option<Figure> {
    let is_same = |(name, value): &(&str, u64)| AMOUNTS.contains(name) || parameters.count(name) == Some(*value);
    let names =
        |fields: &[(&'static str, u64)]| fields.iter().filter(|(name, _)| !name.ends_with("_per_second")).all(is_same);
    let (_, _, rate) = MATRICES.iter().find(|(own, fields, _)| *own == table && names(fields))?;
    Some(Figure { study: &SMALL_PROGRAM, rate: *rate, is_bound: false, mean_us: None, memory_bytes: None })
}

/// The points of a matrix: the values of `names` in every row.
pub(crate) fn points(table: &str, names: &[&str]) -> Vec<Vec<u64>> {
    let rows = MATRICES.iter().filter(|(own, _, _)| *own == table);
    let value =
        |fields: &[(&str, u64)], name: &str| fields.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
    rows.filter_map(|(_, fields, _)| names.iter().map(|name| value(fields, name)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runfile::Measured;

    #[test]
    fn rows_of_the_matrices_have_their_figures() {
        assert_eq!(points("put", &["clients", "key_prefix_bytes"]).len(), 26);
        assert_eq!(points("get", &["clients", "keys_per_answer"]).len(), 120);
        let parameters = Parameters::default()
            .with("clients", 100_u64)
            .with("queries_per_client", 7_u64)
            .with("keys_per_answer", 1000_u64)
            .with("key_prefix_bytes", 16_u64)
            .with("value_prefix_bytes", 32_u64);
        let mut row = Row { table: "get".into(), parameters, result: Measured::default() };
        assert_eq!(figures(&row).first().map(|figure| figure.rate), Some(1292.2));
        row.parameters = row.parameters.without(&["clients"]).with("clients", 1000_u64);
        assert!(figures(&row).is_empty());
    }
}
