//! `lease`.

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{PARSE_INT, decimal, hex, switch};
use crate::print::fields::Lines;
use crate::print::json::{self, Object, Style};
use crate::print::{self, Format, Printer, go};
use api::etcdserverpb::*;

pub(crate) const COMMAND: Command = group(
    "lease",
    "Leases",
    &[
        command("grant", "<seconds>", "Makes a lease", grant),
        command("revoke", "<lease>", "Ends a lease and deletes its keys", revoke),
        command("timetolive", "<lease>", "Shows what is left of a lease", time_to_live)
            .with(&[switch("keys", "the keys that hang on it as well")]),
        command("list", "", "Lists the leases", list),
        command("keep-alive", "<lease>", "Keeps a lease alive until it is stopped", keep_alive)
            .with(&[switch("once", "once, then end")]),
    ],
);

fn id(context: &Context, what: &str) -> Outcome<i64> {
    let [id] = context.args() else {
        return Err(Failure::args(format!("lease {what} command needs lease ID as argument")));
    };
    hex(id, PARSE_INT).map_err(|why| Failure::args(format!("bad lease ID arg ({why}), expecting ID in Hex")))
}

fn grant(context: &Context) -> Outcome {
    let [ttl] = context.args() else { return Err(Failure::args("lease grant command needs TTL argument")) };
    let ttl = decimal(ttl).map_err(|why| Failure::args(format!("bad TTL ({why})")))?;
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context
        .call(client.lease_grant(LeaseGrantRequest { ttl, id: 0 }))
        .map_err(|failure| Failure { text: format!("failed to grant lease ({})", failure.text), ..failure })?;
    match printer.format {
        Format::Json => {
            let object = header(answer.header.as_ref()).raw("ID", answer.id).raw("TTL", answer.ttl);
            printer.json(&object.text("Error", &answer.error).end())
        }
        _ => {
            let simple = || format!("lease {:016x} granted with TTL({}s)\n", answer.id, answer.ttl).into_bytes();
            let fields = || lines(printer, answer.header.as_ref(), &[("ID", answer.id), ("TTL", answer.ttl)]).end();
            printer.answer("etcdserverpb.LeaseGrantResponse", &answer, Some(&simple), Some(&fields))
        }
    }
}

fn revoke(context: &Context) -> Outcome {
    if context.args().len() != 1 {
        return Err(Failure::args("lease revoke command needs 1 argument"));
    }
    let id = id(context, "revoke")?;
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context
        .call(client.lease_revoke(LeaseRevokeRequest { id }))
        .map_err(|failure| Failure { text: format!("failed to revoke lease ({})", failure.text), ..failure })?;
    let simple = || format!("lease {id:016x} revoked\n").into_bytes();
    let fields = || lines(printer, answer.header.as_ref(), &[]).end();
    printer.answer("etcdserverpb.LeaseRevokeResponse", &answer, Some(&simple), Some(&fields))
}

fn time_to_live(context: &Context) -> Outcome {
    if context.args().len() == 1 {
        // A format that does not exist is said before an ID that is none.
        context.printer()?;
    }
    let (id, keys) = (id(context, "timetolive")?, context.parsed.switch("keys"));
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.lease_time_to_live(LeaseTimeToLiveRequest { id, keys }))?;
    match printer.format {
        Format::Json => {
            let keys: Vec<String> = answer.keys.iter().map(|key| format!("\"{}\"", go::base64(key))).collect();
            let keys = if keys.is_empty() { "null".to_string() } else { format!("[{}]", keys.join(",")) };
            let object = header(answer.header.as_ref()).raw("id", answer.id).raw("ttl", answer.ttl);
            printer.json(&object.raw("granted-ttl", answer.granted_ttl).raw("keys", keys).end())
        }
        _ => {
            let simple = || simple_time_to_live(&answer, keys);
            let fields = || {
                let named = [("ID", answer.id), ("TTL", answer.ttl), ("GrantedTTL", answer.granted_ttl)];
                let mut lines = lines(printer, answer.header.as_ref(), &named);
                for key in &answer.keys {
                    lines.quoted("Key", key);
                }
                lines.end()
            };
            // In protobuf etcd's tool writes the header alone.
            let header = answer.header.unwrap_or_default();
            printer.answer("etcdserverpb.ResponseHeader", &header, Some(&simple), Some(&fields))
        }
    }
}

