//! Pages of runs that are unusual.

use super::view::{Partners, View};
use super::{markdown, page, summary};
use crate::runfile::{Beside, Disk, Kind, Latency, Measured, Member, Parameters, Row, Run, Side, State};

const EVIL: &str = "<script>alert(1)</script>\"'&|`\u{0}";

fn latency(us: f64) -> Latency {
    Latency { mean: us, p50: us, p90: us * 2.0, p99: us * 4.0, p999: us * 8.0, max: us * 16.0 }
}

fn measured(rate: f64, us: f64) -> Measured {
    let mut result = Measured { requests: 10, succeeded: 10, seconds: 1.0, rate, ..Measured::default() };
    result.latency_us = Some(latency(us));
    (result.server_cpu_us, result.client_cpu_us, result.server_memory_bytes) =
        (Some(us / 2.0), Some(1.0), Some(35_000_000));
    result
}

/// A row of each table, and several where a chart needs them. `twist` changes each.
fn rows(twist: impl Fn(usize, &mut Measured)) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut push = |table: &str, parameters: Parameters| {
        let mut result = measured(1000.0 + 10.0 * rows.len() as f64, 200.0);
        twist(rows.len(), &mut result);
        rows.push(Row { table: table.into(), parameters, result });
    };
    for clients in [1_u64, 10, 100] {
        for (key, value) in [(0_u64, 0_u64), (16, 32), (128, 256)] {
            let sizes =
                |parameters: Parameters| parameters.with("key_prefix_bytes", key).with("value_prefix_bytes", value);
            let clients = Parameters::default().with("clients", clients).with("queries_per_client", 10_000_u64);
            push("put", sizes(clients.clone()));
            for keys in [1_u64, 1000] {
                push("get", sizes(clients.clone().with("keys_per_answer", keys)));
            }
        }
    }
    for (connections, clients) in [(1_u64, 1_u64), (100, 1000)] {
        let of = |word: &str, value: &str| {
            let word = Parameters::default().with(word, value);
            word.with("connections", connections).with("clients", clients)
        };
        for target in ["leader", "all"] {
            push("write", of("target", target));
            push("read", of("consistency", "linearizable").with("target", target));
        }
        push("large", of("operation", "range"));
        push("auth", of("user", "root"));
    }
    for writes in [0_u64, 1000, 10_000] {
        push("mixed", Parameters::default().with("writes_per_second", writes).with("clients", 100_u64));
    }
    push("surprise", Parameters::default().with("new", "x"));
    rows
}

fn sweep(rows: Vec<Row>) -> Run {
    let member = Member { name: EVIL.into(), ..Member::default() };
    let side = Side { name: EVIL.into(), members: vec![member], endpoints: vec![EVIL.into()], ..Side::default() };
    let plan = Parameters::default().with(EVIL, EVIL);
    let mut run = Run::begin(Kind::Sweep, EVIL.into(), vec![EVIL.into()], plan, vec![side]);
    run.rows = rows;
    run
}

/// All outputs for `run` alone, and for `run` compared with itself. None may contain NaN or infinity.
fn pages(run: &Run) -> Vec<String> {
    let mut pages = Vec::new();
    for baseline in [None, Some(run)] {
        let partners = Partners::of(baseline);
        let view = View::new(run, baseline, &partners);
        pages.extend([page::html(view), markdown::markdown(view), summary::json(view).expect("plain data")]);
    }
    for page in &pages {
        for none in ["NaN", "inf\"", "inf ", "-inf", "e308"] {
            assert!(!page.contains(none), "`{none}` in a page");
        }
    }
    pages
}

#[test]
fn whole_runs_have_charts_and_nothing_gets_out_of_text() {
    let mut run = sweep(rows(|_, _| {}));
    let row = run.rows.iter_mut().find(|row| row.table == "mixed").expect("there is one");
    row.result.beside = Some(Beside { load: "put".into(), rate: 999.0, p99_us: None, errors: 0 });
    let pages = pages(&run);
    assert!(pages[0].matches("<figure>").count() > 20, "{}", pages[0].matches("<figure>").count());
    assert_eq!(pages[0].matches("<svg").count(), pages[0].matches("</svg>").count());
    assert!(!pages[0].contains("<script") && !pages[3].contains("<script"));
    assert!(!pages[1].replace("\\<", "").contains("<script"));
    assert!(!pages[0].contains("1.00x") && pages[3].contains("1.00x"), "ratios come with a baseline");
    assert!(pages[0].contains("44,341") && pages[0].contains("other machines"));
    for from in ["http://", "https://", "url(", "@import", "src="] {
        assert!(!pages[0].contains(from), "the page asks for something with `{from}`");
    }
}

