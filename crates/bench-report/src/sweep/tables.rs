//! The rows of each table.

use super::case::{Case, Target};
use super::options::Options;
use crate::measure::{Kind, Load};
use crate::published::points;
use crate::runfile::Parameters;

/// All tables, with a description of each.
pub(super) const TABLES: [(&str, &str); 7] = [
    ("put", "clients x queries x key prefix x value prefix"),
    ("get", "answers of 1 to 10,000 keys by prefix, up to 1,000 clients"),
    ("write", "puts to the leader, to all members, 1 and 1,000 clients"),
    ("read", "linearizable and serializable reads, the same"),
    ("mixed", "linearizable reads while more and more is written"),
    ("large", "values of 1 MB"),
    ("auth", "Authenticate"),
];

/// The prefix of all keys that the sweep writes.
pub(super) const OWN: &str = "cairn-bench/";
/// Queries of each client in the matrices.
const QUERIES: u64 = 10_000;
/// A number of clients without a published figure, which guides recommend to measure.
const MANY_CLIENTS: u64 = 1000;
/// Limit of the bytes of all clients' answers together: a server may hold each answer as a whole.
const ANSWERS_BYTES_MAX: u64 = 1 << 30;
/// The only size of puts in the published matrix without figures for all numbers of clients: there the space ran out.
const LARGEST_PUT: (u64, u64) = (1024, 2048);
const LARGE_VALUE_BYTES: usize = 1_000_000;
const VALUE_BYTES: usize = 256;
/// The sizes that `--quick` measures of the matrices.
const QUICK_SIZES: [(u64, u64); 3] = [(0, 8), (64, 128), (256, 512)];
const QUICK_GET_SIZE: (u64, u64) = (16, 32);
const QUICK_ANSWERS: [u64; 3] = [1, 100, 10_000];
/// Puts per second that are offered together with reads.
const WRITE_RATES: [u64; 8] = [0, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000];
const QUICK_WRITE_RATES: [u64; 4] = [0, 1_000, 5_000, 20_000];

/// The rows of all selected tables, in the order of measurement. With one endpoint there is no "all".
pub(super) fn cases(options: &Options) -> Vec<Case> {
    let of_table = |table: &&str| match *table {
        "put" => put(options),
        "get" => get(options),
        "write" => write(options),
        "read" => read(options),
        "mixed" => mixed(options),
        "large" => large(),
        _ => auth(options),
    };
    options.only.iter().flat_map(of_table).collect()
}

/// A key prefix of `bytes` bytes, which include the mark of the sweep's own keys.
fn prefix(table: char, bytes: u64) -> Vec<u8> {
    let mut prefix = format!("{OWN}{table}").into_bytes();
    while (prefix.len() as u64) < bytes {
        prefix.push(b'-');
    }
    prefix
}

/// Length of a value: like a key, it is a prefix of `prefix` bytes and a number.
fn value_bytes(prefix: u64) -> usize {
    prefix as usize + 9
}

fn put(options: &Options) -> Vec<Case> {
    let mut points = points("put", &["clients", "key_prefix_bytes", "value_prefix_bytes"]);
    points.push(vec![100, LARGEST_PUT.0, LARGEST_PUT.1]);
    points.retain(|point| !options.is_quick || QUICK_SIZES.contains(&(point[1], point[2])));
    let case = |point: &Vec<u64>| {
        let [clients, key, value] = point[..] else { return None };
        let parameters = Parameters::default()
            .with("clients", clients)
            .with("queries_per_client", QUERIES)
            .with("key_prefix_bytes", key)
            .with("value_prefix_bytes", value);
        let requests = clients * QUERIES;
        let load = Load::new(Kind::Put, prefix('p', key), value_bytes(value), requests).sequential();
        Some(Case { requests: Some(requests), needs_keys: false, ..plain("put", parameters, load, clients) })
    };
    points.iter().filter_map(case).collect()
}

