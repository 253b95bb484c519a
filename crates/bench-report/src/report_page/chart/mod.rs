//! Charts as SVG. Each is a `<figure>` that explains itself: title, unit, legend, and values that show under the pointer.
//!
//! A chart is as wide as a telephone and stands beside others where there is room, so that its letters are as large as those around it.

mod bars;
mod heat;
mod lines;
mod ratios;
mod scale;
mod strips;
mod svg;

pub(super) use bars::{Bar, Bars};
pub(super) use heat::Heat;
pub(super) use lines::{Lines, Series};
pub(super) use ratios::{Ratio, Ratios};
pub(super) use strips::{Strip, Strips};

use super::text::escape;

/// Width of all charts, in units of about one pixel.
const WIDTH: f64 = 440.0;
/// How many colours there are for series.
pub(super) const COLOURS: usize = 6;

/// The look of all elements of one name: a class of the style sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// One of the colours.
    Colour(usize),
    /// Published figures.
    Published,
}

impl Look {
    fn class(self) -> String {
        match self {
            Look::Colour(number) => format!("s{}", number % COLOURS),
            Look::Published => "pub".into(),
        }
    }
}

/// A line of the legend.
struct Key {
    name: String,
    look: Look,
    is_dashed: bool,
}

/// The whole figure around a drawing.
fn figure(title: &str, unit: &str, legend: &[Key], drawing: &str) -> String {
    let mut html = format!("<figure><figcaption><b>{}</b> <span>{}</span></figcaption>\n", escape(title), escape(unit));
    if legend.len() > 1 || legend.first().is_some_and(|key| key.look == Look::Published) {
        html.push_str("<div class=\"legend\">");
        for key in legend {
            let dash = if key.is_dashed { " dash" } else { "" };
            html.push_str(&format!(
                "<span><svg class=\"swatch\" width=\"22\" height=\"10\" aria-hidden=\"true\"><path class=\"line {}{dash}\" \
                 d=\"M1 5H21\"/></svg>{}</span>",
                key.look.class(),
                escape(&key.name)
            ));
        }
        html.push_str("</div>\n");
    }
    html.push_str(drawing);
    html.push_str("</figure>\n");
    html
}
