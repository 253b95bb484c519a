//! Pages of runs that are unusual.

use super::view::View;
use super::{markdown, page, summary};
use crate::runfile::{Beside, Kind, Latency, Measured, Member, Parameters, Row, Run, Side, State};

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

/// Everything that can be said about `run` alone and beside itself; none of it may have a number that is none.
fn pages(run: &Run) -> Vec<String> {
    let mut pages = Vec::new();
    for baseline in [None, Some(run)] {
        let view = View { run, baseline };
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
        for page in
            [page::html(View { run: &run, baseline: None }), page::html(View { run: &run, baseline: Some(&run) })]
        {
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
    assert!(page.contains("cairn beside etcd") || page.contains("8.00x"), "the ratio is there");
    assert!(page.matches("<figure>").count() >= 6 && !page.contains("<script"));
}
