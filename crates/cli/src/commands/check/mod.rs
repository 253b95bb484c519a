//! `check`: whether a cluster keeps up with a load, and how much memory data takes.

mod datascale;
mod perf;
mod report;
mod writers;

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{Flag, switch, text};
use crate::print;
use api::etcdserverpb::{CompactionRequest, DefragmentRequest, DeleteRangeRequest, RangeRequest};
use bytes::Bytes;
use client::Client;
use std::hash::{BuildHasher, RandomState};

const COMPACT: Flag = switch("auto-compact", "compact the history afterwards");
const DEFRAG: Flag = switch("auto-defrag", "defragment the members afterwards");
const LOAD: Flag = text("load", "s", "how much: s(small), m(medium), l(large) or xl(xLarge)");

pub(crate) const COMMAND: Command = group("check", "Tests a cluster with a load", &[PERF, DATASCALE]);

pub(crate) const PERF: Command =
    command("perf", "", "Tests for a minute whether the cluster keeps up with writes", perf::run).with(&[
        LOAD,
        text("prefix", "/etcdctl-check-perf/", "what the keys begin with"),
        COMPACT,
        DEFRAG,
    ]);

pub(crate) const DATASCALE: Command =
    command("datascale", "", "Tells how much memory a member needs for data", datascale::run).with(&[
        LOAD,
        text("prefix", "/etcdctl-check-datascale/", "what the keys begin with"),
        COMPACT,
        DEFRAG,
    ]);

/// Place of the load in the tables.
fn load(context: &Context) -> Outcome<usize> {
    match context.parsed.text("load") {
        "s" | "small" => Ok(0),
        "m" | "medium" => Ok(1),
        "l" | "large" => Ok(2),
        "xl" | "xLarge" => Ok(3),
        other => Err(Failure::new(code::BAD_FEATURE, format!("unknown load option {other}"))),
    }
}

/// All keys that begin with what `--prefix` says.
fn range(context: &Context) -> (Bytes, Bytes) {
    let prefix = context.parsed.text("prefix");
    (Bytes::from(prefix.to_string()), client::prefix_end(prefix.as_bytes()))
}

/// Refuses to run where there are keys already; `quote` encloses the command to delete them in the message.
fn is_free(context: &Context, client: &Client, quote: &str) -> Outcome {
    let (key, range_end) = range(context);
    let found = context.call(client.range(RangeRequest { key, range_end, limit: 1, ..Default::default() }))?;
    if found.kvs.is_empty() {
        return Ok(());
    }
    let prefix = context.parsed.text("prefix");
    let text = format!("prefix {prefix:?} has keys. Delete with {quote}etcdctl del --prefix {prefix}{quote} first");
    Err(Failure::new(code::INVALID_INPUT, text))
}

/// Deletes the keys, and does what the flags ask for afterwards.
fn tidy(context: &Context, client: &Client) -> Result<(), client::Error> {
    let (key, range_end) = range(context);
    let answer = context.wait(client.delete_range(DeleteRangeRequest { key, range_end, prev_kv: false }))?;
    if context.parsed.switch("auto-compact") {
        let revision = answer.header.map_or(0, |header| header.revision);
        print_line(&format!("Compacting with revision {revision}"));
        context.wait(client.compact(CompactionRequest { revision, physical: true }))?;
        print_line(&format!("Compacted with revision {revision}"));
    }
    Ok(())
}

/// Gives space back, if a flag asks for that.
fn tidy_space(context: &Context, client: &Client) -> Outcome {
    if !context.parsed.switch("auto-defrag") {
        return Ok(());
    }
    for endpoint in client.endpoints() {
        print_line(&format!("Defragmenting {:?}", endpoint.as_str()));
        context.call(client.defragment(endpoint, DefragmentRequest {}))?;
        print_line(&format!("Defragmented {:?}", endpoint.as_str()));
    }
    Ok(())
}

/// A failure to print a result is ignored.
fn print_line(text: &str) {
    let _ = print::out(format!("{text}\n").as_bytes());
}

/// Keys as etcd's tool makes them: the prefix, a random number, and zeros up to the length.
struct Keys {
    prefix: String,
    bytes: usize,
    random: RandomState,
    number: u64,
}

impl Keys {
    fn new(context: &Context, bytes: usize) -> Keys {
        Keys { prefix: context.parsed.text("prefix").into(), bytes, random: RandomState::new(), number: 0 }
    }

    fn next(&mut self) -> Bytes {
        self.number += 1;
        let random = self.random.hash_one(self.number) | 1;
        let mut key = vec![0; self.prefix.len() + self.bytes];
        key[..self.prefix.len()].copy_from_slice(self.prefix.as_bytes());
        key[self.prefix.len()..self.prefix.len() + 8].copy_from_slice(&random.to_le_bytes());
        key.into()
    }
}
