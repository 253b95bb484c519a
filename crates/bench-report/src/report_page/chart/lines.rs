//! Lines over steps of something.

use super::super::numbers::Unit;
use super::scale::Scale;
use super::svg::{Anchor, Svg};
use super::{Key, Look, WIDTH, figure};

const HEIGHT: f64 = 270.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// A chart of lines.
pub(in super::super) struct Lines<'a> {
    pub(in super::super) title: &'a str,
    pub(in super::super) unit: Unit,
    /// The label of the horizontal axis.
    pub(in super::super) across: &'a str,
    pub(in super::super) steps: Vec<String>,
    pub(in super::super) series: Vec<Series>,
}

/// One line: a value for each step, or none.
pub(in super::super) struct Series {
    pub(in super::super) name: String,
    pub(in super::super) look: Look,
    pub(in super::super) is_dashed: bool,
    pub(in super::super) values: Vec<Option<f64>>,
}

impl Lines<'_> {
    /// The figure; nothing if there is no value.
    pub(in super::super) fn html(&self) -> String {
        let values = self.series.iter().flat_map(|series| series.values.iter().copied().flatten());
        if values.clone().next().is_none() {
            return String::new();
        }
        let scale = Scale::fitting(values, HEIGHT - BOTTOM, TOP);
        let mut svg = Svg::new(HEIGHT);
        for tick in scale.ticks() {
            let y = scale.place(tick);
            svg.rule("grid", (LEFT, y), (WIDTH - RIGHT, y));
            svg.text("tick", (LEFT - 6.0, y + 4.0), Anchor::End, &self.unit.short(tick));
        }
        svg.rule("axis", (LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM));
        for (number, step) in self.steps.iter().enumerate() {
            svg.text("tick", (self.x(number), HEIGHT - BOTTOM + 17.0), Anchor::Middle, step);
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        svg.text("label", (middle, HEIGHT - 8.0), Anchor::Middle, self.across);
        // The first line is the most important one, so it is drawn last, on top.
        for series in self.series.iter().rev() {
            self.draw(&mut svg, &scale, series);
        }
        let is_drawn = |series: &&Series| series.values.iter().flatten().any(|value| scale.has(*value));
        let legend = self.series.iter().filter(is_drawn).map(|series| Key {
            name: series.name.clone(),
            look: series.look,
            is_dashed: series.is_dashed,
        });
        let unit = match self.unit {
            Unit::Rate => "per second",
            Unit::Time => "time",
            Unit::Ratio => "ratio",
        };
        let unit = if scale.is_log() { format!("{unit}, log scale") } else { unit.to_owned() };
        figure(self.title, &unit, &legend.collect::<Vec<_>>(), &svg.element(self.title))
    }

    fn x(&self, step: usize) -> f64 {
        let room = WIDTH - RIGHT - LEFT;
        LEFT + room * (step as f64 + 0.5) / self.steps.len().max(1) as f64
    }

    fn draw(&self, svg: &mut Svg, scale: &Scale, series: &Series) {
        let class = series.look.class();
        let dash = if series.is_dashed { " dash" } else { "" };
        let mut path = String::new();
        let mut is_drawing = false;
        for (step, value) in series.values.iter().enumerate() {
            let Some(value) = value.filter(|value| scale.has(*value)) else {
                is_drawing = false;
                continue;
            };
            let (x, y) = (self.x(step), scale.place(value));
            path.push_str(&format!("{}{x:.1} {y:.1}", if is_drawing { 'L' } else { 'M' }));
            is_drawing = true;
            svg.circle(&format!("dot {class}{dash}"), (x, y), if series.is_dashed { 2.6 } else { 3.6 });
            let step = self.steps.get(step).map_or("", String::as_str);
            let lines = [series.name.clone(), format!("{step} {}: {}", self.across, self.unit.long(value))];
            svg.tip((x, y), (18.0, 18.0), &lines);
        }
        svg.path(&format!("line {class}{dash}"), &path);
    }
}
