//! The runs that a page is about, and looking for rows in them.

use std::collections::{HashMap, HashSet};

use super::text::clip;
use crate::published::AMOUNTS;
use crate::runfile::{Measured, Row, Run};

/// Limit of the letters of a name in a legend.
const NAME_LETTERS_MAX: usize = 34;

/// Limit of steps, lines of a matrix or groups in a chart. The tables have all rows.
pub(super) const STEPS_MAX: usize = 12;

/// A run and its baseline.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) run: &'a Run,
    pub(super) baseline: Option<&'a Run>,
    partners: &'a Partners<'a>,
}

/// The rows of a baseline that can be drawn, by their table and parameters.
#[derive(Default)]
pub(super) struct Partners<'a>(HashMap<String, &'a Row>);

impl<'a> Partners<'a> {
    pub(super) fn of(baseline: Option<&'a Run>) -> Partners<'a> {
        let mut partners = HashMap::new();
        for row in baseline.into_iter().flat_map(|run| &run.rows).filter(|row| shows(&row.result)) {
            partners.entry(Self::name(row)).or_insert(row);
        }
        Partners(partners)
    }

    /// Table and parameters of a row, without the parameters that say only how much was done.
    fn name(row: &Row) -> String {
        format!("{} {:?}", row.table, row.parameters.without(&AMOUNTS))
    }
}

impl<'a> View<'a> {
    /// `partners` are the rows of `baseline`.
    pub(super) fn new(run: &'a Run, baseline: Option<&'a Run>, partners: &'a Partners<'a>) -> View<'a> {
        View { run, baseline, partners }
    }

    /// All rows of a table.
    pub(super) fn rows(self, table: &str) -> Vec<&'a Row> {
        self.run.rows.iter().filter(|row| row.table == table).collect()
    }

    /// The rows of the run, and those of the baseline, that can be drawn.
    pub(super) fn both(self, table: &str) -> [Vec<&'a Row>; 2] {
        [Some(self.run), self.baseline].map(|run| {
            let rows = run.into_iter().flat_map(|run| &run.rows);
            rows.filter(|row| row.table == table && shows(&row.result)).collect()
        })
    }

    /// The same row of the baseline, if it was measured there.
    pub(super) fn base(self, row: &Row) -> Option<&'a Row> {
        self.partners.0.get(&Partners::name(row)).copied()
    }

    /// The names of both runs where they are shown side by side.
    pub(super) fn names(self) -> [String; 2] {
        let name = |run: &Run, otherwise: &str| {
            let label = if run.label.trim().is_empty() { otherwise } else { run.label.trim() };
            clip(label, NAME_LETTERS_MAX)
        };
        let own = name(self.run, "this run");
        let other = self.baseline.map_or_else(String::new, |run| name(run, "baseline"));
        if own == other { ["this run".into(), "baseline".into()] } else { [own, other] }
    }
}

/// Whether a row can be drawn.
pub(super) fn shows(result: &Measured) -> bool {
    result.is_measured() && result.succeeded > 0 && result.rate > 0.0
}

/// The distinct values of a parameter in ascending order: all, or as many as a chart has room for.
pub(super) fn axis(rows: &[&Row], name: &str) -> Vec<u64> {
    steps(rows.iter().filter_map(|row| row.parameters.count(name)).collect())
}

/// The distinct values of `all` in ascending order, thinned out evenly to the number that a chart has room for.
pub(super) fn steps<T: Copy + Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all.dedup();
    if all.len() <= STEPS_MAX {
        return all;
    }
    (0..STEPS_MAX).map(|step| all[step * (all.len() - 1) / (STEPS_MAX - 1)]).collect()
}

/// Whether charts leave out some of these rows.
pub(super) fn is_thinned(rows: &[&Row]) -> bool {
    let mut values: HashMap<&str, HashSet<String>> = HashMap::new();
    for (name, value) in rows.iter().flat_map(|row| row.parameters.iter()) {
        if !AMOUNTS.contains(&name) {
            values.entry(name).or_default().insert(value.to_string());
        }
    }
    // Each row is a step of its own in charts of single loads.
    let is_flat = !values.contains_key("key_prefix_bytes") && rows.len() > STEPS_MAX && !values.contains_key("load");
    is_flat || values.values().any(|values| values.len() > STEPS_MAX)
}

/// Rows by the values of some parameters.
pub(super) struct Index<'a, const N: usize>(HashMap<[u64; N], &'a Row>);

impl<'a, const N: usize> Index<'a, N> {
    pub(super) fn of(rows: &[&'a Row], names: [&str; N]) -> Index<'a, N> {
        let mut index = HashMap::new();
        for row in rows {
            let values = names.map(|name| row.parameters.count(name));
            if values.iter().all(Option::is_some) {
                index.entry(values.map(Option::unwrap_or_default)).or_insert(*row);
            }
        }
        Index(index)
    }

    pub(super) fn get(&self, values: [u64; N]) -> Option<&'a Row> {
        self.0.get(&values).copied()
    }
}

/// The ratio of the first to the second, if both are above zero.
pub(super) fn ratio(own: Option<f64>, other: Option<f64>) -> Option<f64> {
    let (own, other) = (own?, other?);
    (own > 0.0 && other > 0.0).then(|| own / other).filter(|ratio| ratio.is_finite())
}
