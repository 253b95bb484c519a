//! Percentiles of a latency, from the median to the slowest thousandth, one strip for each load.

use super::super::numbers::{Unit, time_us};
use super::scale::Scale;
use super::svg::{Anchor, Svg};
use super::{Key, Look, WIDTH, figure};
use crate::runfile::Latency;

const TOP: f64 = 2.0;
const HEAD: f64 = 19.0;
const STRIP: f64 = 15.0;
const GAP: f64 = 6.0;
const BOTTOM: f64 = 22.0;
const EDGE: f64 = 14.0;

/// A chart of strips.
pub(in super::super) struct Strips<'a> {
    pub(in super::super) title: &'a str,
    /// The groups, each with its name.
    pub(in super::super) groups: Vec<(String, Vec<Strip>)>,
}

/// The latency of one load of one run.
pub(in super::super) struct Strip {
    pub(in super::super) name: String,
    pub(in super::super) look: Look,
    pub(in super::super) latency: Latency,
}

impl Strips<'_> {
    /// The figure; nothing if there is no strip.
    pub(in super::super) fn html(&self) -> String {
        let strips = || self.groups.iter().flat_map(|(_, strips)| strips);
        if strips().next().is_none() {
            return String::new();
        }
        let ends = strips().flat_map(|strip| [strip.latency.p50, strip.latency.p999]);
        let scale = Scale::log(ends, EDGE, WIDTH - EDGE);
        let heights = self.groups.iter().map(|(_, strips)| HEAD + STRIP * strips.len() as f64 + GAP);
        let bottom = TOP + heights.sum::<f64>();
        let mut svg = Svg::new(bottom + BOTTOM);
        for tick in scale.ticks() {
            let x = scale.place(tick);
            svg.rule("grid", (x, TOP + HEAD), (x, bottom));
            svg.text("tick", (x, bottom + 15.0), Anchor::Middle, &Unit::Time.short(tick));
        }
        let mut y = TOP;
        for (name, strips) in &self.groups {
            svg.text("group halo", (0.0, y + 14.0), Anchor::Start, name);
            y += HEAD;
            for strip in strips {
                draw(&mut svg, &scale, strip, y + STRIP / 2.0);
                y += STRIP;
            }
            y += GAP;
        }
        let mut legend: Vec<Key> = Vec::new();
        for strip in strips() {
            if !legend.iter().any(|key| key.name == strip.name) {
                legend.push(Key { name: strip.name.clone(), look: strip.look, is_dashed: false });
            }
        }
        figure(
            self.title,
            "large dot p50, small dots p90 and p99, end p99.9, log scale",
            &legend,
            &svg.element(self.title),
        )
    }
}

fn draw(svg: &mut Svg, scale: &Scale, strip: &Strip, y: f64) {
    let (class, latency) = (strip.look.class(), &strip.latency);
    let ends = [latency.p50, latency.p999].map(|us| scale.place(us));
    svg.rule(&format!("strip {class}"), (ends[0], y), (ends[1], y));
    svg.rule(&format!("strip {class}"), (ends[1], y - 4.0), (ends[1], y + 4.0));
    for us in [latency.p90, latency.p99] {
        svg.circle(&format!("dot {class}"), (scale.place(us), y), 2.4);
    }
    svg.circle(&format!("dot {class}"), (ends[0], y), 4.4);
    let lines = [
        strip.name.clone(),
        format!("p50 {}, p90 {}", time_us(latency.p50), time_us(latency.p90)),
        format!("p99 {}, p99.9 {}", time_us(latency.p99), time_us(latency.p999)),
        format!("mean {}, slowest {}", time_us(latency.mean), time_us(latency.max)),
    ];
    svg.tip((WIDTH / 2.0, y), (WIDTH, STRIP), &lines);
}
