//! Ratios with their spread, around one.

use super::super::numbers::{Unit, ratio};
use super::scale::Scale;
use super::svg::{Anchor, Svg};
use super::{Look, WIDTH, figure};

const TOP: f64 = 6.0;
const LINE: f64 = 42.0;
const BOTTOM: f64 = 24.0;
const EDGE: f64 = 22.0;

/// A chart of ratios.
pub(in super::super) struct Ratios<'a> {
    pub(in super::super) title: &'a str,
    pub(in super::super) unit: &'a str,
    pub(in super::super) ratios: Vec<Ratio>,
}

/// One ratio, over all pairs.
pub(in super::super) struct Ratio {
    pub(in super::super) name: String,
    pub(in super::super) median: f64,
    pub(in super::super) least: f64,
    pub(in super::super) most: f64,
    pub(in super::super) look: Look,
}

impl Ratios<'_> {
    /// The figure; nothing if there is no ratio.
    pub(in super::super) fn html(&self) -> String {
        let drawn: Vec<&Ratio> = self.ratios.iter().filter(|ratio| ratio.median > 0.0).collect();
        if drawn.is_empty() {
            return String::new();
        }
        let ends = drawn.iter().flat_map(|ratio| [ratio.least, ratio.most]);
        let scale = Scale::log(ends.chain([0.5, 2.0]), EDGE, WIDTH - EDGE);
        let bottom = TOP + LINE * drawn.len() as f64;
        let mut svg = Svg::new(bottom + BOTTOM);
        for tick in scale.ticks() {
            let x = scale.place(tick);
            svg.rule("grid", (x, TOP), (x, bottom));
            svg.text("tick", (x, bottom + 16.0), Anchor::Middle, &Unit::Ratio.short(tick));
        }
        svg.rule("one", (scale.place(1.0), TOP), (scale.place(1.0), bottom));
        for (number, one) in drawn.iter().enumerate() {
            let y = TOP + LINE * number as f64;
            let class = one.look.class();
            let spread = format!("{}: {}", one.name, ratio(one.median));
            svg.text("group halo", (0.0, y + 14.0), Anchor::Start, &spread);
            let line = y + 27.0;
            svg.rule(&format!("spread {class}"), (scale.place(one.least), line), (scale.place(one.most), line));
            svg.circle(&format!("dot {class}"), (scale.place(one.median), line), 5.0);
            let lines = [
                one.name.clone(),
                format!("median {}, from {} to {}", ratio(one.median), ratio(one.least), ratio(one.most)),
            ];
            svg.tip((WIDTH / 2.0, y + LINE / 2.0), (WIDTH, LINE), &lines);
        }
        figure(self.title, self.unit, &[], &svg.element(self.title))
    }
}
