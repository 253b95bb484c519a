//! The rules of the protocol, one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::etcdserverpb::{WatchCreateRequest, WatchResponse};
use api::mvccpb::KeyValue;

use super::checker::{Checker, answer, poll, poll_within};
use super::fake::Fake;
use crate::test_support::least_time;
use crate::watch::{Allowance, History, Hub, Options, Scope, WatchStream};

pub(super) fn open(store: &Arc<Fake>) -> WatchStream {
    Hub::open(store.clone(), Arc::new(|| {}))
}

pub(super) fn on(key: &str) -> WatchCreateRequest {
    WatchCreateRequest { key: key.as_bytes().to_vec().into(), ..Default::default() }
}

fn from(key: &str, start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest { start_revision, ..on(key) }
}

fn everything() -> WatchCreateRequest {
    WatchCreateRequest { range_end: b"\0".to_vec().into(), ..on("") }
}

pub(super) fn next(stream: &mut WatchStream) -> Option<WatchResponse> {
    poll(stream, 1).pop()
}

pub(super) fn all(stream: &mut WatchStream) -> Vec<WatchResponse> {
    std::iter::from_fn(|| next(stream)).collect()
}

fn revision(response: &WatchResponse) -> i64 {
    response.header.as_ref().map_or(-1, |header| header.revision)
}

pub(super) fn mains(response: &WatchResponse) -> Vec<i64> {
    response.events.iter().map(|event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision)).collect()
}

#[test]
fn created_comes_first_with_the_current_revision() {
    let store = Fake::new(Options::default());
    store.put("a", "1");
    let mut stream = open(&store);
    stream.create(on("a"));
    store.put("a", "2");
    store.delete("a");
    let responses = all(&mut stream);
    assert!(responses[0].created && !responses[0].canceled && responses[0].watch_id == 0);
    assert_eq!(revision(&responses[0]), 2);
    assert_eq!((mains(&responses[1]), revision(&responses[1])), (vec![3], 3));
    assert_eq!((mains(&responses[2]), revision(&responses[2])), (vec![4], 4));
    let deleted = KeyValue { key: b"a".to_vec().into(), mod_revision: 4, ..Default::default() };
    assert_eq!(responses[2].events[0].kv, Some(deleted));
    assert_eq!(responses[2].events[0].r#type, 1);
    assert_eq!(responses.len(), 3);
}

#[test]
fn ids_are_assigned_upward() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    for watch_id in [1, 0, 0, 1, 0] {
        stream.create(WatchCreateRequest { watch_id, ..on("a") });
    }
    let responses = all(&mut stream);
    assert_eq!(responses.iter().map(|response| response.watch_id).collect::<Vec<_>>(), [1, 0, 2, -1, 3]);
    assert!(responses[3].created && responses[3].canceled);
    assert_eq!(responses[3].cancel_reason, "mvcc: duplicate watch ID provided on the WatchStream");
    assert_eq!(stream.watchers(), 4);
}

#[test]
fn watches_beyond_the_limit_are_refused_with_a_reason() {
    let store = Fake::new(Options::default());
    let member = Allowance::of_member(5);
    let open = |limit| {
        let mut stream = open(&store);
        stream.limit(Allowance::of_connection(&member, limit));
        stream
    };
    let metrics = store.hub().metrics();
    let (mut one, mut two) = (open(3), open(10));
    for _ in 0..3 {
        one.create(on("a"));
    }
    assert!(all(&mut one).iter().all(|response| response.created && !response.canceled));
    one.create(on("a"));
    let refused = next(&mut one).expect("an answer");
    assert!(refused.created && refused.canceled && refused.watch_id == -1);
    assert_eq!(
        refused.cancel_reason,
        "rpc error: code = ResourceExhausted desc = etcdserver: too many watches of this connection \
         (--max-watches-per-connection=3)"
    );
    assert_eq!((metrics.refused(Scope::Connection), metrics.refused(Scope::Member)), (1, 0));
    // A long key counts for more: it is kept.
    two.create(on(&"k".repeat(3_000)));
    let refused = next(&mut two).expect("an answer");
    assert_eq!(
        refused.cancel_reason,
        "rpc error: code = ResourceExhausted desc = etcdserver: too many watches of this member (--max-watches=5)"
    );
    assert_eq!((metrics.refused(Scope::Connection), metrics.refused(Scope::Member)), (1, 1));
    // An id that is taken costs nothing.
    one.cancel(0);
    one.create(WatchCreateRequest { watch_id: 1, ..on("a") });
    assert_eq!(member.taken(), 2);
    drop(one);
    assert_eq!(member.taken(), 0);
    two.create(on(&"k".repeat(3_000)));
    assert!(all(&mut two)[0].created);
    assert_eq!((member.taken(), two.watchers()), (3, 1));
    // Compaction ends watches too.
    two.create(from("a", 1));
    store.put("a", "1");
    store.compact(2);
    assert!(all(&mut two).iter().any(|response| response.compact_revision == 2));
    assert_eq!(member.taken(), 3);
    drop(two);
    assert_eq!(member.taken(), 0);
}

