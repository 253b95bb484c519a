//! Watches over the real store: its log is the history, its applier the publisher.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use crate::support::Node;
use crate::support::page::{ORIGIN, Page};
use crate::support::requests::*;
use api::Message;
use api::etcdserverpb::*;
use api::mvccpb::event::EventType;
use std::sync::Arc;
use store::Options;
use store::watch::{Hub, WatchStream};

fn stream(node: &Node) -> WatchStream {
    Hub::stream(&node.store, Arc::new(|| ()))
}

fn drain(stream: &mut WatchStream) -> Vec<WatchResponse> {
    let mut responses = vec![];
    let mut page = Page::default();
    while stream.poll(&ORIGIN, 1, &mut page) > 0 {
        responses.push(WatchResponse::decode(page.0.split().freeze()).unwrap());
    }
    responses
}

/// Kind, key, value, revision and what was before.
fn events(responses: &[WatchResponse]) -> Vec<(bool, String, String, i64, Option<String>)> {
    let text = |bytes: &bytes::Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let all = responses.iter().flat_map(|response| &response.events);
    all.map(|event| {
        let kv = event.kv.as_ref().unwrap();
        let prev = event.prev_kv.as_ref().map(|prev| text(&prev.value));
        (event.r#type() == EventType::Delete, text(&kv.key), text(&kv.value), kv.mod_revision, prev)
    })
    .collect()
}

fn create(start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest { key: "\0".into(), range_end: "\0".into(), start_revision, prev_kv: true, ..Default::default() }
}

#[test]
fn past_and_present_join_without_a_seam() {
    let mut node = Node::new();
    node.apply_all(vec![put("a", "1").raft(), put("b", "2").raft(), delete("a", "").raft()]);
    let mut watch = stream(&node);
    watch.create(create(2));
    let mut seen = drain(&mut watch);
    node.apply_all(vec![put("b", "3").raft(), put("b", "4").raft()]);
    seen.extend(drain(&mut watch));
    assert!(seen[0].created);
    let expected = [
        (false, "a", "1", 2, None),
        (false, "b", "2", 3, None),
        (true, "a", "", 4, Some("1")),
        (false, "b", "3", 5, Some("2")),
        (false, "b", "4", 6, Some("3")),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(deleted, key, value, revision, prev)| {
            (*deleted, key.to_string(), value.to_string(), *revision, prev.map(str::to_string))
        })
        .collect();
    assert_eq!(events(&seen), expected);
}

#[test]
fn history_survives_compaction_rewriting_and_restart() {
    let mut node = Node::new();
    for round in 0..40 {
        node.apply_all(
            (0..20).map(|key| put(&format!("k{key}"), &format!("{round}{}", "x".repeat(200))).raft()).collect(),
        );
    }
    let from = node.store.revision() - 100;
    node.apply(compact(from)).unwrap();
    node.settle();
    let read = |node: &Node, start: i64| {
        let mut watch = stream(node);
        watch.create(create(start));
        let responses = drain(&mut watch);
        let mut revisions: Vec<_> = events(&responses).iter().map(|event| event.3).collect();
        revisions.dedup();
        (revisions, responses.last().unwrap().compact_revision)
    };
    let whole: Vec<_> = (from..=node.store.revision()).collect();
    assert_eq!(read(&node, from), (whole.clone(), 0));
    assert_eq!(read(&node, from - 1), (vec![], from));
    node.checkpoint();
    node.reopen();
    node.settle();
    assert_eq!(read(&node, from), (whole, 0));
}

#[test]
fn a_slow_watcher_is_cancelled_when_its_past_is_gone() {
    let mut node = Node::new();
    let mut watch = stream(&node);
    watch.create(create(0));
    drain(&mut watch);
    for round in 0..20 {
        node.apply_all((0..1000).map(|_| put("k", &round.to_string()).raft()).collect());
    }
    let now = node.store.revision();
    node.apply(compact(now)).unwrap();
    node.settle();
    let responses = drain(&mut watch);
    let last = responses.last().unwrap();
    let got = events(&responses);
    assert!(got.iter().zip(2..).all(|(event, revision)| event.3 == revision), "a gap");
    assert!((got.len() as i64) < now - 1, "it kept up: nothing was lost by the compaction");
    assert!(last.canceled && last.compact_revision == now, "{last:?}");
}

#[test]
fn what_a_stream_is_told_never_falls_behind_what_was_read() {
    let mut node = Node::with(Options { log: store::log::Options { segment_bytes: 4 << 20 }, ..Options::default() });
    node.apply_all((0..20_000).map(|key| put(&format!("key{key:05}"), "").raft()).collect());
    for is_idle in [true, false] {
        let mut level = stream(&node);
        if !is_idle {
            level.create(create(0));
            drain(&mut level);
        }
        let before = node.store.revision();
        let store = node.store.clone();
        let reader = std::thread::spawn(move || {
            // The put is visible while the deletion after it is still being installed.
            while store.revision() == before {
                std::thread::yield_now();
            }
            let seen = store.revision();
            level.progress();
            let told = drain(&mut level).pop().map(|response| response.header.unwrap().revision);
            let mut fresh = Hub::stream(&store, Arc::new(|| ()));
            fresh.create(create(0));
            (seen, told, drain(&mut fresh)[0].header.unwrap().revision)
        });
        node.apply_all(vec![put("x", "").raft(), delete("\0", "\0").raft()]);
        let (seen, told, begun) = reader.join().unwrap();
        assert!(begun >= seen, "revision {seen} was read, and then a watch begun at {begun}");
        assert!(told.unwrap_or(seen) >= seen, "revision {seen} was read, and then progress at {told:?} told");
        node.apply_all((0..20_000).map(|key| put(&format!("key{key:05}"), "").raft()).collect());
    }
}
