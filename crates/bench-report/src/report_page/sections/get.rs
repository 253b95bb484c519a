//! The matrix of reads by prefix.

use super::super::chart::{Heat, Lines, Look, Series};
use super::super::numbers::{Unit, count};
use super::super::view::{Index, View, axis, ratio};
use super::{SIZED, of_clients, percentiles, sizes};
use crate::published;
use crate::runfile::Row;

/// Sizes of answers are compared at this number of clients, or at the largest measured number below it.
const CLIENTS_SHOWN: u64 = 100;
const ACROSS: &str = "keys in an answer";

/// The rows of the matrix, and the values of its dimensions.
struct Matrix<'a> {
    view: View<'a>,
    /// The rows of the run and of the baseline, by clients, keys in an answer, key prefix and value prefix.
    rows: [Index<'a, 4>; 2],
    clients: Vec<u64>,
    answers: Vec<u64>,
    sizes: Vec<(u64, u64)>,
    /// The size that is shown in more detail.
    middle: (u64, u64),
    /// The number of clients that is shown in more detail.
    shown: u64,
}

pub(super) fn charts(view: View<'_>) -> Vec<String> {
    let Some(matrix) = Matrix::of(view) else { return Vec::new() };
    let mut charts = vec![
        matrix.throughput(),
        matrix.latency(),
        matrix.by_clients("Reads, clients x answers", Unit::Rate, |row| Some(row.result.rate)),
        matrix.by_clients("Reads beside the baseline", Unit::Ratio, |row| {
            ratio(Some(row.result.rate), view.base(row).map(|base| base.result.rate))
        }),
    ];
    if matrix.sizes.len() > 1 {
        charts.push(matrix.by_sizes());
    }
    charts
}

impl<'a> Matrix<'a> {
    /// `None` if there is nothing to draw.
    fn of(view: View<'a>) -> Option<Matrix<'a>> {
        let both = view.both("get");
        let [key, value] = SIZED;
        let rows = both.each_ref().map(|rows| Index::of(rows, ["clients", "keys_per_answer", key, value]));
        let (clients, answers) = (axis(&both[0], "clients"), axis(&both[0], "keys_per_answer"));
        let sizes = sizes(&both[0]);
        let middle = *sizes.get(sizes.len() / 2)?;
        let shown = clients.iter().copied().rfind(|clients| *clients <= CLIENTS_SHOWN).or(clients.first().copied())?;
        Some(Matrix { view, rows, clients, answers, sizes, middle, shown })
    }

    fn find(&self, which: usize, clients: u64, keys: u64, (key, value): (u64, u64)) -> Option<&'a Row> {
        self.rows[which].get([clients, keys, key, value])
    }

    fn steps(&self) -> Vec<String> {
        self.answers.iter().map(|keys| count(*keys)).collect()
    }

    /// A line for each number of clients, for the same of the baseline, and for the published figures.
    fn throughput(&self) -> String {
        let line = |of: &dyn Fn(u64) -> Option<f64>| self.answers.iter().map(|keys| of(*keys)).collect::<Vec<_>>();
        let mut series = Vec::new();
        for which in 0..=usize::from(self.view.baseline.is_some()) {
            for (number, clients) in self.clients.iter().enumerate() {
                let name = of_clients(*clients);
                series.push(Series {
                    name: if which == 0 { name } else { format!("{name}, {}", self.view.names()[1]) },
                    look: Look::Colour(number),
                    is_dashed: which == 1,
                    values: line(&|keys| Some(self.find(which, *clients, keys, self.middle)?.result.rate)),
                });
            }
        }
        let told = |keys| Some(published::figures(self.find(0, self.shown, keys, self.middle)?).first()?.rate);
        series.push(Series {
            name: format!("{}, etcd elsewhere", of_clients(self.shown)),
            look: Look::Published,
            is_dashed: true,
            values: line(&told),
        });
        series.retain(|series| series.values.iter().any(Option::is_some));
        let (key, value) = self.middle;
        let title = format!("Reads by keys in an answer, prefixes of {key} and {value} B");
        Lines { title: &title, unit: Unit::Rate, across: ACROSS, steps: self.steps(), series }.html()
    }

    fn latency(&self) -> String {
        let (key, value) = self.middle;
        let title = format!("Latency, {}, prefixes of {key} and {value} B", of_clients(self.shown));
        let series = percentiles(&self.answers, &self.view.names(), |which, keys| {
            self.find(which, self.shown, *keys, self.middle)
        });
        Lines { title: &title, unit: Unit::Time, across: ACROSS, steps: self.steps(), series }.html()
    }

    fn by_clients(&self, title: &str, unit: Unit, of: impl Fn(&Row) -> Option<f64>) -> String {
        let cell = |clients: u64, keys: &u64| of(self.find(0, clients, *keys, self.middle)?);
        Heat {
            title,
            unit,
            across: ACROSS,
            columns: self.steps(),
            down: "clients",
            rows: self.clients.iter().map(|clients| count(*clients)).collect(),
            cells: self.clients.iter().map(|all| self.answers.iter().map(|keys| cell(*all, keys)).collect()).collect(),
        }
        .html()
    }

    fn by_sizes(&self) -> String {
        let cell = |size, keys: &u64| Some(self.find(0, self.shown, *keys, size)?.result.rate);
        Heat {
            title: &format!("Reads, all sizes, {}", of_clients(self.shown)),
            unit: Unit::Rate,
            across: ACROSS,
            columns: self.steps(),
            down: "key + value prefix, B",
            rows: self.sizes.iter().map(|(key, value)| format!("{key}+{value}")).collect(),
            cells: self.sizes.iter().map(|size| self.answers.iter().map(|keys| cell(*size, keys)).collect()).collect(),
        }
        .html()
    }
}