#[test]
fn refusals() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    for (request, reason) in [
        (WatchCreateRequest { range_end: b"a".to_vec().into(), ..on("b") }, "mvcc: watcher range is empty"),
        (WatchCreateRequest { range_end: b"b".to_vec().into(), ..on("b") }, "mvcc: watcher range is empty"),
        (from("a", -1), "etcdserver: mvcc: required revision has been compacted"),
    ] {
        stream.create(request);
        let response = next(&mut stream).expect("a refusal is answered");
        assert!(response.created && response.canceled && response.watch_id == -1);
        assert_eq!(response.cancel_reason, reason);
        assert_eq!(revision(&response), 1);
    }
    stream.refuse("rpc error: code = PermissionDenied desc = etcdserver: permission denied");
    assert!(next(&mut stream).is_some_and(|response| response.cancel_reason.contains("PermissionDenied")));
    assert_eq!((next(&mut stream), stream.watchers()), (None, 0));
}

#[test]
fn an_empty_key_is_the_zero_byte() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    stream.create(on(""));
    stream.create(everything());
    store.put("\0", "1");
    store.put("z", "1");
    let ids: Vec<i64> = all(&mut stream)[2..].iter().map(|response| response.watch_id).collect();
    assert_eq!(ids, [0, 1, 1]);
}

#[test]
fn a_start_in_the_past_is_caught_up_in_one_response() {
    let store = Fake::new(Options::default());
    for i in 0..20 {
        store.put(["a", "b"][i % 2], "x");
    }
    let mut stream = open(&store);
    stream.create(from("a", 5));
    stream.create(everything());
    store.put("a", "live");
    let responses = all(&mut stream);
    assert_eq!(revision(&responses[0]), 21);
    let of_first: Vec<&WatchResponse> = responses[2..].iter().filter(|response| response.watch_id == 0).collect();
    assert_eq!(of_first.iter().flat_map(|r| mains(r)).collect::<Vec<_>>(), [6, 8, 10, 12, 14, 16, 18, 20, 22]);
    assert_eq!(revision(of_first[0]), 22);
    assert_eq!(store.hub().metrics().slow_watchers(), 0);
    assert_eq!(store.hub().metrics().events(), 10);
}

#[test]
fn a_start_in_the_future_waits() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    stream.create(from("a", 4));
    stream.create(from("a", 2));
    for _ in 0..4 {
        store.put("a", "x");
    }
    let responses = all(&mut stream);
    let of = |id| responses[2..].iter().filter(move |r| r.watch_id == id).flat_map(mains).collect::<Vec<_>>();
    assert_eq!((of(0), of(1)), (vec![4, 5], vec![2, 3, 4, 5]));
}

#[test]
fn catch_up_covers_a_thousand_revisions_at_most() {
    let store = Fake::new(Options::default());
    for _ in 0..2_500 {
        store.put("a", "x");
    }
    let mut stream = open(&store);
    stream.create(from("a", 1));
    let sizes: Vec<usize> = all(&mut stream)[1..].iter().map(|response| response.events.len()).collect();
    assert_eq!(sizes, [1_000, 1_000, 500]);
}

