//! Readers, range streams and watchers on a member that installs snapshots under them, again and again.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use crate::support::page::{ORIGIN, Page};
use crate::support::requests::*;
use crate::support::transfer::receive;
use crate::support::{Node, Told};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::*;
use api::{Error, Message};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use store::Store;
use store::watch::{Hub, WatchStream};

/// Revision `r` deletes all `keys` if five divides it, and otherwise writes all of them.
fn round(revision: i64, keys: i64) -> InternalRaftRequest {
    if revision % 5 == 0 {
        return delete("key", "kez").raft();
    }
    let puts = (0..keys).map(|key| op(Request::RequestPut(put(&format!("key{key:05}"), &format!("{revision}")))));
    TxnRequest { success: puts.collect(), ..Default::default() }.raft()
}

fn count_at(revision: i64, keys: i64) -> i64 {
    if revision % 5 == 0 || revision == 1 { 0 } else { keys }
}

fn check(revision: i64, keys: i64, count: i64, kvs: &[api::mvccpb::KeyValue]) {
    assert_eq!(count, count_at(revision, keys), "count at {revision}");
    assert_eq!(kvs.len() as i64, count, "pairs at {revision}");
    for kv in kvs {
        assert_eq!((kv.mod_revision, &kv.value[..]), (revision, revision.to_string().as_bytes()));
    }
}

