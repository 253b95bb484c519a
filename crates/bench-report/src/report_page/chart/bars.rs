//! Bars that lie, in groups.

use super::super::numbers::Unit;
use super::scale::Scale;
use super::svg::{Anchor, Svg};
use super::{Key, Look, WIDTH, figure};

const TOP: f64 = 2.0;
const BAR: f64 = 15.0;
const HEAD: f64 = 20.0;
const GAP: f64 = 8.0;
/// Room for the value behind the longest bar.
const VALUE: f64 = 86.0;
/// Room for the tag behind the value.
const TAG: f64 = 112.0;

/// A chart of bars.
pub(in super::super) struct Bars<'a> {
    pub(in super::super) title: &'a str,
    pub(in super::super) unit: Unit,
    /// The groups, each with its name.
    pub(in super::super) groups: Vec<(String, Vec<Bar>)>,
}

/// One bar. Bars of the same name have the same look.
pub(in super::super) struct Bar {
    pub(in super::super) name: String,
    /// The text behind the value.
    pub(in super::super) tag: &'static str,
    pub(in super::super) look: Look,
    pub(in super::super) value: f64,
    /// Whether the true value was lower.
    pub(in super::super) is_bound: bool,
    /// Further lines of the tip.
    pub(in super::super) notes: Vec<String>,
}

impl Bars<'_> {
    /// The figure; nothing if there is no bar.
    pub(in super::super) fn html(&self) -> String {
        let bars = || self.groups.iter().flat_map(|(_, bars)| bars);
        if bars().next().is_none() {
            return String::new();
        }
        let room = if bars().any(|bar| !bar.tag.is_empty()) { VALUE + TAG } else { VALUE };
        let scale = Scale::linear(bars().map(|bar| bar.value), 0.0, WIDTH - room);
        let heights = self.groups.iter().map(|(_, bars)| HEAD + BAR * bars.len() as f64 + GAP);
        let mut svg = Svg::new(TOP + heights.sum::<f64>());
        let mut y = TOP;
        for (name, bars) in &self.groups {
            svg.text("group", (0.0, y + 14.0), Anchor::Start, name);
            y += HEAD;
            for bar in bars {
                let width = if scale.has(bar.value) { scale.place(bar.value).max(1.5) } else { 1.5 };
                svg.rect(&format!("bar {}", bar.look.class()), (0.0, y + 1.0), (width, BAR - 2.0), 2.0);
                let value = format!("{}{}", if bar.is_bound { "< " } else { "" }, self.unit.long(bar.value));
                let amount = format!("{value}  {}", bar.tag);
                svg.text("amount", (width + 6.0, y + BAR / 2.0 + 4.0), Anchor::Start, amount.trim_end());
                let mut lines = vec![format!("{}: {value}", bar.name)];
                lines.extend(bar.notes.iter().cloned());
                svg.tip((WIDTH / 2.0, y + BAR / 2.0), (WIDTH, BAR), &lines);
                y += BAR;
            }
            y += GAP;
        }
        let mut legend: Vec<Key> = Vec::new();
        for bar in bars() {
            if !legend.iter().any(|key| key.name == bar.name) {
                legend.push(Key { name: bar.name.clone(), look: bar.look, is_dashed: false });
            }
        }
        let unit = if self.unit == Unit::Rate { "per second" } else { "" };
        figure(self.title, unit, &legend, &svg.element(self.title))
    }
}