/// A row of a matrix: each client has a connection of its own.
fn plain(table: &'static str, parameters: Parameters, load: Load, clients: u64) -> Case {
    Case {
        table,
        parameters,
        load,
        target: Target::All,
        connections: clients as usize,
        clients: clients as usize,
        requests: None,
        writes: None,
        needs_keys: true,
    }
}

fn get(options: &Options) -> Vec<Case> {
    let mut points = points("get", &["key_prefix_bytes", "value_prefix_bytes", "clients", "keys_per_answer"]);
    let many: Vec<Vec<u64>> = points
        .iter()
        .filter(|point| point[2] == 1)
        .map(|point| vec![point[0], point[1], MANY_CLIENTS, point[3]])
        .collect();
    points.extend(many);
    // Sorted by the size of keys, because the keys of each size must be written before.
    points.sort_by_key(|point| (point[0], point[1], point[2], point[3]));
    let is_wanted = |point: &Vec<u64>| {
        !options.is_quick || ((point[0], point[1]) == QUICK_GET_SIZE && QUICK_ANSWERS.contains(&point[3]))
    };
    points.retain(is_wanted);
    let case = |point: &Vec<u64>| {
        let [key, value, clients, keys] = point[..] else { return None };
        let parameters = Parameters::default()
            .with("clients", clients)
            .with("queries_per_client", QUERIES)
            .with("keys_per_answer", keys)
            .with("key_prefix_bytes", key)
            .with("value_prefix_bytes", value)
            .with("keys", options.get_keys);
        let load = Load::new(Kind::List { keys }, prefix('g', key), value_bytes(value), options.get_keys);
        let fits = clients < MANY_CLIENTS || load.answer_bytes() * clients <= ANSWERS_BYTES_MAX;
        fits.then(|| Case { requests: Some(clients * QUERIES), ..plain("get", parameters, load, clients) })
    };
    points.iter().filter_map(case).collect()
}

/// One client, and a thousand on a hundred connections: connections, clients, requests.
const CLIENTS: [(u64, u64, u64); 2] = [(1, 1, 10_000), (100, 1000, 100_000)];

fn targets(options: &Options) -> &'static [(Target, &'static str)] {
    let all = &[(Target::Leader, "leader"), (Target::All, "all")];
    if options.access.endpoints.len() > 1 { all } else { &all[..1] }
}

fn write(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for (connections, clients, requests) in CLIENTS {
        for (target, name) in targets(options) {
            let parameters = Parameters::default()
                .with("target", *name)
                .with("connections", connections)
                .with("clients", clients)
                .with("requests", requests);
            let load = Load::new(Kind::Put, prefix('w', 0), VALUE_BYTES, requests).sequential();
            let case = plain("write", parameters, load, clients);
            let connections = connections as usize;
            cases.push(Case { target: *target, connections, requests: Some(requests), needs_keys: false, ..case });
        }
    }
    cases
}

fn read(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for (connections, clients, requests) in CLIENTS {
        for (serializable, consistency) in [(false, "linearizable"), (true, "serializable")] {
            for (target, name) in targets(options) {
                let parameters = Parameters::default()
                    .with("consistency", consistency)
                    .with("target", *name)
                    .with("connections", connections)
                    .with("clients", clients)
                    .with("requests", requests);
                let load = Load::new(Kind::Range { serializable }, prefix('r', 0), VALUE_BYTES, 1);
                let case = plain("read", parameters, load, clients);
                cases.push(Case {
                    target: *target,
                    connections: connections as usize,
                    requests: Some(requests),
                    ..case
                });
            }
        }
    }
    cases
}

