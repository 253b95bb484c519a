//! The runs that a page is about, and looking for rows in them.

use super::text::clip;
use crate::published::AMOUNTS;
use crate::runfile::{Measured, Row, Run};

/// A name has no more letters than this in a legend.
const NAME_LETTERS_MAX: usize = 34;

/// A run, and the one it is held against.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) run: &'a Run,
    pub(super) baseline: Option<&'a Run>,
}

impl<'a> View<'a> {
    /// All rows of a table.
    pub(super) fn rows(self, table: &str) -> Vec<&'a Row> {
        self.run.rows.iter().filter(|row| row.table == table).collect()
    }

    /// Those of the run, and those of the baseline, that have something to show.
    pub(super) fn both(self, table: &str) -> [Vec<&'a Row>; 2] {
        [Some(self.run), self.baseline].map(|run| {
            let rows = run.into_iter().flat_map(|run| &run.rows);
            rows.filter(|row| row.table == table && shows(&row.result)).collect()
        })
    }

    /// The same row of the baseline, if it was measured there.
    pub(super) fn base(self, row: &Row) -> Option<&'a Row> {
        let wanted = row.parameters.without(&AMOUNTS);
        let mut rows = self.baseline?.rows.iter();
        rows.find(|own| own.table == row.table && own.parameters.without(&AMOUNTS) == wanted && shows(&own.result))
    }

    /// What both are called where they stand side by side.
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

/// Whether a row has something that can be drawn.
pub(super) fn shows(result: &Measured) -> bool {
    result.is_measured() && result.succeeded > 0 && result.rate > 0.0
}

/// All values of a parameter, ascending, each once.
pub(super) fn axis(rows: &[&Row], name: &str) -> Vec<u64> {
    let mut values: Vec<u64> = rows.iter().filter_map(|row| row.parameters.count(name)).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// The row with these parameters.
pub(super) fn at<'a>(rows: &[&'a Row], wanted: &[(&str, u64)]) -> Option<&'a Row> {
    let has = |row: &&&Row| wanted.iter().all(|(name, value)| row.parameters.count(name) == Some(*value));
    rows.iter().find(has).copied()
}

/// How many times the first is the second, if both are more than zero.
pub(super) fn ratio(own: Option<f64>, other: Option<f64>) -> Option<f64> {
    let (own, other) = (own?, other?);
    (own > 0.0 && other > 0.0).then(|| own / other).filter(|ratio| ratio.is_finite())
}
