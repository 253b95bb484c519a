//! Studies: many loads of `bench`, one after the other, the file that they are kept in, and a page of it.
//!
//! [`run`] is `cairn bench`: `sweep` measures the tables of published studies, `compare` two clusters in turn, and `report_page` makes
//! pages; every other command is etcd's `benchmark`, which `bench` has. `measure` runs one load between two looks at the servers,
//! `runfile` has the rows of a study, `published` the figures that stand beside them.

mod compare;
mod measure;
mod published;
mod report_page;
mod runfile;
mod sweep;
mod words;

/// The commands that read their own command lines, as the page of `cairn bench` lists them.
const STUDIES: [(&str, &str); 3] = [
    ("compare", "Two clusters in turn, and their ratios"),
    ("report", "One page with charts of runs"),
    ("sweep", "The tables of published studies in one go"),
];

/// Runs a command line of `cairn bench`, which is etcd's `benchmark` and studies; returns the exit code. `program` is
/// the name under which it was started.
pub fn run(program: &str, args: impl IntoIterator<Item = String>) -> i32 {
    let words: Vec<String> = args.into_iter().collect();
    let rest = words.iter().skip(1).cloned();
    match words.first().map(String::as_str) {
        Some("compare") => compare::run(rest),
        Some("report") => report_page::run(rest),
        Some("sweep") => sweep::run(rest),
        _ => bench::run_tool(bench::Program { name: program, others: &STUDIES }, &words),
    }
}

/// The page of `cairn bench`.
pub fn page() -> flags::Page {
    bench::page(bench::Program { name: "cairn bench", others: &STUDIES })
}
