//! `watch -i`: lines of `watch [flags] key [end]`, each a watch of its own beside the others, and `progress`.

use super::{BAD_NUMBER, FLAGS, Variables, request, show};
use crate::command::Context;
use crate::commands::lock::stopped;
use crate::commands::words;
use crate::failure::{Failure, Outcome, code};
use crate::flags;
use crate::print::Printer;
use crate::raw;
use client::{Client, Watcher};
use std::io::{BufRead, Write};
use tokio::sync::{mpsc, watch};

pub(super) fn run(context: &Context, variables: &Variables) -> Outcome {
    let client = context.client_that_needs_a_leader()?;
    let printer = context.printer()?;
    let (lines, mut read) = mpsc::unbounded_channel();
    let reader = std::thread::Builder::new().name("stdin".into()).spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut line = Vec::new();
        while stdin.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            let end = line.strip_suffix(b"\n").unwrap_or(&line);
            let text = raw::text(end.strip_suffix(b"\r").unwrap_or(end));
            if lines.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    if let Err(error) = reader {
        return Err(Failure::new(code::ERROR, format!("cannot read lines: {error}")));
    }
    let (failed, mut failures) = mpsc::unbounded_channel();
    // Counts how often everybody was asked for progress.
    let (asked, ask) = watch::channel(0_u64);
    let mut stopped = std::pin::pin!(stopped());
    context.wait(async {
        loop {
            tokio::select! {
                line = read.recv() => {
                    let end = || Failure::new(code::INVALID_INPUT, "error reading watch request line: EOF");
                    match obey(&client, variables, &line.ok_or_else(end)?)? {
                        Order::Watch(watcher, program) => {
                            let (mut ask, failed) = (ask.clone(), failed.clone());
                            // What was asked before it was there is none of its business.
                            ask.mark_unchanged();
                            tokio::spawn(async move {
                                if let Err(failure) = follow(printer, *watcher, &program, ask).await {
                                    // Once the command has ended there is no receiver.
                                    let _ = failed.send(failure);
                                }
                            });
                        }
                        Order::Progress => asked.send_modify(|count| *count += 1),
                        Order::Nothing(text) => {
                            // If the output is gone there is nowhere to report that.
                            let _ = std::io::stderr().write_all(&raw::bytes(&(text + "\n")));
                        }
                    }
                }
                Some(failure) = failures.recv() => return Err(failure),
                () = &mut stopped => return Ok(()),
            }
        }
    })
}

/// What a line asks for.
enum Order {
    Watch(Box<Watcher>, Vec<String>),
    Progress,
    /// Nothing: why.
    Nothing(String),
}

fn obey(client: &Client, variables: &Variables, line: &str) -> Outcome<Order> {
    let words = words::split(line).unwrap_or_default();
    Ok(match words.split_first() {
        None => Order::Nothing(format!("Invalid command: {line} (watch and progress supported)")),
        Some((first, [])) if first == "watch" && variables.0.is_empty() => {
            Order::Nothing(format!("Invalid command {line} (command type or key is not provided)"))
        }
        Some((first, rest)) if first == "watch" => {
            let parsed = flags::parse(rest, FLAGS).map_err(|error| Failure::args(error.0))?;
            let found = match variables.arguments(&parsed) {
                Ok((args, program)) => request(&parsed, &args).map(|request| (request, program)),
                // No key: the next line may have one.
                Err(failure) if failure.text == BAD_NUMBER => Err(failure),
                Err(failure) => return Err(failure),
            };
            match found {
                Ok((request, program)) => Order::Watch(Box::new(client.watch(request)), program),
                Err(failure) => Order::Nothing(format!("Invalid command {line} ({})", failure.text)),
            }
        }
        Some((first, _)) if first == "progress" => Order::Progress,
        Some(_) => Order::Nothing(format!("Invalid command {line} (only support watch)")),
    })
}

/// Prints what one watch has to say until it ends.
async fn follow(printer: Printer, mut watcher: Watcher, program: &[String], mut ask: watch::Receiver<u64>) -> Outcome {
    loop {
        tokio::select! {
            watched = watcher.next() => match watched {
                Ok(watched) => {
                    show::show(printer, &watched)?;
                    show::run(&watched, program).await?;
                }
                Err(error) => return show::ended(printer, &watcher, &error),
            },
            Ok(()) = ask.changed() => watcher.request_progress().await?,
        }
    }
}
