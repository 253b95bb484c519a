//! Readers beside the applier, housekeeping and checkpoints: each answer is what its revision says, whole.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use crate::support::Node;
use crate::support::requests::*;
use api::Error;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::Store;

/// Revision `r` deletes all `keys` if five divides it, and otherwise writes all of them.
fn round(revision: i64, keys: i64) -> InternalRaftRequest {
    if revision % 5 == 0 {
        return delete("key", "kez").raft();
    }
    let puts = (0..keys).map(|key| op(Request::RequestPut(put(&format!("key{key:04}"), &format!("{revision}")))));
    TxnRequest { success: puts.collect(), ..Default::default() }.raft()
}

fn count_at(revision: i64, keys: i64) -> i64 {
    if revision % 5 == 0 || revision == 1 { 0 } else { keys }
}

fn check(revision: i64, keys: i64, response: &RangeResponse, asked: &RangeRequest) {
    assert_eq!(response.count, count_at(revision, keys), "count at {revision} of {asked:?}");
    let limit = if asked.limit == 0 { i64::MAX } else { asked.limit };
    assert_eq!(response.kvs.len() as i64, response.count.min(limit), "pairs at {revision}");
    for kv in &response.kvs {
        assert_eq!(kv.mod_revision, revision);
        assert!(asked.keys_only || kv.value == revision.to_string(), "{kv:?} at {revision}");
    }
}

fn read(store: &Arc<Store>, turn: i64, keys: i64) {
    let request = RangeRequest { limit: [0, 1, 200, 0][turn as usize % 4], keys_only: turn % 7 == 0, ..all() };
    let before = store.revision();
    let now = store.range(&request).unwrap().into_message();
    let revision = now.header.unwrap().revision;
    assert!(revision >= before);
    check(revision, keys, &now, &request);

    let old = RangeRequest { revision: (before - turn % 8).max(1), ..request };
    match store.range(&old) {
        Ok(answer) => check(old.revision, keys, &answer.into_message(), &old),
        Err(error) => assert_eq!(error, Error::Compacted),
    }
    let txn = TxnRequest {
        success: vec![op(Request::RequestRange(all())), op(Request::RequestRange(RangeRequest { limit: 1, ..all() }))],
        ..Default::default()
    };
    let both = store.read_txn(&txn).unwrap();
    for response in &both.responses {
        let Some(response_op::Response::ResponseRange(range)) = &response.response else { panic!() };
        assert_eq!(range.count, count_at(both.header.unwrap().revision, keys));
    }
    let mut stream = store.range_stream(all()).unwrap();
    let mut kvs = vec![];
    while let Some(Ok(chunk)) = stream.next() {
        kvs.extend(chunk.kvs.to_messages());
        if let Some(end) = chunk.end {
            let response = RangeResponse { kvs: std::mem::take(&mut kvs), count: end.count, ..Default::default() };
            check(end.revision, keys, &response, &all());
        }
    }
    if turn % 50 == 0 {
        match store.hash_kv(before) {
            Ok(hash) => assert_eq!(hash.hash_revision, before),
            Err(error) => assert_eq!(error, Error::Compacted),
        }
    }
}

#[test]
fn every_answer_is_of_one_revision() {
    // More keys than one hold of the index lock installs.
    run(150, 1200);
}

#[test]
fn every_long_answer_is_of_one_revision() {
    // More keys than one hold of the index lock visits.
    run(2500, 100);
}

fn run(keys: i64, rounds: i64) {
    let mut node = Node::new();
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let store = Arc::clone(&node.store);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (store, stop, reads) = (&store, &stop, &reads);
            scope.spawn(move || {
                let mut turn = reader;
                while !stop.load(Ordering::Relaxed) {
                    read(store, turn, keys);
                    turn += 1;
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let housekeeper = {
            let (store, stop) = (&store, &stop);
            move || {
                while !stop.load(Ordering::Relaxed) {
                    store.maintain(16 << 10).unwrap();
                }
            }
        };
        scope.spawn(housekeeper);
        for at in 0..rounds {
            // Sometimes several in one stride.
            let first = node.store.revision() + 1;
            node.apply_all((first..=first + at % 3).map(|revision| round(revision, keys)).collect());
            if at % 4 == 3 {
                let to = node.store.revision() - 2;
                let _ = node.apply(compact(to));
            }
            if at % 50 == 49 {
                node.checkpoint();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) > 20, "{reads:?} reads");
    node.settle();
    let revision = node.store.revision();
    node.reopen();
    check(revision, keys, &node.range(&all()).unwrap(), &all());
}
