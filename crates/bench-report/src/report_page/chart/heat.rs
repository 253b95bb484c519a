//! A matrix, each cell coloured by its value.

use super::super::numbers::Unit;
use super::svg::{Anchor, Svg};
use super::{WIDTH, figure};

const LEFT: f64 = 62.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 44.0;
const CELL_HEIGHT: f64 = 38.0;
const CELL_WIDTH_MAX: f64 = 125.0;
/// How many colours there are.
const SHADES: usize = 9;
/// A ratio of this much has the strongest colour.
const RATIO_MAX: f64 = 8.0;

/// A chart of cells.
pub(in super::super) struct Heat<'a> {
    pub(in super::super) title: &'a str,
    pub(in super::super) unit: Unit,
    pub(in super::super) across: &'a str,
    pub(in super::super) columns: Vec<String>,
    pub(in super::super) down: &'a str,
    pub(in super::super) rows: Vec<String>,
    /// The values, row by row.
    pub(in super::super) cells: Vec<Vec<Option<f64>>>,
}

impl Heat<'_> {
    /// The figure; nothing if there is no value.
    pub(in super::super) fn html(&self) -> String {
        let values = || self.cells.iter().flatten().copied().flatten().filter(|value| value.is_finite());
        if values().next().is_none() || self.columns.is_empty() {
            return String::new();
        }
        let low = values().filter(|value| *value > 0.0).fold(f64::MAX, f64::min);
        let high = values().fold(0.0, f64::max);
        let height = TOP + CELL_HEIGHT * self.rows.len() as f64 + BOTTOM;
        let mut svg = Svg::new(height);
        let width = ((WIDTH - LEFT - 4.0) / self.columns.len() as f64).min(CELL_WIDTH_MAX);
        for (row, (name, cells)) in self.rows.iter().zip(&self.cells).enumerate() {
            let y = TOP + CELL_HEIGHT * row as f64;
            svg.text("tick", (LEFT - 8.0, y + CELL_HEIGHT / 2.0 + 4.0), Anchor::End, name);
            for (column, value) in cells.iter().enumerate() {
                let x = LEFT + width * column as f64;
                self.cell(&mut svg, (x, y), width, *value, (low, high));
                if let (Some(value), Some(across)) = (value, self.columns.get(column)) {
                    let lines =
                        [format!("{name} {}", self.down), format!("{across} {}", self.across), self.unit.long(*value)];
                    svg.tip((x + width / 2.0, y + CELL_HEIGHT / 2.0), (width - 2.0, CELL_HEIGHT - 2.0), &lines);
                }
            }
        }
        let below = TOP + CELL_HEIGHT * self.rows.len() as f64;
        for (column, name) in self.columns.iter().enumerate() {
            svg.text("tick", (LEFT + width * (column as f64 + 0.5), below + 16.0), Anchor::Middle, name);
        }
        let middle = LEFT + width * self.columns.len() as f64 / 2.0;
        svg.text("label", (middle, height - 6.0), Anchor::Middle, self.across);
        let unit = match self.unit {
            Unit::Ratio => format!("this run ÷ baseline, by {}", self.down),
            _ => format!("per second, by {}", self.down),
        };
        figure(self.title, &unit, &[], &svg.element(self.title))
    }

    fn cell(&self, svg: &mut Svg, (x, y): (f64, f64), width: f64, value: Option<f64>, (low, high): (f64, f64)) {
        let size = (width - 2.0, CELL_HEIGHT - 2.0);
        let middle = (x + width / 2.0, y + CELL_HEIGHT / 2.0 + 4.0);
        let Some(value) = value.filter(|value| value.is_finite()) else {
            svg.rect("none", (x + 1.0, y + 1.0), size, 3.0);
            svg.text("tick", middle, Anchor::Middle, "–");
            return;
        };
        let share = match self.unit {
            Unit::Ratio => 0.5 + value.max(1e-9).ln() / RATIO_MAX.ln() / 2.0,
            _ if value <= 0.0 || high <= low => 0.5,
            _ => (value / low).ln() / (high / low).ln(),
        };
        let shade = (share.clamp(0.0, 1.0) * (SHADES - 1) as f64).round() as usize;
        let kind = if self.unit == Unit::Ratio { 'd' } else { 'h' };
        svg.rect(&format!("cell {kind}{shade}"), (x + 1.0, y + 1.0), size, 3.0);
        let text = self.unit.short(value);
        if text.chars().count() as f64 * 7.2 <= width {
            svg.text(&format!("value {kind}{shade}t"), middle, Anchor::Middle, &text);
        } else {
            svg.text(&format!("value small {kind}{shade}t"), middle, Anchor::Middle, &text);
        }
    }
}
