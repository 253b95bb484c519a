//! `endpoint`: health, status and hash of each member.

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{Flag, int, switch};
use crate::globals;
use crate::print::fields::Lines;
use crate::print::json::{Object, Style};
use crate::print::{self, Format, Printer, go, json, table};
use api::etcdserverpb::*;
use client::Endpoint;
use std::time::Instant;

/// For all commands of the group.
const CLUSTER: Flag = switch("cluster", "all members of the cluster, not only those of --endpoints");

pub(crate) const COMMAND: Command = group(
    "endpoint",
    "The members, one by one",
    &[
        command("health", "", "Checks whether the members are healthy", health).with(&[CLUSTER]),
        command("status", "", "Shows the state of the members", status).with(&[CLUSTER]),
        command("hashkv", "", "Compares what the members have stored", hash_kv)
            .with(&[CLUSTER, int("rev", "0", "up to this revision (0: all)")]),
    ],
);

/// The endpoints that are meant.
pub(super) fn targets(context: &Context) -> Outcome<Vec<Endpoint>> {
    if !context.parsed.switch("cluster") {
        return globals::endpoints(&context.parsed);
    }
    let client = context.client()?;
    let listed =
        context.call(client.member_list(MemberListRequest { linearizable: true })).map_err(|failure| Failure {
            text: format!("failed to fetch endpoints from etcd cluster member list: {}", failure.text),
            ..failure
        })?;
    let urls = listed.members.iter().flat_map(|member| &member.client_ur_ls);
    let parse = |url: &String| url.parse().map_err(|error| Failure::args(format!("{error}")));
    urls.map(parse).collect()
}

struct Health {
    endpoint: Endpoint,
    took: String,
    error: String,
}

fn health(context: &Context) -> Outcome {
    let printer = context.printer()?;
    let clients = targets(context)?.into_iter().map(|endpoint| Ok((context.client_of(&endpoint)?, endpoint)));
    let clients = clients.collect::<Outcome<Vec<_>>>()?;
    // A member that does not answer delays no other.
    let found = context.wait(async {
        let asked = clients.into_iter().map(|(client, endpoint)| tokio::spawn(Health::ask(client, endpoint)));
        let asked: Vec<_> = asked.collect();
        let mut found = Vec::with_capacity(asked.len());
        for asked in asked {
            found.push(asked.await.map_err(std::io::Error::from)?);
        }
        Ok::<_, Failure>(found)
    })?;
    show_health(printer, &found)?;
    let is_healthy = found.iter().all(|one| one.error.is_empty());
    if is_healthy { Ok(()) } else { Err(Failure::new(code::ERROR, "unhealthy cluster")) }
}

impl Health {
    async fn ask(client: client::Client, endpoint: Endpoint) -> Health {
        let started = Instant::now();
        // A key that any user may ask for: being refused is as good an answer.
        let asked = client.range(RangeRequest { key: "health".into(), ..Default::default() }).await;
        let mut error = match asked {
            Ok(_) => String::new(),
            Err(error) if error.is(api::Error::PermissionDenied) => String::new(),
            Err(error) => {
                if error.code() == Some(api::Code::DeadlineExceeded) {
                    flags::say!("{endpoint}: {error}");
                }
                Failure::from(error).text
            }
        };
        let took = go::duration(started.elapsed());
        if error.is_empty() {
            let request = AlarmRequest { action: alarm_request::AlarmAction::Get as i32, ..Default::default() };
            match client.alarm(request).await {
                Ok(answer) if answer.alarms.is_empty() => {}
                Ok(answer) => {
                    let names: Vec<&str> = answer.alarms.iter().map(|alarm| alarm.alarm().as_str_name()).collect();
                    error = format!("Active Alarm(s): {}", names.join(", "));
                }
                Err(_) => error = "Unable to fetch the alarm list".into(),
            }
        }
        Health { endpoint, took, error }
    }
}

