//! `observers`: those that follow a cluster without belonging to it.

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::globals;
use crate::print::json::Object;
use crate::print::{self, Format, table};
use api::etcdserverpb::MemberListRequest;
use client::Endpoint;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(crate) const COMMAND: Command = command("observers", "", "Lists the observers of the cluster", run).explained(
    "Members know only the observers that follow them, and observers those that follow them: all are asked, one after the other, for their\n\
     pages of metrics on the client port. An observer that cannot be reached is listed as what it follows tells of it.",
);

/// Processes that are asked at most.
const ASKED_MAX: usize = 4_096;
/// The series of the page that tell of observers.
const SENT: &str = "cairn_observer_sent_index{";

/// An observer, as what it follows tells of it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    id: String,
    name: String,
    client_urls: String,
    sent: String,
}

/// What is known of one observer.
struct Observer {
    seen: Seen,
    /// What it follows: a name, or an endpoint.
    follows: String,
    reached: bool,
}

fn run(context: &Context) -> Outcome {
    let format = context.printer()?.format;
    let client = context.client()?;
    let mut queue: VecDeque<(Endpoint, String, Option<String>)> = VecDeque::new();
    let listed = context.call(client.member_list(MemberListRequest { linearizable: false }));
    for member in listed.map(|listed| listed.members).unwrap_or_default() {
        let endpoint = member.client_ur_ls.iter().find_map(|url| url.parse::<Endpoint>().ok());
        queue.extend(endpoint.map(|endpoint| (endpoint, member.name.clone(), None)));
    }
    for endpoint in globals::endpoints(&context.parsed)? {
        let name = endpoint.as_str().to_string();
        queue.push_back((endpoint, name, None));
    }
    let mut observers: BTreeMap<String, Observer> = BTreeMap::new();
    let (mut asked, mut answers, mut last) = (BTreeSet::new(), 0_usize, String::new());
    while let Some((endpoint, name, id)) = queue.pop_front() {
        if asked.len() >= ASKED_MAX || !asked.insert(endpoint.as_str().to_string()) {
            continue;
        }
        let asking = context.client_of(&endpoint)?;
        let page = match context.wait(context.briefly(asking.page(&endpoint, "/metrics"))) {
            Ok(page) => page,
            Err(failure) => {
                last = failure.text;
                continue;
            }
        };
        answers += 1;
        if let Some(known) = id.and_then(|id| observers.get_mut(&id)) {
            known.reached = true;
        }
        for seen in page.lines().filter_map(read) {
            let urls: Vec<Endpoint> = seen.client_urls.split(',').filter_map(|url| url.parse().ok()).collect();
            for url in urls {
                queue.push_back((url, seen.name.clone(), Some(seen.id.clone())));
            }
            let follows = name.clone();
            observers.insert(seen.id.clone(), Observer { seen, follows, reached: false });
        }
    }
    if answers == 0 {
        return Err(Failure::new(code::BAD_CONNECTION, last));
    }
    print::out(shown(format, &observers)?.as_bytes())
}

fn shown(format: Format, observers: &BTreeMap<String, Observer>) -> Outcome<String> {
    let rows = observers.values().map(|observer| {
        let Observer { seen, follows, reached } = observer;
        let reached = if *reached { "yes" } else { "no" };
        [&seen.id, &seen.name, &seen.client_urls, follows, &seen.sent, reached].map(str::to_string).to_vec()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    match format {
        Format::Simple => Ok(rows.iter().map(|row| row.join(", ") + "\n").collect()),
        Format::Table => Ok(table::draw(&["id", "name", "client addrs", "follows", "sent index", "reached"], &rows)),
        Format::Json => {
            let object = |row: &Vec<String>| {
                let keys = ["id", "name", "client_urls", "follows", "sent_index", "reached"];
                keys.iter().zip(row).fold(Object::default(), |object, (key, value)| object.text(key, value)).end()
            };
            Ok(format!("[{}]\n", rows.iter().map(object).collect::<Vec<_>>().join(",")))
        }
        Format::Fields | Format::Protobuf => Err(Failure::new(code::BAD_FEATURE, "unsupported output format")),
    }
}

/// Reads one series of a page.
fn read(line: &str) -> Option<Seen> {
    let (labels, sent) = line.strip_prefix(SENT)?.rsplit_once("} ")?;
    let mut found = BTreeMap::new();
    let mut rest = labels;
    while let Some((name, quoted)) = rest.split_once("=\"") {
        let (mut value, mut characters) = (String::new(), quoted.char_indices());
        rest = loop {
            match characters.next()? {
                (at, '"') => break quoted.get(at + 1..)?.trim_start_matches(','),
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        found.insert(name, value);
    }
    let mut take = |name: &str| found.remove(name).unwrap_or_default();
    Some(Seen { id: take("id"), name: take("name"), client_urls: take("client_urls"), sent: sent.trim().to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_whatever_is_in_them() {
        let line = r#"cairn_observer_sent_index{id="1f",name="a\"b\\c, d} e",client_urls="http://x:1,http://y:2"} 77"#;
        let seen = read(line).expect("a series");
        assert_eq!((seen.id.as_str(), seen.name.as_str(), seen.sent.as_str()), ("1f", "a\"b\\c, d} e", "77"));
        assert_eq!(seen.client_urls, "http://x:1,http://y:2");
        for line in ["cairn_observers 1", "cairn_observer_sent_index{id=\"1", "cairn_observer_sent_index{} "] {
            assert!(read(line).is_none_or(|seen| seen.id.is_empty()), "{line}");
        }
    }
}
