//! Two servers on one machine.

use super::super::chart::{Bar, Bars, Look, Ratio, Ratios};
use super::super::numbers::{Unit, ratio};
use super::super::view::{STEPS_MAX, View};
use crate::compare::{METRICS, Metric, Spread, spreads};

pub(super) fn charts(view: View<'_>) -> Vec<String> {
    let spreads = spreads(view.run);
    let name = |side: usize| view.run.sides.get(side).map_or("?", |side| side.name.as_str());
    let unit = format!("{} ÷ {}, median and range, log scale", name(0), name(1));
    let mut charts = Vec::new();
    for (number, metric) in METRICS.into_iter().enumerate() {
        let ratios = of(&spreads, metric).map(|spread| Ratio {
            name: spread.load.clone(),
            median: spread.ratio,
            least: spread.least,
            most: spread.most,
            look: Look::Colour(number),
        });
        let title = format!("Ratio of {}", metric.name());
        charts.push(Ratios { title: &title, unit: &unit, ratios: ratios.collect() }.html());
    }
    for metric in METRICS {
        let unit = if metric == Metric::Rate { Unit::Rate } else { Unit::Time };
        let groups = of(&spreads, metric).map(|spread| {
            let bars = spread.sides.iter().enumerate().map(|(side, value)| Bar {
                name: name(side).to_owned(),
                tag: "",
                look: Look::Colour(side),
                value: *value,
                is_bound: false,
                notes: vec![format!("median of {} pairs, ratio {}", spread.pairs, ratio(spread.ratio))],
            });
            (spread.load.clone(), bars.collect())
        });
        let mut title = metric.name().to_owned();
        title[..1].make_ascii_uppercase();
        charts.push(Bars { title: &title, unit, groups: groups.collect() }.html());
    }
    charts
}

fn of(spreads: &[Spread], metric: Metric) -> impl Iterator<Item = &Spread> {
    spreads.iter().filter(move |spread| spread.metric == metric).take(STEPS_MAX)
}
