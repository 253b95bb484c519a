//! The tables of the page as Markdown.

use super::facts::{Facts, facts, warnings};
use super::sections::SECTIONS;
use super::table::{Table, markdown_text};
use super::view::View;
use crate::published;

/// All tables of `view`.
pub(super) fn markdown(view: View<'_>) -> String {
    let run = view.run;
    let names: Vec<String> = run.sides.iter().map(|side| format!("{} ({})", side.name, side.version)).collect();
    let label = if run.label.is_empty() { "Benchmark" } else { &run.label };
    let mut text = format!(
        "# {}\n\n{}, measured {} by {}.\n",
        markdown_text(label),
        markdown_text(&names.join(" beside ")),
        markdown_text(&run.started),
        markdown_text(&run.tool),
    );
    for warning in warnings(view) {
        text.push_str(&format!("\n**{}**\n", markdown_text(&warning)));
    }
    text.push_str("\n## Where and how\n");
    for Facts { title, list } in facts(view) {
        text.push_str(&format!("\n{}:\n\n", markdown_text(&title)));
        for (name, value) in list {
            text.push_str(&format!("- {}: {}\n", markdown_text(&name), markdown_text(&value)));
        }
    }
    let mut is_published = false;
    for section in SECTIONS.iter().filter(|section| !view.rows(section.table).is_empty()) {
        text.push_str(&format!("\n## {}\n\n", section.title));
        if section.table == crate::compare::TABLE {
            text.push_str(&Table::compared(view).markdown());
            text.push('\n');
        }
        text.push_str(&Table::of(view, section.table).markdown());
        is_published |= view.rows(section.table).iter().any(|row| !published::figures(row).is_empty());
    }
    if is_published {
        text.push_str(&format!("\n\\* {}\n", published::CAVEAT));
    }
    text
}