#[test]
fn overlapping_ranges_share_what_a_read_may_bring() {
    let store = Fake::new(Options { catch_up_bytes_max: 10_000, join_gap_revisions: 0, ..Options::default() });
    for _ in 0..200 {
        store.put("a", &"x".repeat(100));
    }
    let mut stream = open(&store);
    for end in 0..20u8 {
        stream.create(WatchCreateRequest { range_end: vec![b'b', end].into(), start_revision: 1, ..on("a") });
    }
    let responses = all(&mut stream);
    assert!(responses.iter().all(|response| response.events.len() < 8), "twenty ranges share 10,000 bytes");
    assert_eq!(responses.iter().map(|response| response.events.len()).sum::<usize>(), 20 * 200);
}

#[test]
fn a_revision_is_one_response() {
    let store = Fake::new(Options { catch_up_bytes_max: 1, ..Options::default() });
    let mut live = open(&store);
    live.create(everything());
    let keys: Vec<Vec<u8>> = (0..500).map(|i| format!("{i:04}").into_bytes()).collect();
    let ops: Vec<(&[u8], Option<&[u8]>)> = keys.iter().map(|key| (&key[..], Some(&b"v"[..]))).collect();
    store.write(&ops);
    store.write(&[(b"0001", None), (b"0002", None)]);
    let mut late = open(&store);
    late.create(WatchCreateRequest { start_revision: 1, ..everything() });
    for stream in [&mut live, &mut late] {
        let sizes: Vec<usize> = all(stream)[1..].iter().map(|response| response.events.len()).collect();
        assert_eq!(sizes, [500, 2]);
    }
}

#[test]
fn compaction_cancels_those_behind_it() {
    let store = Fake::new(Options::default());
    for _ in 0..10 {
        store.put("a", "x");
    }
    store.delete("a");
    store.compact(12);
    store.put("a", "y");
    let mut stream = open(&store);
    stream.create(from("a", 11));
    stream.create(from("a", 12));
    let responses = all(&mut stream);
    assert!(responses[0].created && responses[1].created && !responses[0].canceled);
    let canceled = responses.iter().find(|response| response.canceled).expect("watcher 0 is cancelled");
    assert_eq!((canceled.watch_id, canceled.compact_revision, revision(canceled)), (0, 12, 0));
    assert!(canceled.cancel_reason.is_empty() && !canceled.created);
    let served = responses.iter().find(|response| !response.events.is_empty()).expect("watcher 1 is served");
    assert_eq!((served.watch_id, mains(served)), (1, vec![12, 13]));
    assert_eq!((responses.len(), stream.watchers()), (4, 1));
}

#[test]
fn cancel_is_the_last_word() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    stream.create(on("a"));
    stream.create(on("a"));
    all(&mut stream);
    store.put("a", "1");
    store.put("a", "2");
    assert_eq!(next(&mut stream).map(|response| response.watch_id), Some(0));
    stream.cancel(0);
    stream.cancel(77);
    let ids: Vec<(i64, bool)> = all(&mut stream).iter().map(|r| (r.watch_id, r.canceled)).collect();
    assert_eq!(ids, [(1, false), (0, true), (1, false)]);
    stream.cancel(1);
    assert!(next(&mut stream).is_some_and(|response| response.canceled && response.cancel_reason.is_empty()));
    assert!(store.hub().is_idle());
}

#[test]
fn filters_and_previous_values() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    stream.create(WatchCreateRequest { filters: vec![0], prev_kv: true, ..on("a") });
    stream.create(WatchCreateRequest { filters: vec![1, 9], prev_kv: true, ..on("a") });
    stream.create(WatchCreateRequest { filters: vec![0, 1], ..on("a") });
    store.put("a", "1");
    store.put("a", "2");
    store.delete("a");
    let responses = all(&mut stream);
    let seen: Vec<(i64, i64, i64)> = responses[3..]
        .iter()
        .map(|response| {
            let prev = response.events[0].prev_kv.as_ref().map_or(0, |kv| kv.mod_revision);
            (response.watch_id, revision(response), prev)
        })
        .collect();
    assert_eq!(seen, [(1, 2, 0), (1, 3, 2), (0, 4, 3)]);
}

