//! The table of points, the code and the page say the same. Reads sources, so that it needs no feature.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Places and names of the table.
fn table() -> Vec<(String, String)> {
    let text = fs::read_to_string(top().join("crates/failpoint/src/points.rs")).expect("the table");
    let rows = text.lines().filter_map(|line| line.trim().strip_suffix("\";")?.split_once(" = \""));
    rows.map(|(place, name)| (place.to_string(), name.to_string())).collect()
}

fn sources(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(&path).expect("text"));
        }
    }
}

/// What the code outside of this crate names.
fn used() -> BTreeSet<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(top().join("crates")).expect("the crates") {
        let dir = entry.expect("an entry").path();
        if !dir.ends_with("failpoint") && dir.join("src").is_dir() {
            sources(&dir.join("src"), &mut texts);
        }
    }
    let mut used = BTreeSet::new();
    for text in &texts {
        for call in ["failpoint::point!(", "failpoint::text!(", "failpoint::fires!("] {
            for rest in text.split(call).skip(1) {
                let is_part = |char: char| char.is_ascii_uppercase() || char == '_';
                used.insert(rest.split(|char| !is_part(char)).next().unwrap_or_default().to_string());
            }
        }
    }
    used
}

#[test]
fn every_point_is_in_the_code_and_on_the_page() {
    let table = table();
    let names: BTreeSet<_> = table.iter().map(|(_, name)| name).collect();
    assert!(table.len() > 50 && names.len() == table.len(), "{} rows, {} names", table.len(), names.len());
    let places: BTreeSet<_> = table.iter().map(|(place, _)| place.clone()).collect();
    assert_eq!(used(), places);
    let page = fs::read_to_string(top().join("docs/failpoints.md")).expect("the page");
    for (_, name) in &table {
        assert!(page.contains(&format!("`{name}`")), "docs/failpoints.md does not say what `{name}` stands for");
    }
}