fn show_health(printer: Printer, found: &[Health]) -> Outcome {
    match printer.format {
        Format::Simple => {
            for Health { endpoint, took, error } in found {
                if error.is_empty() {
                    let text = format!("{endpoint} is healthy: successfully committed proposal: took = {took}\n");
                    print::out(text.as_bytes())?;
                } else {
                    flags::say!("{endpoint} is unhealthy: failed to commit proposal: {error}");
                }
            }
        }
        Format::Fields => {
            let mut lines = Lines::new();
            for one in found {
                lines.quoted("Endpoint", one.endpoint.as_str().as_bytes()).line("Health", one.error.is_empty());
                lines.line("Took", &one.took).line("Error", &one.error).empty();
            }
            print::out(lines.end().as_bytes())?;
        }
        Format::Json => {
            let object = |one: &Health| {
                let object = Object::default().text("endpoint", one.endpoint.as_str());
                let object = object.raw("health", one.error.is_empty()).text("took", &one.took);
                if one.error.is_empty() { object.end() } else { object.text("error", &one.error).end() }
            };
            printer.json(&format!("[{}]", found.iter().map(object).collect::<Vec<_>>().join(",")))?;
        }
        Format::Table => {
            let row = |one: &Health| {
                let health = one.error.is_empty().to_string();
                vec![one.endpoint.to_string(), health, one.took.clone(), one.error.clone()]
            };
            let rows: Vec<_> = found.iter().map(row).collect();
            print::out(table::draw(&["endpoint", "health", "took", "error"], &rows).as_bytes())?;
        }
        Format::Protobuf => return Err(printer.unsupported()),
    }
    Ok(())
}

/// The answers by endpoint, and the last failure.
type Answers<A> = (Vec<(Endpoint, A)>, Option<Failure>);

/// The answers of all endpoints. Failures are printed, and make the command fail.
fn ask_all<A>(
    context: &Context,
    what: &str,
    ask: impl Fn(&client::Client, &Endpoint) -> Outcome<A>,
) -> Outcome<Answers<A>> {
    // A failed login is reported before any member is asked.
    context.client()?;
    let (mut answers, mut last) = (Vec::new(), None);
    for endpoint in targets(context)? {
        let client = context.client_of(&endpoint)?;
        match ask(&client, &endpoint) {
            Ok(answer) => answers.push((endpoint, answer)),
            Err(failure) => {
                flags::say!("Failed to get the {what} of endpoint {endpoint} ({})", failure.text);
                last = Some(failure);
            }
        }
    }
    Ok((answers, last))
}

fn status(context: &Context) -> Outcome {
    let printer = context.printer()?;
    let ask = |client: &client::Client, endpoint: &Endpoint| context.call(client.status(endpoint, StatusRequest {}));
    let (answers, failed) = ask_all(context, "status", ask)?;
    match printer.format {
        Format::Simple => {
            let lines = answers.iter().map(|(endpoint, status)| row(endpoint, status).join(", ") + "\n");
            print::out(lines.collect::<String>().as_bytes())?;
        }
        Format::Table => {
            let headings = [
                "endpoint",
                "ID",
                "version",
                "storage version",
                "db size",
                "in use",
                "percentage not in use",
                "quota",
                "is leader",
                "is learner",
                "raft term",
                "raft index",
                "raft applied index",
                "errors",
                "downgrade target version",
                "downgrade enabled",
            ];
            let rows: Vec<_> = answers.iter().map(|(endpoint, status)| row(endpoint, status)).collect();
            print::out(table::draw(&headings, &rows).as_bytes())?;
        }
        Format::Fields => {
            let mut lines = Lines::with_hex_ids(printer.hex);
            answers.iter().for_each(|(endpoint, status)| fields(&mut lines, endpoint, status));
            print::out(lines.end().as_bytes())?;
        }
        Format::Json => {
            // IDs stay decimal here even with --hex, as in etcd's tool.
            let style = Style::default();
            let object = |(endpoint, status): &(Endpoint, StatusResponse)| {
                let status = json::message("etcdserverpb.StatusResponse", status, style);
                Object::default().text("Endpoint", endpoint.as_str()).raw("Status", status).end()
            };
            printer.json(&list(answers.iter().map(object)))?;
        }
        Format::Protobuf => return Err(printer.unsupported()),
    }
    // Everything was said where it failed.
    failed.map_or(Ok(()), |_| Err(Failure::new(code::ERROR, "")))
}