#[test]
fn runs_with_little_in_them_have_pages() {
    assert!(pages(&sweep(Vec::new()))[0].contains("there is nothing to show"));
    for row in rows(|_, _| {}) {
        pages(&sweep(vec![row]));
    }
    let failed = rows(|number, result| {
        *result = match number % 3 {
            0 => Measured::without(State::Stopped, "the server is gone".into()),
            1 => Measured::without(State::LeftOut, "needs 3 GB".into()),
            _ => {
                let mut errors = Measured { requests: 5, seconds: 1.0, ..Measured::default() };
                errors.errors.insert("UNAVAILABLE".into(), 5);
                errors
            }
        };
    });
    let page = &pages(&sweep(failed))[0];
    assert!(!page.contains("<figure>") && page.contains("UNAVAILABLE 5") && page.contains("needs 3 GB"));
}

#[test]
fn values_may_be_as_large_or_small_as_numbers_are() {
    for (number, size) in [f64::MAX, 1e300, 1e-300, f64::MIN_POSITIVE, 0.0].into_iter().enumerate() {
        let run = sweep(rows(|row, result| {
            if row % 2 == number % 2 {
                (result.rate, result.latency_us) = (size, Some(latency(size.min(f64::MAX / 16.0))));
                (result.server_cpu_us, result.server_memory_bytes, result.requests) =
                    (Some(size), Some(u64::MAX), u64::MAX);
            }
        }));
        for baseline in [None, Some(&run)] {
            let page = page::html(View::new(&run, baseline, &Partners::of(baseline)));
            assert!(!page.contains("NaN") && !page.contains("inf"), "{size:e}");
        }
    }
}

#[test]
fn comparisons_have_ratios() {
    let mut run = sweep(Vec::new());
    run.kind = Kind::Compare;
    run.sides = ["cairn", "etcd"].map(|name| Side { name: name.into(), ..Side::default() }).into();
    for pair in 1..=3_u64 {
        for (side, rate) in [("A", 800.0), ("B", 100.0)] {
            let parameters = Parameters::default().with("load", EVIL).with("pair", pair).with("side", side);
            run.rows.push(Row { table: "compare".into(), parameters, result: measured(rate, 50.0) });
        }
    }
    let page = &pages(&run)[0];
    assert!(page.contains("cairn ÷ etcd"), "what is compared");
    assert!(page.contains("8.00x"), "the ratio");
    assert!(page.matches("<figure>").count() >= 6 && !page.contains("<script"));
}

#[test]
fn all_forms_say_where_and_how() {
    let mut run = sweep(rows(|_, _| {}));
    run.command = vec!["cairn".into(), "bench".into(), "--mark".into()];
    run.plan = Parameters::default().with("quick", "planned");
    run.disk = Some(Disk { path: "/data".into(), device: "sdx9".into(), ..Disk::default() });
    run.sides[0].version = "9.8.7".into();
    for page in pages(&run) {
        let page = page.replace('\\', "");
        for wanted in ["--mark", "planned", "sdx9", "9.8.7", run.machine.kernel.as_str(), run.tool.as_str()] {
            assert!(page.contains(wanted), "no `{wanted}` in {page:.1500}");
        }
    }
    let partners = Partners::of(None);
    let json: serde_json::Value =
        serde_json::from_str(&summary::json(View::new(&run, None, &partners)).expect("plain data")).expect("JSON");
    assert_eq!((json["kind"].as_str(), json["version"].as_u64()), (Some("sweep"), Some(1)));
}

