//! Tables in frames, as etcd's tools draw them.

/// A table with a line of headings.
pub(crate) fn draw(headings: &[&str], rows: &[Vec<String>]) -> String {
    let headings: Vec<String> = headings.iter().map(|heading| heading.to_ascii_uppercase()).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| &row[column]).chain([&headings[column]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |left: &str, middle: &str, right: &str| {
        let parts: Vec<String> = widths.iter().map(|width| "─".repeat(width + 2)).collect();
        format!("{left}{}{right}\n", parts.join(middle))
    };
    let mut out = line("┌", "┬", "┐");
    let centred = |cell: &str, width: usize| {
        let space = width - cell.chars().count();
        format!("{}{cell}{}", " ".repeat(space / 2), " ".repeat(space - space / 2))
    };
    let cells: Vec<String> = headings.iter().zip(&widths).map(|(cell, width)| centred(cell, *width)).collect();
    out += &format!("│ {} │\n", cells.join(" │ "));
    out += &line("├", "┼", "┤");
    for row in rows {
        let aligned = row.iter().zip(&widths).map(|(cell, width)| {
            let space = " ".repeat(width - cell.chars().count());
            format!("{space}{cell}")
        });
        out += &format!("│ {} │\n", aligned.collect::<Vec<_>>().join(" │ "));
    }
    out + &line("└", "┴", "┘")
}
