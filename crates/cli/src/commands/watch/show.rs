//! Printing the responses of a watch.

use crate::commands::lock::run_program;
use crate::failure::{Failure, Outcome, code};
use crate::print::fields::Lines;
use crate::print::json::{self, Object, Style};
use crate::print::{self, Format, Printer, go};
use crate::{raw, terminal};
use api::Message;
use api::etcdserverpb::WatchResponse;
use api::mvccpb::Event;
use client::{Error, Watched, Watcher};

/// Tells why a watch has ended.
pub(super) fn ended(printer: Printer, watcher: &Watcher, error: &Error) -> Outcome {
    let reason = match error {
        Error::Compacted { .. } => api::Error::Compacted.message().to_string(),
        Error::WatchCancelled(reason) => reason.clone(),
        other => other.to_string(),
    };
    flags::say!("watch was canceled ({reason})");
    watcher.cancellation().map_or(Ok(()), |answer| show_end(printer, answer))
}

/// Forms for programs show the end as well.
fn show_end(printer: Printer, answer: &WatchResponse) -> Outcome {
    // For a watch that never began, etcd's tool prints only that.
    let refused = WatchResponse { canceled: true, ..Default::default() };
    let answer = if answer.created { &refused } else { answer };
    match printer.format {
        Format::Fields => print::out(Lines::of_header(printer.hex, answer.header.as_ref()).as_bytes()),
        Format::Json => printer.json(&object(answer)),
        Format::Protobuf => print::out(&answer.encode_to_vec()),
        Format::Simple | Format::Table => Ok(()),
    }
}

/// An answer as etcd's tool writes it: its reason for an end stays empty.
fn object(answer: &WatchResponse) -> String {
    let header = json::message("etcdserverpb.ResponseHeader", &answer.header.unwrap_or_default(), Style::default());
    let message = |event: &Event| json::message("mvccpb.Event", event, Style::default());
    let events: Vec<String> = answer.events.iter().map(message).collect();
    let events = if events.is_empty() { "null".into() } else { format!("[{}]", events.join(",")) };
    let object = Object::default().raw("Header", header).raw("Events", events);
    let object = object.raw("CompactRevision", answer.compact_revision).raw("Canceled", answer.canceled);
    object.raw("Created", answer.created).text("CancelReason", "").end()
}

/// Prints what a watch has to say.
pub(super) fn show(printer: Printer, watched: &Watched) -> Outcome {
    if watched.events.is_empty() {
        print::out(format!("progress notify: {}\n", watched.revision).as_bytes())?;
    }
    match printer.format {
        Format::Simple => {
            let is_seen = terminal::is_seen() && !printer.hex;
            for event in &watched.events {
                if is_seen {
                    print::out(coloured(event).as_bytes())?
                } else {
                    print::out(&printer.simple_event(event))?
                }
            }
        }
        Format::Fields => {
            let mut lines = Lines::with_hex_ids(printer.hex);
            lines.header(Some(&watched.header));
            for event in &watched.events {
                lines.line("Type", event.r#type().as_str_name());
                if let Some(before) = &event.prev_kv {
                    lines.pair("Prev", before);
                }
                if let Some(kv) = &event.kv {
                    lines.pair("", kv);
                }
            }
            print::out(lines.end().as_bytes())?;
        }
        Format::Json | Format::Protobuf => {
            let header = Some(watched.header);
            let answer = WatchResponse { header, events: watched.events.clone(), ..Default::default() };
            match printer.format {
                Format::Json => printer.json(&object(&answer))?,
                _ => print::out(&answer.encode_to_vec())?,
            }
        }
        Format::Table => return Err(printer.unsupported()),
    }
    Ok(())
}

/// Runs `program` for each event. One that fails ends the watch.
pub(super) async fn run(watched: &Watched, program: &[String]) -> Outcome {
    for event in watched.events.iter().filter(|_| !program.is_empty()) {
        let kv = event.kv.clone().unwrap_or_default();
        let environment = [
            ("ETCD_WATCH_REVISION", watched.revision.to_string().into()),
            ("ETCD_WATCH_EVENT_TYPE", go::quote(event.r#type().as_str_name().as_bytes()).into()),
            ("ETCD_WATCH_KEY", go::quote(&kv.key).into()),
            ("ETCD_WATCH_VALUE", go::quote(&kv.value).into()),
        ];
        run_program(program, &environment).await.map_err(|failure| {
            let words: Vec<String> = program.iter().map(|word| go::quote(&raw::bytes(word))).collect();
            flags::say!("command [{}] error ({})", words.join(" "), failure.text);
            Failure::new(code::ERROR, "")
        })?;
    }
    Ok(())
}

/// For eyes: one line for an event.
fn coloured(event: &Event) -> String {
    let shown = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_string(),
        _ => go::quote(bytes),
    };
    let kv = event.kv.clone().unwrap_or_default();
    let (key, value) = (shown(&kv.key), shown(&kv.value));
    let before = event
        .prev_kv
        .as_ref()
        .map_or(String::new(), |before| format!("  \x1b[2m(was {})\x1b[0m", shown(&before.value)));
    match event.r#type().as_str_name() {
        "DELETE" => format!("\x1b[31mDELETE\x1b[0m  {:>8}  \x1b[36m{key}\x1b[0m{before}\n", kv.mod_revision),
        name => format!("\x1b[32m{name:<6}\x1b[0m  {:>8}  \x1b[36m{key}\x1b[0m  {value}{before}\n", kv.mod_revision),
    }
}