#[test]
fn manual_progress_speaks_for_the_stream() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    stream.progress();
    assert_eq!(next(&mut stream), None, "no watchers, no answer");
    stream.create(on("a"));
    store.put("a", "1");
    store.put("b", "1");
    stream.progress();
    let responses = all(&mut stream);
    assert_eq!(responses.iter().map(revision).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(responses[2].watch_id == -1 && responses[2].events.is_empty() && !responses[2].canceled);
    stream.create(from("a", 100));
    assert_eq!(all(&mut stream).len(), 1);
    stream.progress();
    assert_eq!(next(&mut stream), None, "a start in the future silences it");
    stream.cancel(1);
    stream.create(from("a", 1));
    stream.progress();
    assert!(all(&mut stream).iter().all(|response| response.watch_id != -1), "one watcher reads the log");
    stream.progress();
    assert_eq!(all(&mut stream).len(), 1);
}

#[test]
fn answers_do_not_pile_up_while_the_past_is_read() {
    let store = Fake::new(Options::default());
    store.put("a", "1");
    let mut stream = open(&store);
    stream.create(WatchCreateRequest { watch_id: 7, ..from("a", 1) });
    assert!(stream.is_behind());
    // Refused: the id is taken.
    let mut requests = 0;
    while !stream.has_many_answers() {
        stream.create(WatchCreateRequest { watch_id: 7, ..from("a", 1) });
        requests += 1;
        assert!(requests < 1_000, "a thousand answers wait for the past to be read");
    }
    // They are sent without the past being read.
    let refused = std::iter::from_fn(|| answer(&mut stream, 1).pop()).filter(|response| response.canceled).count();
    assert_eq!(refused, requests);
    assert!(stream.is_behind() && !stream.has_many_answers());
    assert_eq!(all(&mut stream).iter().map(|response| response.events.len()).sum::<usize>(), 1);
}

#[test]
fn calls_share_the_records_they_may_look_at() {
    let store = Fake::new(Options { poll_records_max: 10, join_gap_revisions: 0, ..Options::default() });
    let mut stream = open(&store);
    stream.create(from("a", 1));
    assert_eq!(all(&mut stream).len(), 1);
    assert!(!stream.is_behind());
    // Every fifth record is wanted.
    for at in 0..100 {
        store.put(if at % 5 == 0 { "b" } else { "c" }, "1");
    }
    stream.create(from("b", 2));
    assert!(stream.is_behind());
    assert_eq!(poll(&mut stream, 1).len(), 1, "the answer to the request");
    let mut events = 0;
    while stream.is_behind() {
        let mut records_left = stream.records_max();
        let turn = std::iter::from_fn(|| poll_within(&mut stream, &mut records_left, 1).pop());
        let found: usize = turn.map(|response| response.events.len()).sum();
        assert!(found <= 3, "{found} events in a turn");
        events += found;
    }
    assert_eq!(events, 20);
}

#[test]
fn progress_costs_the_same_with_many_watchers() {
    let store = Fake::new(Options::default());
    let asked = |watchers: usize, enough: &dyn Fn(Duration) -> bool| {
        let mut stream = open(&store);
        (0..watchers).for_each(|_| stream.create(on("a")));
        all(&mut stream);
        least_time(enough, || {
            for _ in 0..100 {
                stream.progress();
                assert_eq!(all(&mut stream).len(), 1);
            }
        })
    };
    let few = asked(1, &|_| true);
    let many = asked(50_000, &|many| many < few * 20);
    assert!(many < few * 20, "{many:?} and {few:?}");
}

