//! `keys usage`: what fills the database, found out from the client side.

mod shown;
mod tally;

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{duration, int, switch, text};
use crate::print::{self, Format};
use crate::raw;
use crate::{globals, print::go};
use api::etcdserverpb::{RangeRequest, RangeResponse, StatusRequest, StatusResponse};
use bytes::Bytes;
use client::{Client, Endpoint};
use std::time::{Duration, Instant};
use tally::Tally;

pub(crate) const COMMAND: Command = group(
    "keys",
    "What the keys are and take",
    &[command("usage", "[prefix]", "Says which keys fill the database", run)
        .with(&[
            int("depth", "1", "levels below the prefix that are told apart"),
            text("separator", "/", "what ends a level"),
            int("top", "10", "rows of each list"),
            switch("exact", "read every value, instead of some of each page"),
            duration("pause", "20ms", "pause after each page, which is at least as long as the page took"),
        ])
        .explained(
            "Asks one member, with serializable reads in pages at one revision, without values: numbers and lengths of keys are exact. Values are\n\
             read of the first key of each level and of every 100th; sizes that rest on them are marked with ~. With --exact every value is read\n\
             once, which moves as many bytes as there are.\n\n\
             A client cannot see history. Of a key it knows how often it was written since it was created, and when last: \"history\" is how many\n\
             older versions there may be at most that are not compacted, and its bytes are that number times the size of the present version. Deleted\n\
             keys, whose history is kept until it is compacted, are not seen at all. What the member says of its database is printed beside it:\n\
             the difference is their share, and the store's own overhead.\n",
        )],
);

/// Keys in the first page: nothing is known yet of their size.
const FIRST_KEYS: i64 = 16;
/// In any page.
const PAGE_KEYS: i64 = 500;
/// A page has as many keys as make about this.
const PAGE_BYTES: usize = 1 << 20;
/// One key of so many has its value read.
const SAMPLE_STEP: u64 = 100;
/// Levels that are told apart; all further ones are one row.
const GROUPS_MAX: usize = 10_000;

fn run(context: &Context) -> Outcome {
    let prefix = match context.args() {
        [] => Bytes::new(),
        [prefix] => raw::bytes(prefix),
        args => return Err(Failure::args(format!("keys usage takes one prefix, not {} words", args.len()))),
    };
    let parsed = &context.parsed;
    let count = |name: &str, least: i64| match parsed.int(name) {
        number if number >= least => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        _ => Err(Failure::args(format!("--{name} must be at least {least}"))),
    };
    let (depth, top) = (count("depth", 0)?, count("top", 1)?.min(1000));
    let separator = raw::bytes(parsed.text("separator"));
    if separator.is_empty() {
        return Err(Failure::args("--separator must not be empty"));
    }
    let printer = context.printer()?;
    if !matches!(printer.format, Format::Simple | Format::Table | Format::Json) {
        return Err(printer.unsupported());
    }
    let source = Source::choose(context)?;
    let compacted = source.compacted(context);
    let mut tally = Tally::new(prefix.clone(), separator, depth, top, compacted);
    let walked = context.wait(Walk::new(context, &source).all(&prefix, &mut tally))?;
    let text = match printer.format {
        Format::Json => shown::json(&tally, &source, &walked) + "\n",
        _ => shown::plain(&tally, &source, &walked),
    };
    print::out(text.as_bytes())
}

/// The member that is asked.
struct Source {
    endpoint: Endpoint,
    client: Client,
    status: StatusResponse,
}

impl Source {
    /// The first endpoint that answers: two of them may not be at the same revision.
    fn choose(context: &Context) -> Outcome<Source> {
        let mut last = Failure::new(code::ERROR, "there is no endpoint");
        for endpoint in globals::endpoints(&context.parsed)? {
            let client = context.client_of(&endpoint)?;
            match context.wait(client.status(&endpoint, StatusRequest {})) {
                Ok(status) => return Ok(Source { endpoint, client, status }),
                Err(error) => last = Failure { text: format!("{endpoint}: {error}"), ..error.into() },
            }
        }
        Err(last)
    }

    /// The revision up to which it has compacted, which only its metrics say.
    fn compacted(&self, context: &Context) -> Option<i64> {
        let page = context.wait(self.client.page(&self.endpoint, "/metrics")).ok()?;
        let line = page.lines().find_map(|line| line.strip_prefix("etcd_debugging_mvcc_compact_revision "))?;
        line.trim().parse::<f64>().ok().map(|revision| revision as i64)
    }
}