fn simple_time_to_live(answer: &LeaseTimeToLiveResponse, keys: bool) -> Vec<u8> {
    if answer.granted_ttl == 0 && answer.ttl == -1 {
        return format!("lease {:016x} already expired\n", answer.id).into_bytes();
    }
    let (id, granted, left) = (answer.id, answer.granted_ttl, answer.ttl);
    let mut out = format!("lease {id:016x} granted with TTL({granted}s), remaining({left}s)").into_bytes();
    if keys {
        out.extend_from_slice(b", attached keys([");
        out.extend_from_slice(&answer.keys.join(&b' '));
        out.extend_from_slice(b"])");
    }
    out.push(b'\n');
    out
}

fn list(context: &Context) -> Outcome {
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.lease_leases(LeaseLeasesRequest {}))?;
    match printer.format {
        Format::Json => {
            let leases: Vec<String> = answer.leases.iter().map(|lease| format!("{{\"id\":{}}}", lease.id)).collect();
            printer.json(&header(answer.header.as_ref()).raw("leases", format!("[{}]", leases.join(","))).end())
        }
        _ => {
            let simple = || {
                let mut out = format!("found {} leases\n", answer.leases.len());
                for lease in &answer.leases {
                    go::put(&mut out, format_args!("{:016x}\n", lease.id));
                }
                out.into_bytes()
            };
            let fields = || {
                let named: Vec<_> = answer.leases.iter().map(|lease| ("ID", lease.id)).collect();
                lines(printer, answer.header.as_ref(), &named).end()
            };
            // In protobuf etcd's tool writes the header alone.
            let header = answer.header.unwrap_or_default();
            printer.answer("etcdserverpb.ResponseHeader", &header, Some(&simple), Some(&fields))
        }
    }
}

fn keep_alive(context: &Context) -> Outcome {
    let id = id(context, "keep-alive")?;
    let printer = context.printer()?;
    let client = context.patient_client_of_all()?;
    if context.parsed.switch("once") {
        let answer = context.wait(client.keep_alive_once(id)).map_err(|error| {
            let failure = Failure::from(error);
            Failure { code: code::BAD_CONNECTION, ..failure }
        })?;
        return kept(printer, &answer);
    }
    context.goes_on_beside()?;
    let _guard = context.enter();
    let mut keep_alive = client.keep_alive(id);
    while let Ok(answer) = context.wait(keep_alive.next_answer()) {
        kept(printer, &answer)?;
    }
    if printer.format == Format::Simple {
        print::out(format!("lease {id:016x} expired or revoked.\n").as_bytes())?;
    }
    Ok(())
}

fn kept(printer: Printer, answer: &LeaseKeepAliveResponse) -> Outcome {
    match printer.format {
        Format::Json => printer.json(&header(answer.header.as_ref()).raw("ID", answer.id).raw("TTL", answer.ttl).end()),
        _ => {
            let simple = || format!("lease {:016x} keepalived with TTL({})\n", answer.id, answer.ttl).into_bytes();
            let fields = || lines(printer, answer.header.as_ref(), &[("ID", answer.id), ("TTL", answer.ttl)]).end();
            printer.answer("etcdserverpb.LeaseKeepAliveResponse", answer, Some(&simple), Some(&fields))
        }
    }
}

/// The fields of the header, as the first of an object.
fn header(header: Option<&ResponseHeader>) -> Object {
    let text = json::message("etcdserverpb.ResponseHeader", &header.cloned().unwrap_or_default(), Style::default());
    Object::begin(text.trim_end_matches('}'))
}

/// The lines of the header, and those of numbers with their names.
fn lines(printer: Printer, header: Option<&ResponseHeader>, named: &[(&str, i64)]) -> Lines {
    let mut lines = Lines::with_hex_ids(printer.hex);
    lines.header(header);
    for (name, value) in named {
        match *name {
            "ID" if printer.hex => lines.line(name, format_args!("{value:016x}")),
            _ => lines.line(name, value),
        };
    }
    lines
}