#[test]
fn watchers_that_begin_in_the_future_silence_progress_until_they_have_begun() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    let asked = |stream: &mut WatchStream| {
        all(stream);
        stream.progress();
        all(stream).iter().filter(|response| response.watch_id == -1).count()
    };
    stream.create(on("a"));
    for start in [3, 4, 4] {
        stream.create(from("a", start));
    }
    assert_eq!(asked(&mut stream), 0);
    stream.cancel(3);
    stream.cancel(3);
    assert_eq!(asked(&mut stream), 0, "another one begins there");
    store.put("b", "1");
    assert_eq!(asked(&mut stream), 0);
    stream.cancel(2);
    assert_eq!(asked(&mut stream), 1, "the next revision is the first of the last");
    stream.create(from("a", 9));
    assert_eq!(asked(&mut stream), 0);
    for _ in 0..6 {
        store.put("b", "1");
    }
    assert_eq!(asked(&mut stream), 1);
}

#[test]
fn progress_from_before_the_begin_of_a_watcher_is_renewed() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    stream.create(on("a"));
    stream.progress();
    stream.create(from("a", 3));
    store.put("b", "1");
    store.put("b", "1");
    stream.progress();
    let told = all(&mut stream).into_iter().filter(|response| response.watch_id == -1);
    assert!(told.map(|response| revision(&response)).all(|revision| revision == 3));
}

#[test]
fn progress_that_a_new_watcher_overtakes_is_renewed() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    stream.create(on("a"));
    stream.progress();
    store.put("b", "1");
    stream.create(on("b"));
    let responses = all(&mut stream);
    assert_eq!(responses.iter().map(|r| (r.watch_id, revision(r))).collect::<Vec<_>>(), [(0, 1), (1, 2), (-1, 2)]);
}

#[test]
fn periodic_progress_is_for_the_quiet() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    for key in ["a", "b", "c"] {
        stream.create(WatchCreateRequest { progress_notify: key != "c", ..on(key) });
    }
    stream.create(WatchCreateRequest { progress_notify: true, ..from("a", 1_000) });
    store.put("a", "1");
    all(&mut stream);
    stream.periodic_progress();
    let first: Vec<(i64, i64)> = all(&mut stream).iter().map(|r| (r.watch_id, revision(r))).collect();
    assert_eq!(first, [(1, 2)]);
    stream.periodic_progress();
    let second: Vec<i64> = all(&mut stream).iter().map(|response| response.watch_id).collect();
    assert_eq!(second, [0, 1]);
}

#[test]
fn fragments() {
    let store = Fake::new(Options { fragment_bytes: 400, ..Options::default() });
    let mut stream = open(&store);
    stream.create(WatchCreateRequest { fragment: true, ..everything() });
    stream.create(everything());
    let keys: Vec<Vec<u8>> = (0..50).map(|i| format!("{i:04}").into_bytes()).collect();
    let ops: Vec<(&[u8], Option<&[u8]>)> = keys.iter().map(|key| (&key[..], Some(&b"value"[..]))).collect();
    store.write(&ops);
    store.put("long", &"x".repeat(1_000));
    let responses = all(&mut stream);
    let pieces: Vec<&WatchResponse> = responses[2..].iter().filter(|response| response.watch_id == 0).collect();
    assert!(pieces.len() > 4);
    assert_eq!(pieces.iter().map(|piece| piece.events.len()).sum::<usize>(), 51);
    let (long, split) = pieces.split_last().expect("there are pieces");
    assert!(!long.fragment && long.events.len() == 1);
    let (last, first) = split.split_last().expect("there are pieces");
    assert!(!last.fragment && first.iter().all(|piece| piece.fragment));
    assert_eq!(responses[2..].iter().filter(|response| response.watch_id == 1).count(), 2);
}