/// How the walk went.
struct Walked {
    revision: i64,
    /// History was compacted beneath it: it went on at a later revision.
    moved: bool,
    is_exact: bool,
}

/// The way through all keys.
struct Walk<'a> {
    client: &'a Client,
    is_exact: bool,
    pause: Duration,
    revision: i64,
    moved: bool,
    /// Keys that were seen.
    keys: u64,
}

impl Walk<'_> {
    fn new<'a>(context: &Context, source: &'a Source) -> Walk<'a> {
        let (is_exact, pause) = (context.parsed.switch("exact"), context.parsed.duration("pause"));
        Walk { client: &source.client, is_exact, pause, revision: 0, moved: false, keys: 0 }
    }

    async fn all(mut self, prefix: &Bytes, tally: &mut Tally) -> Outcome<Walked> {
        let (end, mut from) = (client::prefix_end(prefix), prefix.clone());
        if from.is_empty() {
            from = Bytes::from_static(b"\0");
        }
        let mut limit = FIRST_KEYS;
        loop {
            let began = Instant::now();
            let page = self.page(&from, &end, limit).await?;
            let mut bytes = 0;
            for kv in &page.kvs {
                bytes += kv.key.len() + kv.value.len();
                tally.key(kv, self.is_exact.then_some(kv.value.len()));
            }
            if !self.is_exact {
                self.sample(&page, tally).await?;
            }
            self.keys += page.kvs.len() as u64;
            limit = next_limit(limit, page.kvs.len(), bytes);
            let Some(last) = page.kvs.last().filter(|_| page.more) else { break };
            from = [&last.key[..], b"\0"].concat().into();
            // Others come first: no more than half of the time is spent at the member.
            tokio::time::sleep(self.pause.max(began.elapsed())).await;
        }
        Ok(Walked { revision: self.revision, moved: self.moved, is_exact: self.is_exact })
    }

    async fn page(&mut self, from: &Bytes, end: &Bytes, limit: i64) -> Outcome<RangeResponse> {
        let mut request = RangeRequest {
            key: from.clone(),
            range_end: end.clone(),
            limit,
            revision: self.revision,
            serializable: true,
            keys_only: !self.is_exact,
            ..RangeRequest::default()
        };
        let mut answer = self.client.range(request.clone()).await;
        let is_gone = answer.as_ref().is_err_and(|error| error.to_string() == api::Error::Compacted.message());
        if is_gone {
            request.revision = 0;
            answer = self.client.range(request).await;
        }
        let answer = answer?;
        if is_gone || self.revision == 0 {
            self.revision = answer.header.as_ref().map_or(0, |header| header.revision);
        }
        self.moved |= is_gone;
        Ok(answer)
    }

    /// Reads the values of a few keys of the page.
    async fn sample(&self, page: &RangeResponse, tally: &mut Tally) -> Outcome {
        for (place, kv) in (self.keys..).zip(&page.kvs) {
            if !tally.wants_value(&kv.key) && !place.is_multiple_of(SAMPLE_STEP) {
                continue;
            }
            let request = RangeRequest { key: kv.key.clone(), serializable: true, ..RangeRequest::default() };
            if let Some(found) = self.client.range(request).await?.kvs.first() {
                tally.value(&kv.key, found.value.len());
            }
        }
        Ok(())
    }
}

/// How many keys the next page should have, after one that was to have `limit` and has so many keys and bytes: keys of the same size make a
/// page of the wanted size. More are asked for step by step only, for the next may be larger.
fn next_limit(limit: i64, keys: usize, bytes: usize) -> i64 {
    let fitting = keys.saturating_mul(PAGE_BYTES) / bytes.max(1);
    i64::try_from(fitting).unwrap_or(PAGE_KEYS).clamp(1, limit.saturating_mul(2).min(PAGE_KEYS))
}

/// A key for people, cut where it is very long.
fn shown_key(key: &[u8]) -> String {
    const SHOWN_MAX: usize = 96;
    let quoted = go::quote(&key[..key.len().min(SHOWN_MAX)]);
    if key.len() > SHOWN_MAX { format!("{quoted}... ({} bytes)", key.len()) } else { quoted }
}

#[cfg(test)]
mod tests;