/// One read of each kind.
fn read(store: &Arc<Store>, turn: i64, keys: i64, compacted: &AtomicU64) {
    let before = store.revision();
    let now = store.range(&all()).unwrap().into_message();
    let revision = now.header.unwrap().revision;
    assert!(revision >= before);
    check(revision, keys, now.count, &now.kvs);
    let old = RangeRequest { revision: (before - turn % 4).max(1), ..all() };
    match store.range(&old).map(|answer| answer.into_message()) {
        Ok(answer) => check(old.revision, keys, answer.count, &answer.kvs),
        Err(error) => assert_eq!(error, Error::Compacted),
    }
    let both = TxnRequest {
        compare: vec![Compare { key: "key".into(), range_end: "kez".into(), ..Default::default() }],
        success: vec![op(Request::RequestRange(all()))],
        failure: vec![op(Request::RequestRange(all())), op(Request::RequestRange(all()))],
    };
    let answer = store.read_txn(&both).unwrap();
    for response in &answer.responses {
        let Some(response_op::Response::ResponseRange(range)) = &response.response else { panic!() };
        check(answer.header.unwrap().revision, keys, range.count, &range.kvs);
    }
    let mut stream = store.range_stream(all()).unwrap();
    let mut kvs = vec![];
    while let Some(chunk) = stream.next() {
        match chunk {
            Ok(chunk) => {
                kvs.extend(chunk.kvs.to_messages());
                if let Some(end) = chunk.end {
                    check(end.revision, keys, end.count, &kvs);
                }
            }
            Err(error) => {
                assert_eq!(error, Error::Compacted);
                compacted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    if turn % 8 == 0 {
        match store.hash_kv(before) {
            Ok(hash) => assert_eq!(hash.hash_revision, before),
            Err(error) => assert_eq!(error, Error::Compacted),
        }
    }
}

/// A client that watches everything from the beginning, and begins again where it was when it is told that this was compacted.
struct Client {
    stream: WatchStream,
    /// The next revision to come.
    next: i64,
    /// Changes of it seen so far.
    seen: i64,
    id: i64,
    cancelled: u64,
}

impl Client {
    fn new(store: &Arc<Store>, start: i64) -> Client {
        let mut stream = Hub::stream(store, Arc::new(|| ()));
        stream.create(watch(start));
        Client { stream, next: if start == 0 { store.revision() + 1 } else { start }, seen: 0, id: 0, cancelled: 0 }
    }

    fn poll(&mut self, keys: i64) {
        let mut page = Page::default();
        while self.stream.poll(&ORIGIN, 1, &mut page) > 0 {
            let response = WatchResponse::decode(page.0.split().freeze()).unwrap();
            if response.created && self.next == 0 {
                self.next = response.header.unwrap().revision + 1;
            }
            if response.canceled {
                assert_eq!((response.watch_id, self.seen), (self.id, 0), "cancelled within a revision");
                assert!(self.next < response.compact_revision, "{response:?} at {}", self.next);
                self.next = response.compact_revision;
                self.cancelled += 1;
                self.id += 1;
                self.stream.create(watch(self.next));
            }
            for event in &response.events {
                let revision = event.kv.as_ref().unwrap().mod_revision;
                assert_eq!(revision, self.next, "missed or repeated");
                self.seen += 1;
                // Deletions delete what the revision before has left.
                let changes = if revision % 5 == 0 { count_at(revision - 1, keys) } else { keys };
                if self.seen == changes {
                    (self.next, self.seen) = (self.next + 1, 0);
                }
            }
        }
    }
}

fn watch(start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest { key: "\0".into(), range_end: "\0".into(), start_revision, ..Default::default() }
}

#[test]
fn nobody_sees_half_of_a_snapshot() {
    run(300, 60);
}

#[test]
fn no_long_read_sees_half_of_a_snapshot() {
    // More keys than one hold of the index lock visits.
    run(4000, 12);
}

fn run(keys: i64, rounds: i64) {
    let (mut sender, mut receiver) = (Node::new(), Node::new());
    let (stop, reads, compacted) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let cancelled = AtomicU64::new(0);
    let last = AtomicI64::new(0);
    let store = Arc::clone(&receiver.store);
    std::thread::scope(|scope| {
        let (store, stop, reads, compacted, cancelled, last) = (&store, &stop, &reads, &compacted, &cancelled, &last);
        for reader in 0..2 {
            scope.spawn(move || {
                let mut turn = reader;
                while !stop.load(Ordering::Relaxed) {
                    read(store, turn, keys, compacted);
                    turn += 1;
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for start in [2, 0] {
            scope.spawn(move || {
                let mut client = Client::new(store, start);
                client.next = start;
                while !stop.load(Ordering::Relaxed) {
                    client.poll(keys);
                    std::thread::yield_now();
                }
                client.poll(keys);
                assert_eq!(client.next, last.load(Ordering::Acquire) + 1, "the end is missing");
                cancelled.fetch_add(client.cancelled, Ordering::Relaxed);
            });
        }
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                store.maintain(16 << 10).unwrap();
                std::thread::yield_now();
            }
        });
        for at in 0..rounds {
            let first = sender.store.revision() + 1;
            sender.apply_all((first..=first + at % 4).map(|revision| round(revision, keys)).collect());
            if at % 3 == 2 {
                let to = sender.store.revision() - at % 2;
                let _ = sender.apply(compact(to));
            }
            sender.store.maintain(1 << 20).unwrap();
            if at % 2 == 0 {
                let ready = receive(&sender.applier.export(), &receiver.store).unwrap();
                receiver.applier.install(ready).unwrap();
            } else {
                let applied = receiver.applier.applied_index() as usize;
                receiver.applier.apply(&sender.entries[applied..], &mut Told::default()).unwrap();
            }
            if at % 10 == 9 {
                receiver.checkpoint();
                sender.checkpoint();
            }
        }
        last.store(sender.store.revision(), Ordering::Release);
        stop.store(true, Ordering::Release);
    });
    assert!(reads.load(Ordering::Relaxed) > 5, "{reads:?} reads");
    assert!(cancelled.load(Ordering::Relaxed) > 0, "no watcher was overtaken");
    receiver.settle();
    sender.settle();
    assert_eq!(sender.store.hash(), receiver.store.hash());
}

/// A store with `keys` keys at one revision, and another one that is ahead of it.
fn ahead(keys: i64) -> (Node, Node) {
    let (mut sender, mut receiver) = (Node::new(), Node::new());
    sender.apply_all((2..=4).map(|revision| round(revision, keys)).collect());
    receiver.applier.apply(&sender.entries, &mut Told::default()).unwrap();
    sender.apply_all((5..=8).map(|revision| round(revision, keys)).collect());
    (sender, receiver)
}

#[test]
fn a_stream_goes_on_in_the_snapshot_or_ends_as_compacted() {
    for compact_revision in [-1, 4, 5] {
        let (mut sender, mut receiver) = ahead(3000);
        if compact_revision > 0 {
            sender.apply(compact(compact_revision)).unwrap();
            sender.settle();
        }
        let mut stream = receiver.store.range_stream(all()).unwrap();
        let mut kvs = stream.next().unwrap().unwrap().kvs.to_messages();
        let ready = receive(&sender.applier.export(), &receiver.store).unwrap();
        receiver.applier.install(ready).unwrap();
        let mut error = None;
        while let Some(chunk) = stream.next() {
            match chunk {
                Ok(chunk) => kvs.extend(chunk.kvs.to_messages()),
                Err(other) => error = Some(other),
            }
        }
        if compact_revision == 5 {
            assert_eq!(error, Some(Error::Compacted));
        } else {
            check(4, 3000, 3000, &kvs);
        }
    }
}

#[test]
fn an_answer_that_was_found_before_is_read_after() {
    let (mut sender, mut receiver) = ahead(100);
    sender.apply(compact(8)).unwrap();
    sender.settle();
    let answer = receiver.store.range(&all()).unwrap();
    let ready = receive(&sender.applier.export(), &receiver.store).unwrap();
    receiver.applier.install(ready).unwrap();
    receiver.settle();
    check(4, 100, 100, &answer.into_message().kvs);
}

#[test]
fn a_watcher_that_is_level_misses_nothing() {
    for (compact_revision, is_cancelled) in [(-1, false), (5, false), (6, true)] {
        let (mut sender, mut receiver) = ahead(10);
        if compact_revision > 0 {
            sender.apply(compact(compact_revision)).unwrap();
            sender.settle();
        }
        let mut clients = [0, 2, 4, 5].map(|start| Client::new(&receiver.store, start));
        clients.iter_mut().for_each(|client| client.poll(10));
        assert_eq!(clients.each_ref().map(|client| client.next), [5; 4]);
        let ready = receive(&sender.applier.export(), &receiver.store).unwrap();
        receiver.applier.install(ready).unwrap();
        for client in &mut clients {
            client.poll(10);
            assert_eq!((client.next, client.cancelled), (9, u64::from(is_cancelled)));
        }
        let applied = receiver.applier.applied_index() as usize;
        sender.apply_all(vec![round(9, 10), round(10, 10)]);
        receiver.applier.apply(&sender.entries[applied..], &mut Told::default()).unwrap();
        for client in &mut clients {
            client.poll(10);
            assert_eq!(client.next, 11);
        }
    }
}