#[test]
fn a_full_queue_becomes_a_cursor() {
    let store = Fake::new(Options { queue_events_max: 10, ..Options::default() });
    let wakes = Arc::new(AtomicUsize::new(0));
    let count = wakes.clone();
    let mut stream = Hub::open(
        store.clone(),
        Arc::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }),
    );
    stream.create(on("a"));
    assert_eq!(all(&mut stream).len(), 1);
    for _ in 0..5 {
        store.put("a", "x");
    }
    assert_eq!((store.hub().metrics().pending_events(), wakes.load(Ordering::SeqCst)), (5, 1));
    for _ in 0..1_000 {
        store.put("a", "x");
    }
    assert_eq!((store.hub().metrics().pending_events(), store.hub().metrics().slow_watchers()), (0, 1));
    assert_eq!(wakes.load(Ordering::SeqCst), 1, "wakes collapse");
    let responses = all(&mut stream);
    assert_eq!(responses.iter().flat_map(mains).collect::<Vec<_>>(), (2..1_007).collect::<Vec<_>>());
    assert_eq!(store.hub().metrics().slow_watchers(), 0);
    store.put("a", "x");
    assert_eq!(wakes.load(Ordering::SeqCst), 2);
    assert_eq!(all(&mut stream).iter().flat_map(mains).collect::<Vec<_>>(), [1_007]);
}

#[test]
fn a_stalled_reader_behind_a_compaction_is_cancelled() {
    let store = Fake::new(Options { queue_events_max: 10, ..Options::default() });
    let mut stream = open(&store);
    stream.create(on("a"));
    for _ in 0..100 {
        store.put("a", "x");
    }
    store.compact(50);
    let responses = all(&mut stream);
    assert_eq!(responses.len(), 2);
    assert_eq!(responses[1].compact_revision, 50);
    assert_eq!((stream.watchers(), store.hub().metrics().slow_watchers()), (0, 0));
}

#[test]
fn a_large_revision_is_not_multiplied_in_memory() {
    let options = Options { delivery_bytes_max: 4_000, join_gap_revisions: 0, ..Options::default() };
    for route_hits_max in [usize::MAX, 100] {
        let store = Fake::new(Options { route_hits_max, ..options });
        let keys: Vec<Vec<u8>> = (0..20u8).map(|key| vec![b'k', key]).collect();
        let write = || store.write(&keys.iter().map(|key| (&key[..], Some(&b"some value"[..]))).collect::<Vec<_>>());
        let mut stream = open(&store);
        // Ranges that begin at each key, so that no two watchers get the same.
        let watch = |stream: &mut WatchStream, start_revision| {
            for key in &keys {
                let range_end = b"l".to_vec().into();
                stream.create(WatchCreateRequest { key: key.clone().into(), range_end, start_revision, ..on("") });
            }
        };
        watch(&mut stream, 0);
        all(&mut stream);
        // Live, unless the applier has left it to the log; then also from the past.
        write();
        watch(&mut stream, 2);
        write();
        let mut seen: std::collections::BTreeMap<i64, Vec<(i64, usize)>> = Default::default();
        while let Some(response) = next(&mut stream) {
            assert!(stream.waiting_bytes() < 6_000, "{} bytes", stream.waiting_bytes());
            if !response.created {
                let mut revisions = mains(&response);
                let events = revisions.len();
                revisions.dedup();
                for revision in &revisions {
                    seen.entry(response.watch_id).or_default().push((*revision, events / revisions.len()));
                }
            }
        }
        let expected: Vec<_> =
            (0..40).map(|id| (id, vec![(2, 20 - id as usize % 20), (3, 20 - id as usize % 20)])).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(store.hub().metrics().slow_watchers(), 0);
    }
}

#[test]
fn an_event_whose_segment_moved_is_read_from_the_log() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    stream.create(on("a"));
    store.put("a", "1");
    store.forgetful.store(true, Ordering::SeqCst);
    store.put("a", "2");
    store.put("a", "3");
    assert_eq!(all(&mut stream).iter().flat_map(mains).collect::<Vec<_>>(), [2, 3, 4]);
}

#[test]
fn compaction_in_the_middle_of_a_read_is_noticed() {
    let store = Fake::new(Options::default());
    for _ in 0..10 {
        store.put("a", "x");
    }
    store.compact_in_scan.store(8, Ordering::SeqCst);
    let mut stream = open(&store);
    stream.create(from("a", 3));
    let responses = all(&mut stream);
    assert_eq!(responses.len(), 2);
    assert!(responses[1].canceled && responses[1].compact_revision == 8);
}