fn mixed(options: &Options) -> Vec<Case> {
    let rates = if options.is_quick { &QUICK_WRITE_RATES[..] } else { &WRITE_RATES };
    let case = |rate: &u64| {
        let parameters = Parameters::default()
            .with("writes_per_second", *rate)
            .with("connections", 100_u64)
            .with("clients", 100_u64);
        let load = Load::new(Kind::Range { serializable: false }, prefix('m', 0), VALUE_BYTES, 10_000);
        Case { writes: Some(*rate), ..plain("mixed", parameters, load, 100) }
    };
    rates.iter().map(case).collect()
}

fn large() -> Vec<Case> {
    let mut cases = Vec::new();
    for (operation, kind) in [("put", Kind::Put), ("range", Kind::Range { serializable: false })] {
        for (connections, clients, requests) in [(1_u64, 1_u64, 1_000_u64), (100, 1000, 10_000)] {
            // A thousand writers would only wait for each other.
            let (connections, clients, requests) =
                if kind == Kind::Put && clients > 1 { (10, 10, 1_000) } else { (connections, clients, requests) };
            let parameters = Parameters::default()
                .with("operation", operation)
                .with("value_bytes", LARGE_VALUE_BYTES as u64)
                .with("connections", connections)
                .with("clients", clients)
                .with("requests", requests);
            let load = Load::new(kind, prefix('l', 0), LARGE_VALUE_BYTES, 1);
            let case = plain("large", parameters, load, clients);
            let needs_keys = kind != Kind::Put;
            cases.push(Case { connections: connections as usize, requests: Some(requests), needs_keys, ..case });
        }
    }
    cases
}

fn auth(options: &Options) -> Vec<Case> {
    let case = |clients: u64| {
        let parameters = Parameters::default().with("connections", clients).with("clients", clients);
        let user = options.access.user.clone().unwrap_or_default();
        let load = Load { user, ..Load::new(Kind::Authenticate, Vec::new(), 0, 1) };
        Case { requests: Some(clients * QUERIES), needs_keys: false, ..plain("auth", parameters, load, clients) }
    };
    [1, 200].map(case).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::figures;
    use crate::runfile::{Measured, Row};

    fn cases_of(line: &str) -> Vec<Case> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        cases(&Options::parse(&words).expect("options"))
    }

    #[test]
    fn matrices_are_those_that_were_published() {
        let cases = cases_of("--out x --only put,get");
        let row = |case: &Case| Row {
            table: case.table.into(),
            parameters: case.parameters.clone(),
            result: Measured::default(),
        };
        let told =
            |table: &str| cases.iter().filter(|case| case.table == table && !figures(&row(case)).is_empty()).count();
        assert_eq!((told("put"), told("get")), (26, 120));
        assert_eq!(cases.iter().filter(|case| case.table == "put").count(), 27);
        let many = cases.iter().filter(|case| case.clients == 1000);
        assert!(
            many.clone().count() > 32 && many.clone().all(|case| case.load.answer_bytes() * 1000 <= ANSWERS_BYTES_MAX)
        );
        for case in &cases {
            let key = case.parameters.count("key_prefix_bytes").expect("all have one").max(13);
            assert_eq!(case.load.key_prefix.len() as u64, key);
            assert!(case.load.key_prefix.starts_with(OWN.as_bytes()));
        }
    }

    #[test]
    fn rows_are_distinct_and_all_members_need_several_endpoints() {
        for (line, wanted) in
            [("--out x --user a:b --endpoints a:1,b:2,c:3", 2), ("--out x --quick --user a:b --endpoints a:1", 1)]
        {
            let cases = cases_of(line);
            for (number, case) in cases.iter().enumerate() {
                let same = |other: &Case| other.table == case.table && other.parameters == case.parameters;
                assert!(!cases[..number].iter().any(same), "{line}: {:?}", case.parameters);
            }
            let writes = cases.iter().filter(|case| case.table == "write").count();
            assert_eq!(writes, 2 * wanted, "{line}");
            assert!(TABLES.iter().all(|(table, _)| cases.iter().any(|case| case.table == *table)), "{line}");
        }
    }
}
