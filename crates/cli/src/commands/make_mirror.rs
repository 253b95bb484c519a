//! `make-mirror`: copies keys to another cluster, and then every change.

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{Flag, int, switch, text, uint};
use crate::{globals, print, raw};
use api::etcdserverpb::*;
use api::mvccpb::Event;
use bytes::Bytes;
use client::Client;
use std::cell::Cell;
use std::time::Duration;

pub(crate) const COMMAND: Command =
    command("make-mirror", "<destination>", "Copies keys to another cluster, and all their changes", run).with(&[
        text("prefix", "", "only keys that begin with this"),
        int("rev", "0", "only changes from this revision on"),
        uint("max-txn-ops", "128", "operations of one transaction at most"),
        text("dest-prefix", "", "what keys are to begin with there, instead of --prefix"),
        switch("no-dest-prefix", "leave --prefix out there"),
        text("dest-cert", "", "file of the client certificate for the destination"),
        text("dest-key", "", "file of its key"),
        text("dest-cacert", "", "file of the authority of the destination's certificates"),
        Flag { default: "true", ..switch("dest-insecure-transport", "no TLS unless certificates are named") },
        text("dest-user", "", "user at the destination, as name or name:password"),
        text("dest-password", "", "password there"),
    ]);

/// Keys of one answer.
const PAGE_KEYS: i64 = 1000;
/// How often the number of copied keys is printed.
const TELL: Duration = Duration::from_secs(30);

struct Mirror {
    from: Client,
    to: Client,
    prefix: String,
    /// What keys begin with at the destination.
    there: String,
    ops_max: usize,
    copied: Cell<u64>,
}

fn run(context: &Context) -> Outcome {
    let [destination] = context.args() else {
        return Err(Failure::args("make-mirror takes one destination argument"));
    };
    let endpoint = destination.parse().map_err(|error| Failure::new(code::INVALID_INPUT, format!("{error}")))?;
    let to = globals::client_at(&context.parsed, endpoint, "dest-", None)?;
    // Either cluster may be away for a while: the other waits for it.
    let from = context.patient_client_of_all()?;
    context.printer()?;
    let (prefix, dest) = (context.parsed.text("prefix").to_string(), context.parsed.text("dest-prefix"));
    let there = match context.parsed.switch("no-dest-prefix") {
        true if !dest.is_empty() => {
            let text = "`--dest-prefix` and `--no-dest-prefix` cannot be set at the same time, choose one";
            return Err(Failure::args(text));
        }
        true => String::new(),
        false if dest.is_empty() => prefix.clone(),
        false => dest.to_string(),
    };
    let ops_max = usize::try_from(context.parsed.uint("max-txn-ops")).unwrap_or(0).max(1);
    let mirror = Mirror { from, to, prefix, there, ops_max, copied: Cell::new(0) };
    context.wait(async {
        let tell = async {
            loop {
                tokio::time::sleep(TELL).await;
                print::out(format!("{}\n", mirror.copied.get()).as_bytes())?;
            }
        };
        tokio::select! {
            told = tell => told,
            ended = mirror.run(context.parsed.int("rev")) => ended,
        }
    })
}

impl Mirror {
    async fn run(&self, revision: i64) -> Outcome {
        let start = if revision > 1 { revision } else { self.copy_all().await?.saturating_add(1) };
        self.follow(start).await
    }

    fn range(&self) -> (Bytes, Bytes) {
        let key = if self.prefix.is_empty() { Bytes::from_static(b"\0") } else { raw::bytes(&self.prefix) };
        (key, client::prefix_end(&raw::bytes(&self.prefix)))
    }

    /// The key at the destination.
    fn key(&self, key: &Bytes) -> Bytes {
        let rest = key.strip_prefix(&raw::bytes(&self.prefix)[..]).unwrap_or(key);
        [&raw::bytes(&self.there)[..], rest].concat().into()
    }

    fn count(&self, keys: usize) {
        self.copied.set(self.copied.get() + keys as u64);
    }

    /// Copies the keys at one revision, and returns the revision.
    async fn copy_all(&self) -> Outcome<i64> {
        let (mut key, range_end) = self.range();
        let mut revision = 0;
        loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: PAGE_KEYS,
                revision,
                ..Default::default()
            };
            let page = self.from.range(request).await?;
            if revision == 0 {
                revision = page.header.map_or(0, |header| header.revision);
            }
            for kv in &page.kvs {
                let put = PutRequest { key: self.key(&kv.key), value: kv.value.clone(), ..Default::default() };
                self.to.put(put).await?;
                self.count(1);
            }
            match page.kvs.last() {
                Some(last) if page.more => key = [&last.key[..], b"\0"].concat().into(),
                _ => return Ok(revision),
            }
        }
    }

    /// Repeats every change from `start` on.
    async fn follow(&self, start: i64) -> Outcome {
        let (key, range_end) = self.range();
        let request = WatchCreateRequest { key, range_end, start_revision: start, ..Default::default() };
        let mut watcher = self.from.watch(request);
        loop {
            let watched = watcher.next().await?;
            for batch in batches(&watched.events, self.ops_max) {
                self.repeat(batch).await?;
            }
        }
    }

    async fn repeat(&self, events: &[Event]) -> Outcome {
        use request_op::Request;
        let op = |event: &Event| {
            let kv = event.kv.clone().unwrap_or_default();
            let key = self.key(&kv.key);
            let request = match event.r#type() {
                api::mvccpb::event::EventType::Put => {
                    Request::RequestPut(PutRequest { key, value: kv.value, ..Default::default() })
                }
                api::mvccpb::event::EventType::Delete => {
                    Request::RequestDeleteRange(DeleteRangeRequest { key, ..Default::default() })
                }
            };
            RequestOp { request: Some(request) }
        };
        let success: Vec<RequestOp> = events.iter().map(op).collect();
        self.to.txn(TxnRequest { success, ..Default::default() }).await?;
        self.count(events.len());
        Ok(())
    }
}

/// Events that one transaction repeats: of one revision, and not too many. Two changes of a key are never in one transaction, which the
/// destination would refuse: a revision changes a key once.
fn batches(events: &[Event], ops_max: usize) -> Vec<&[Event]> {
    let revision = |event: &Event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
    let of_revisions = events.chunk_by(|one, next| revision(one) == revision(next));
    of_revisions.flat_map(|events| events.chunks(ops_max)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::mvccpb::KeyValue;

    fn event(mod_revision: i64) -> Event {
        Event { kv: Some(KeyValue { mod_revision, ..Default::default() }), ..Default::default() }
    }

    #[test]
    fn transactions_keep_to_revisions_and_to_the_limit() {
        let events: Vec<Event> = [1, 1, 1, 2, 3, 3].map(event).to_vec();
        let sizes = |max| batches(&events, max).iter().map(|batch| batch.len()).collect::<Vec<_>>();
        assert_eq!((sizes(128), sizes(2), sizes(1)), (vec![3, 1, 2], vec![2, 1, 1, 2], vec![1; 6]));
    }

    #[test]
    fn keys_get_their_new_prefix() {
        let client = Client::connect("127.0.0.1:1").expect("a client");
        let mirror = |prefix: &str, there: &str| Mirror {
            from: client.clone(),
            to: client.clone(),
            prefix: prefix.into(),
            there: there.into(),
            ops_max: 1,
            copied: Cell::new(0),
        };
        assert_eq!(mirror("a/", "b/").key(&"a/k/a/".into()), "b/k/a/");
        assert_eq!(mirror("", "b/").key(&"k".into()), "b/k");
        assert_eq!(mirror("a/", "").key(&"a/k".into()), "k");
    }
}
