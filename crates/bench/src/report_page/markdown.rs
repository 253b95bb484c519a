//! The tables of the page as Markdown.

use super::numbers::{bytes, count};
use super::sections::SECTIONS;
use super::table::{Table, markdown_text};
use super::view::View;
use crate::published;

/// All tables of `view`.
pub(super) fn markdown(view: View<'_>) -> String {
    let run = view.run;
    let names: Vec<String> = run.sides.iter().map(|side| format!("{} ({})", side.name, side.version)).collect();
    let label = if run.label.is_empty() { "Benchmark" } else { &run.label };
    let machine = &run.machine;
    let mut text = format!(
        "# {}\n\n{}, measured {} by {} on {}, {} cores, {}, {}.\n",
        markdown_text(label),
        markdown_text(&names.join(" beside ")),
        markdown_text(&run.started),
        markdown_text(&run.tool),
        markdown_text(&machine.cpu),
        count(machine.cores),
        bytes(machine.memory_bytes as f64),
        markdown_text(&machine.kernel),
    );
    if run.finished.is_none() {
        text.push_str("\nThe run is not finished: rows are missing.\n");
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