/// Go's empty list is no list.
fn list(objects: impl Iterator<Item = String>) -> String {
    let objects: Vec<String> = objects.collect();
    if objects.is_empty() { "null".into() } else { format!("[{}]", objects.join(",")) }
}

fn row(endpoint: &Endpoint, status: &StatusResponse) -> Vec<String> {
    let member = status.header.as_ref().map_or(0, |header| header.member_id);
    let (size, used) = (status.db_size.max(0), status.db_size_in_use.max(0));
    let unused = if size == 0 { 0 } else { ((size - used) as f64 / size as f64 * 100.0) as i64 };
    let downgrade = status.downgrade_info.clone().unwrap_or_default();
    vec![
        endpoint.to_string(),
        format!("{member:x}"),
        status.version.clone(),
        status.storage_version.clone(),
        go::bytes(size.unsigned_abs()),
        go::bytes(used.unsigned_abs()),
        format!("{unused}%"),
        go::bytes(status.db_size_quota.max(0).unsigned_abs()),
        (status.leader == member).to_string(),
        status.is_learner.to_string(),
        status.raft_term.to_string(),
        status.raft_index.to_string(),
        status.raft_applied_index.to_string(),
        status.errors.join(", "),
        downgrade.target_version,
        downgrade.enabled.to_string(),
    ]
}

fn fields(lines: &mut Lines, endpoint: &Endpoint, status: &StatusResponse) {
    let downgrade = status.downgrade_info.clone().unwrap_or_default();
    let errors: Vec<String> = status.errors.iter().map(|error| go::quote(error.as_bytes())).collect();
    lines.header(status.header.as_ref()).quoted("Version", status.version.as_bytes());
    lines.quoted("StorageVersion", status.storage_version.as_bytes());
    lines.line("DBSize", status.db_size).line("DBSizeInUse", status.db_size_in_use);
    lines.line("DBSizeQuota", status.db_size_quota).line("Leader", status.leader);
    lines.line("IsLearner", status.is_learner).line("RaftIndex", status.raft_index);
    lines.line("RaftAppliedIndex", status.raft_applied_index).line("Errors", format_args!("[{}]", errors.join(" ")));
    lines.quoted("Endpoint", endpoint.as_str().as_bytes());
    lines.quoted("DowngradeTargetVersion", downgrade.target_version.as_bytes());
    lines.line("DowngradeEnabled", downgrade.enabled).empty();
}

fn hash_kv(context: &Context) -> Outcome {
    let printer = context.printer()?;
    let revision = context.parsed.int("rev");
    let ask = |client: &client::Client, endpoint: &Endpoint| {
        context.call(client.hash_kv(endpoint, HashKvRequest { revision }))
    };
    let (answers, failed) = ask_all(context, "hash", ask)?;
    let row = |(endpoint, answer): &(Endpoint, HashKvResponse)| {
        vec![endpoint.to_string(), answer.hash.to_string(), answer.hash_revision.to_string()]
    };
    match printer.format {
        Format::Simple => {
            let lines = answers.iter().map(|answer| row(answer).join(", ") + "\n");
            print::out(lines.collect::<String>().as_bytes())?;
        }
        Format::Table => {
            let rows: Vec<_> = answers.iter().map(row).collect();
            print::out(table::draw(&["endpoint", "hash", "hash revision"], &rows).as_bytes())?;
        }
        Format::Fields => {
            let mut lines = Lines::new();
            for (endpoint, answer) in &answers {
                lines.header(answer.header.as_ref()).quoted("Endpoint", endpoint.as_str().as_bytes());
                lines.line("Hash", answer.hash).line("HashRevision", answer.hash_revision).empty();
            }
            print::out(lines.end().as_bytes())?;
        }
        Format::Json => {
            let object = |(endpoint, answer): &(Endpoint, HashKvResponse)| {
                let hash = json::message("etcdserverpb.HashKVResponse", answer, Style::default());
                Object::default().text("Endpoint", endpoint.as_str()).raw("HashKV", hash).end()
            };
            printer.json(&list(answers.iter().map(object)))?;
        }
        Format::Protobuf => return Err(printer.unsupported()),
    }
    failed.map_or(Ok(()), Err)
}