#[test]
fn a_baseline_of_another_kind_is_told_of() {
    let mut run = sweep(rows(|_, _| {}));
    run.finished = Some(run.started.clone());
    run.plan = Parameters::default().with("quick", "no").with("keys_to_read", 1000_u64);
    let mut other = run.clone();
    let said = |other: &Run| {
        let partners = Partners::of(Some(other));
        let view = View::new(&run, Some(other), &partners);
        let said = super::facts::of_baseline(view).join("\n");
        for page in [page::html(view), markdown::markdown(view), summary::json(view).expect("plain data")] {
            assert_eq!(page.contains("under other conditions"), said.contains("under other conditions"));
        }
        said
    };
    assert_eq!(said(&other), "");
    other.plan = Parameters::default().with("quick", "yes").with("rate", 5_u64);
    other.sides[0].members.push(Member::default());
    (other.machine.cores, other.machine.cpu) = (999, "other".into());
    other.rows.pop();
    let text = said(&other);
    for wanted in [
        "quick no, baseline yes",
        "keys to read 1000, baseline nothing",
        "rate nothing, baseline 5",
        "members 1, baseline 2",
        "baseline 999",
        "baseline other",
        "1 of 43 rows have no partner",
    ] {
        assert!(text.contains(wanted), "no `{wanted}` in {text}");
    }
}

#[test]
fn many_different_rows_take_no_time() {
    let mut all = Vec::new();
    for number in 0..2000_u64 {
        let parameters = Parameters::default()
            .with("clients", number)
            .with("keys_per_answer", number)
            .with("key_prefix_bytes", number)
            .with("value_prefix_bytes", number)
            .with("writes_per_second", number)
            .with(&format!("other_{}", number % 100), number);
        for table in ["put", "get", "read", "mixed"] {
            all.push(Row { table: table.into(), parameters: parameters.clone(), result: measured(1.0, 1.0) });
        }
        let parameters = Parameters::default().with("load", format!("{number}")).with("pair", 1_u64).with("side", "A");
        all.push(Row { table: "compare".into(), parameters, result: measured(1.0, 1.0) });
    }
    let run = sweep(all);
    let begun = std::time::Instant::now();
    let pages = pages(&run);
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    assert!(pages[0].contains("more rows than the charts have room for"));
}

#[test]
fn tables_and_charts_are_told_to_those_who_do_not_see_them() {
    let page = &pages(&sweep(rows(|_, _| {})))[0];
    assert_eq!(page.matches("<svg class=\"chart\"").count(), page.matches("<desc>").count());
    assert!(page.contains("<desc>") && !page.contains("<desc></desc>"));
    assert!(!page.contains("<th>") && !page.contains("<th class") && page.contains("<th scope=\"col\""));
    assert_eq!(page.matches("<table>").count(), page.matches("<caption").count());
    assert_eq!(
        page.matches("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=").count(),
        page.matches("<table>").count()
    );
    assert!(page.contains("@media print"));
}

#[test]
fn nothing_is_written_over_what_it_is_made_of() {
    let dir = std::env::temp_dir().join(format!("cairn-report-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    for name in ["run.json", "base.json"] {
        crate::runfile::write(&dir.join(name), &sweep(rows(|_, _| {}))).expect("room");
    }
    std::os::unix::fs::symlink("base.json", dir.join("link")).expect("linked");
    let before = std::fs::read(dir.join("base.json")).expect("there");
    let make = |line: &str| {
        let words = line.split(' ').map(|word| if word.starts_with("--") { word.into() } else { dir.join(word) });
        super::make(words.map(|word| word.to_string_lossy().into_owned()).collect()).map_err(|error| error.to_string())
    };
    for (line, wanted) in [
        ("run.json --json ./run.json", "is a run, and would be replaced"),
        ("run.json --baseline link --markdown base.json", "is a run, and would be replaced"),
        ("base.json --out link", "is a run, and would be replaced"),
        ("run.json --out x --markdown y --json ./x", "is named twice"),
        ("run.json --markdown run.html", "is named twice"),
    ] {
        assert!(make(line).is_err_and(|error| error.contains(wanted)), "{line}");
    }
    assert_eq!(std::fs::read_dir(&dir).expect("a directory").count(), 3, "nothing was written");
    assert_eq!(std::fs::read(dir.join("base.json")).expect("there"), before);
    assert!(make("run.json --baseline link --out x --markdown y --json z").is_ok());
    std::fs::remove_dir_all(&dir).expect("ours");
}
