//! `watch`.

use super::lock::{run_program, stopped};
use super::{keys, words};
use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{self, Flag, Parsed, int, switch};
use crate::print::json::{self, Object, Style};
use crate::print::{self, Format, Printer, go};
use crate::terminal;
use api::Message;
use api::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchResponse};
use api::mvccpb::Event;
use client::{Error, Watched};
use std::io::BufRead;

pub(crate) const COMMAND: Command =
    command("watch", "<key> [range_end] [-- program argument ...]", "Shows what happens to keys", run).with(FLAGS);

const FLAGS: &[Flag] = &[
    Flag { short: Some('i'), ..switch("interactive", "read watches from the standard input") },
    switch("prefix", "all keys that begin with the given one"),
    switch("from-key", "all keys from the given one on"),
    int("rev", "0", "from this revision on"),
    switch("prev-kv", "the pairs as they were before as well"),
    switch("progress-notify", "tell now and then how far the watch has come"),
];

fn run(context: &Context) -> Outcome {
    let printer = context.printer()?;
    let client = context.client()?;
    if context.parsed.switch("interactive") {
        return interactive(context, printer);
    }
    let (args, program) = match context.parsed.dash {
        Some(dash) => context.args().split_at(dash),
        None => (context.args(), &[][..]),
    };
    let request = request(&context.parsed, args)?;
    let mut watcher = client.watch(request);
    let ended = context.wait(async {
        loop {
            tokio::select! {
                watched = watcher.next() => match watched {
                    Ok(watched) => show(printer, &watched, program)?,
                    Err(error) => return Ok::<_, Failure>(Some(error)),
                },
                () = stopped() => return Ok(None),
            }
        }
    })?;
    match ended {
        None => Ok(()),
        Some(error) => Err(cancelled(&error)),
    }
}

fn cancelled(error: &Error) -> Failure {
    let reason = match error {
        Error::Compacted { .. } => api::Error::Compacted.message().to_string(),
        Error::WatchCancelled(reason) => reason.clone(),
        other => other.to_string(),
    };
    eprintln!("watch was canceled ({reason})");
    Failure::new(code::INTERRUPTED, "watch is canceled by the server")
}

/// What is watched: from the arguments, or from the environment.
fn request(parsed: &Parsed, args: &[String]) -> Outcome<WatchCreateRequest> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut args = args.to_vec();
    if args.is_empty() {
        args.extend(variable("ETCDCTL_WATCH_KEY"));
        args.extend(variable("ETCDCTL_WATCH_RANGE_END"));
    }
    if args.is_empty() || args.len() > 2 {
        return Err(Failure::args("bad number of arguments"));
    }
    let (key, range_end) = keys::range(parsed, &args, "watch")?;
    Ok(WatchCreateRequest {
        key,
        range_end,
        start_revision: parsed.int("rev"),
        prev_kv: parsed.switch("prev-kv"),
        progress_notify: parsed.switch("progress-notify"),
        ..Default::default()
    })
}

/// Lines of `watch [flags] key [end]`, each a watch of its own beside the others.
fn interactive(context: &Context, printer: Printer) -> Outcome {
    let client = context.client()?;
    let (lines, mut read) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    let (told, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let begin = |line: &str| -> Outcome {
        let words = words::split(line).ok_or_else(|| Failure::args(format!("invalid command {line}")))?;
        match words.split_first() {
            Some((first, rest)) if first == "watch" => {
                let parsed = flags::parse(rest, FLAGS).map_err(|failure| Failure::args(failure.text))?;
                let mut watcher = client.watch(request(&parsed, &parsed.args)?);
                let told = told.clone();
                tokio::spawn(async move {
                    loop {
                        let watched = watcher.next().await;
                        let is_last = watched.is_err();
                        if told.send(watched).is_err() || is_last {
                            return;
                        }
                    }
                });
                Ok(())
            }
            None => Ok(()),
            Some((other, _)) => Err(Failure::args(format!("invalid command {other} ({line})"))),
        }
    };
    context.wait(async {
        let mut is_open = true;
        loop {
            tokio::select! {
                line = read.recv(), if is_open => match line {
                    Some(line) => if let Err(failure) = begin(&line) { eprintln!("{}", failure.text); },
                    None => is_open = false,
                },
                Some(watched) = seen.recv() => match watched {
                    Ok(watched) => show(printer, &watched, &[])?,
                    Err(error) => return Err(cancelled(&error)),
                },
                () = stopped() => return Ok(()),
            }
        }
    })
}

fn show(printer: Printer, watched: &Watched, program: &[String]) -> Outcome {
    match printer.format {
        Format::Simple if watched.events.is_empty() => {
            print::out(format!("progress notify: {}\n", watched.revision).as_bytes())?;
        }
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
            let mut lines = crate::print::fields::Lines::new();
            lines.line("Revision", watched.revision);
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
        Format::Json => {
            let header = ResponseHeader { revision: watched.revision, ..Default::default() };
            let message = |event: &Event| json::message("mvccpb.Event", event, Style::default());
            let events: Vec<String> = watched.events.iter().map(message).collect();
            let object = Object::default()
                .raw("Header", json::message("etcdserverpb.ResponseHeader", &header, Style::default()))
                .raw("Events", if events.is_empty() { "null".into() } else { format!("[{}]", events.join(",")) });
            printer.json(&object.raw("CompactRevision", 0).raw("Canceled", false).raw("Created", false).end())?;
        }
        Format::Protobuf => {
            let header = Some(ResponseHeader { revision: watched.revision, ..Default::default() });
            let answer = WatchResponse { header, events: watched.events.clone(), ..Default::default() };
            print::out(&answer.encode_to_vec())?;
        }
        Format::Table => return Err(printer.unsupported()),
    }
    for event in watched.events.iter().filter(|_| !program.is_empty()) {
        let kv = event.kv.clone().unwrap_or_default();
        let environment = [
            ("ETCD_WATCH_REVISION", watched.revision.to_string()),
            ("ETCD_WATCH_EVENT_TYPE", go::quote(event.r#type().as_str_name().as_bytes())),
            ("ETCD_WATCH_KEY", go::quote(&kv.key)),
            ("ETCD_WATCH_VALUE", go::quote(&kv.value)),
        ];
        run_program(program, &environment)?;
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