#[test]
fn revisions_that_were_not_built_are_read_from_the_log() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    stream.create(on("a"));
    for number in 0..4 {
        store.unbuilt.store(number % 2 == 0, Ordering::SeqCst);
        store.put("a", "x");
    }
    assert_eq!(all(&mut stream).iter().flat_map(mains).collect::<Vec<_>>(), [2, 3, 4, 5]);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test with threads starts them and waits for them")]
fn registering_while_a_publication_is_under_way() {
    let store = Fake::new(Options::default());
    store.put("a", "1");
    // Readers see revision 3 from here on, perhaps.
    let publication = store.hub().begin();
    let other = store.clone();
    let watch = std::thread::spawn(move || {
        let mut stream = open(&other);
        stream.create(on("a"));
        (all(&mut stream).iter().map(revision).collect::<Vec<_>>(), next(&mut stream))
    });
    let event = crate::watch::Event {
        kind: crate::watch::Kind::Put,
        key: b"a".to_vec().into(),
        rev: crate::types::Revision { main: 3, sub: 0 },
        loc: crate::types::Loc { segment: 0, offset: 0, len: 0 },
        prev: None,
    };
    publication.publish(&[(3, &[event])]);
    let (headers, next) = watch.join().expect("no panic");
    assert_eq!((headers, next), (vec![3], None), "revision 3 was past when it was created");
    assert_eq!(store.hub().metrics().pending_events(), 0);
}

#[test]
fn cancelled_watchers_leave_every_cohort() {
    let store = Fake::new(Options { join_gap_revisions: 0, ..Options::default() });
    for _ in 0..20 {
        store.put("a", "x");
    }
    let mut stream = open(&store);
    for (key, start) in [("a", 1), ("b", 5), ("a", 9)] {
        stream.create(from(key, start));
    }
    stream.cancel(1);
    all(&mut stream);
    stream.cancel(0);
    stream.cancel(2);
    assert!(store.hub().is_idle());
    assert_eq!(store.hub().metrics().slow_watchers(), 0);
}

#[test]
fn long_reads_give_others_a_turn() {
    let store = Fake::new(Options { poll_records_max: 100, ..Options::default() });
    for _ in 0..1_000 {
        store.put("b", "x");
    }
    store.put("a", "x");
    let mut checker = Checker::new(&store, || {});
    checker.create(from("a", 1));
    let mut polls = 0;
    while checker.poll_once() {
        polls += 1;
    }
    assert!(polls > 8, "{polls} polls");
    checker.assert_complete();
    assert_eq!(checker.received, 1);
}

#[test]
fn watchers_that_ask_for_the_same_are_one_interest() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    for _ in 0..100 {
        stream.create(on("a"));
    }
    for end in ["b", "c", "d"] {
        stream.create(WatchCreateRequest { range_end: end.as_bytes().to_vec().into(), ..on("a") });
    }
    all(&mut stream);
    store.put("a", "x");
    assert_eq!(store.hub().metrics().pending_events(), 4, "one per interest");
    let hundred = poll(&mut stream, usize::MAX);
    assert_eq!(hundred.len(), 100);
    let rest = all(&mut stream);
    assert_eq!(rest.len(), 3);
    assert!(hundred.iter().chain(&rest).all(|response| response.events == rest[0].events));
}

#[test]
fn gauges_return_to_zero() {
    let store = Fake::new(Options { queue_events_max: 3, ..Options::default() });
    store.put("a", "x");
    let mut streams: Vec<WatchStream> = (0..3).map(|_| open(&store)).collect();
    for stream in &mut streams {
        stream.create(on("a"));
        stream.create(from("a", 1));
        stream.create(from("a", 1_000));
    }
    all(&mut streams[0]);
    for _ in 0..10 {
        store.put("a", "x");
    }
    next(&mut streams[1]);
    let metrics = store.hub().metrics();
    assert_eq!((metrics.streams(), metrics.watchers()), (3, 9));
    assert!(metrics.slow_watchers() > 0);
    streams[0].cancel(0);
    drop(streams);
    assert_eq!((metrics.streams(), metrics.watchers()), (0, 0));
    assert_eq!((metrics.slow_watchers(), metrics.pending_events()), (0, 0));
    assert!(store.hub().is_idle());
}
