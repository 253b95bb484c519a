//! Elements of SVG.

use std::fmt::Write;

use super::super::text::{clip, escape};
use super::WIDTH;

/// Width of a letter of a tip, rounded up.
const LETTER: f64 = 6.6;
const TIP_LINE: f64 = 16.0;
const TIP_LETTERS_MAX: usize = 60;

/// A drawing. The tips under the pointer are kept apart, because they must be above everything else.
pub(super) struct Svg {
    height: f64,
    body: String,
    tips: String,
    /// The texts of the tips.
    told: Vec<String>,
}

/// The alignment of text to its position.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(super) fn new(height: f64) -> Svg {
        Svg { height, body: String::new(), tips: String::new(), told: Vec::new() }
    }

    pub(super) fn path(&mut self, class: &str, points: &str) {
        self.add(format_args!("<path class=\"{class}\" d=\"{points}\"/>\n"));
    }

    pub(super) fn rule(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.path(class, &format!("M{:.1} {:.1}L{:.1} {:.1}", from.0, from.1, to.0, to.1));
    }

    pub(super) fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), round: f64) {
        let (width, height) = (width.max(0.0), height.max(0.0));
        self.add(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{round}\"/>\n"
        ));
    }

    pub(super) fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        self.add(format_args!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>\n"));
    }

    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        self.add(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"
        ));
    }

    /// Shows `lines` while the pointer is over the area around a point.
    pub(super) fn tip(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), lines: &[String]) {
        self.told.push(lines.join(", "));
        let lines: Vec<String> = lines.iter().map(|line| clip(line, TIP_LETTERS_MAX)).collect();
        let letters = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        let (wide, high) = (letters as f64 * LETTER + 16.0, lines.len() as f64 * TIP_LINE + 8.0);
        let left = (x - wide / 2.0).min(WIDTH - wide - 2.0).max(2.0);
        let above = y - height / 2.0 - high - 4.0;
        let top = if above < 0.0 { y + height / 2.0 + 4.0 } else { above };
        let mut tip = format!(
            "<g class=\"hit\"><rect class=\"area\" x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\"/>\
             <g class=\"tip\"><rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" rx=\"4\"/>",
            x - width / 2.0,
            y - height / 2.0
        );
        for (number, line) in lines.iter().enumerate() {
            let (at, line) = (top + 16.0 + number as f64 * TIP_LINE, escape(line));
            tip.push_str(&format!("<text x=\"{:.1}\" y=\"{at:.1}\">{line}</text>", left + 8.0));
        }
        tip.push_str("</g></g>\n");
        self.tips.push_str(&tip);
    }

    /// The element. `label` describes the drawing for screen readers, which also get all values. (A `title` would show
    /// under the pointer, over the values.)
    pub(super) fn element(self, label: &str) -> String {
        format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">\n<desc>{}</desc>\n{}{}</svg>\n",
            self.height,
            escape(label),
            escape(&self.told.join("; ")),
            self.body,
            self.tips
        )
    }

    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        // This cannot fail: it writes to a string.
        let _ = self.body.write_fmt(text);
    }
}
