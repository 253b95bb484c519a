//! What ranges answer.

use super::{filled, keys};
use crate::support::Node;
use crate::support::requests::*;
use api::Error;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::*;
use api::limits::{INLINE_SORT_KEYS_MAX, READ_STRIDE_KEYS};
use bytes::BytesMut;
use prost::Message;
use std::cell::Cell;
use store::{Allowance, Options, RangeChunk, Reached, Unread};

#[test]
fn ranges_of_all_shapes() {
    let node = filled(&[("a", "1"), ("ab", "2"), ("b", "3"), ("\u{7f}", "4")]);
    let found = |key, range_end| keys(&node.range(&range(key, range_end)).unwrap()).join(" ");
    assert_eq!(found("a", ""), "a");
    assert_eq!(found("a", "b"), "a ab");
    assert_eq!(found("ab", "\0"), "ab b \u{7f}");
    assert_eq!(found("\0", "\0"), "a ab b \u{7f}");
    assert_eq!(found("b", "a") + &found("b", "b") + &found("zz", ""), "");
    assert_eq!(node.range(&range("", "")), Err(Error::EmptyKey));
    assert_eq!(node.range(&RangeRequest { sort_order: 3, ..all() }), Err(Error::InvalidSortOption));
    assert_eq!(node.range(&RangeRequest { sort_target: -1, ..all() }), Err(Error::InvalidSortOption));
}

#[test]
fn limit_count_and_more() {
    let node = filled(&[("a", "1"), ("b", "2"), ("c", "3")]);
    let ask = |limit, count_only| {
        let response = node.range(&RangeRequest { limit, count_only, ..all() }).unwrap();
        (response.kvs.len(), response.count, response.more)
    };
    assert_eq!(ask(0, false), (3, 3, false));
    assert_eq!(ask(2, false), (2, 3, true));
    assert_eq!(ask(3, false), (3, 3, false));
    assert_eq!(ask(2, true), (0, 3, false));
    for limit in [-1, i64::MIN, i64::MAX, i64::MAX - 1] {
        assert_eq!(ask(limit, false), (3, 3, false), "{limit}");
    }
}

#[test]
fn a_target_without_an_order_sorts_what_the_limit_let_through() {
    let mut node = filled(&[("c", "1"), ("a", "9"), ("a", "9"), ("a", "9"), ("b", "5"), ("b", "5")]);
    node.apply(put("d", "0").raft()).unwrap();
    let by_version = RangeRequest { sort_target: range_request::SortTarget::Version as i32, limit: 2, ..all() };
    let response = node.range(&by_version).unwrap();
    // Three were fetched (a, b, c), then sorted: d, with version 1 too, was never seen.
    assert_eq!((keys(&response), response.more, response.count), (vec!["c", "b"], true, 4));
    let ordered = RangeRequest { sort_order: range_request::SortOrder::Ascend as i32, ..by_version };
    assert_eq!(keys(&node.range(&ordered).unwrap()), ["c", "d"]);
}

#[test]
fn filters_do_not_change_the_count() {
    let node = filled(&[("a", "1"), ("b", "2"), ("c", "3"), ("a", "4")]);
    let request = RangeRequest { min_mod_revision: 4, max_create_revision: 3, limit: 5, ..all() };
    let response = node.range(&request).unwrap();
    assert_eq!((keys(&response), response.count, response.more), (vec!["a"], 3, false));
    let nothing = RangeRequest { max_mod_revision: -1, min_create_revision: i64::MAX, ..all() };
    assert_eq!(node.range(&nothing).unwrap().count, 3);
}

#[test]
fn keys_only_knows_the_lease_when_sorted_by_value() {
    let mut node = Node::new();
    node.apply(grant(7, 10)).unwrap();
    node.apply(PutRequest { lease: 7, ..put("a", "1") }.raft()).unwrap();
    let request = RangeRequest { keys_only: true, ..all() };
    let kv = node.range(&request).unwrap().kvs.remove(0);
    assert_eq!((kv.value.len(), kv.lease, kv.create_revision, kv.mod_revision, kv.version), (0, 0, 2, 2, 1));
    let by_value = RangeRequest { sort_target: range_request::SortTarget::Value as i32, ..request };
    let kv = node.range(&by_value).unwrap().kvs.remove(0);
    assert_eq!((kv.value.len(), kv.lease, kv.version), (0, 7, 1));
}

#[test]
fn revisions_that_can_be_read() {
    let mut node = filled(&[("a", "1"), ("a", "2"), ("a", "3")]);
    node.apply(compact(3)).unwrap();
    let value = |revision| {
        node.range(&RangeRequest { revision, ..range("a", "") }).map(|response| response.kvs[0].value.clone())
    };
    assert_eq!(value(5), Err(Error::FutureRev));
    assert_eq!(value(i64::MAX), Err(Error::FutureRev));
    assert_eq!(value(2), Err(Error::Compacted));
    assert_eq!(value(3).unwrap(), "2");
    assert_eq!(value(-1).unwrap(), "3");
    assert_eq!(value(i64::MIN).unwrap(), "3");
    let old = node.range(&RangeRequest { revision: 3, ..range("a", "") }).unwrap();
    assert_eq!(old.header.unwrap().revision, 4);
}

#[test]
fn a_range_encodes_as_the_message_does() {
    let node = filled(&[("a", "1"), ("b", &"x".repeat(1000)), ("c", "")]);
    for request in [all(), range("b", ""), range("x", ""), RangeRequest { keys_only: true, ..all() }] {
        let mut answer = node.store.range(&request).unwrap();
        let expected = RangeResponse { kvs: answer.kvs.to_messages(), ..Default::default() }.encode_to_vec();
        assert_eq!(answer.kvs.encoded_len(), expected.len());
        let mut out = BytesMut::new();
        let mut calls = 1;
        while !answer.kvs.encode_next(&mut out, 10) {
            calls += 1;
        }
        assert_eq!(&out[..], expected);
        assert!(calls <= answer.kvs.len().max(1));
    }
}

#[test]
fn large_pairs_are_referred_to_and_stay_readable() {
    let large = "l".repeat(30_000);
    let mut node = filled(&[("a", "1"), ("b", &large), ("c", ""), ("d", &large), ("e", &large), ("f", "2")]);
    let mut answer = node.store.range(&all()).unwrap();
    let expected = RangeResponse { kvs: answer.kvs.to_messages(), ..Default::default() }.encode_to_vec();
    // What it refers to is compacted, and its segments are removed.
    let revision = node.store.revision();
    node.apply_all(["b", "d", "e"].map(|key| put(key, "new").raft()).into());
    node.apply(compact(revision + 3)).unwrap();
    node.settle();
    for _ in 0..3 {
        node.checkpoint();
        node.apply(put("x", "").raft()).unwrap();
    }
    let (mut out, mut referred, mut steps) = (BytesMut::new(), Vec::new(), 0);
    loop {
        steps += 1;
        let mut copied = BytesMut::new();
        let reached = answer.kvs.encode_around(&mut copied, 40_000, 20_000);
        assert!(copied.len() < 100, "{} bytes were copied", copied.len());
        out.extend_from_slice(&copied);
        match reached {
            Reached::All => break,
            Reached::Part => {}
            Reached::Large(pair) => {
                out.extend_from_slice(&pair);
                referred.push(pair.into_bytes());
            }
        }
    }
    assert!(out == expected && referred.len() == 3 && steps == 4);
    assert!(referred.iter().all(|pair| pair.ends_with(large.as_bytes())));
    // What is not stored, as keys alone, is copied.
    let mut keys = node.store.range(&RangeRequest { keys_only: true, ..all() }).unwrap();
    assert!(matches!(keys.kvs.encode_around(&mut BytesMut::new(), usize::MAX, 0), Reached::All));
    let mut one = node.store.range(&range("x", "")).unwrap();
    let len = one.kvs.iter().next().unwrap().len();
    assert!(matches!(one.kvs.encode_around(&mut BytesMut::new(), 1, len + 1), Reached::All));
    let mut one = node.store.range(&range("x", "")).unwrap();
    assert!(matches!(one.kvs.encode_around(&mut BytesMut::new(), 1, len), Reached::Large(_)));
}

#[test]
fn large_answers_stay_whole_while_the_store_moves_on() {
    let mut node = Node::new();
    let puts = |round: usize| (0..3000).map(move |key| put(&format!("key{key:05}"), &format!("{round}")).raft());
    node.apply_all(puts(0).collect());
    let revision = node.store.revision();
    let answer = node.store.range(&all()).unwrap();
    let mut stream = node.store.range_stream(RangeRequest { revision, ..all() }).unwrap();
    stream.next().unwrap().unwrap();
    node.apply_all(puts(1).collect());
    let old = node.range(&RangeRequest { revision, limit: 2, ..all() }).unwrap();
    assert_eq!((old.count, old.kvs[1].value.clone(), old.more), (3000, "0".into(), true));
    node.apply(compact(revision + 3000)).unwrap();
    node.settle();
    for _ in 0..3 {
        node.checkpoint();
        node.apply(put("x", "").raft()).unwrap();
    }
    assert_eq!(answer.count, 3000);
    assert!(answer.kvs.to_messages().iter().all(|kv| kv.value == "0"), "segments are kept for who reads them");
    assert_eq!(stream.next().unwrap().unwrap_err(), Error::Compacted);
    assert!(stream.next().is_none());
}

#[test]
fn a_chunk_of_a_stream_is_bounded_by_bytes() {
    let options = Options {
        stream_chunk_bytes: 100 << 10,
        log: store::log::Options { segment_bytes: 4 << 20 },
        ..Options::default()
    };
    let mut node = Node::with(options);
    // The small ones make the next chunk one of many keys.
    let small = (0..2000).map(|key| put(&format!("a{key:05}"), "").raft());
    let large = (0..60).map(|key| put(&format!("b{key:05}"), &"x".repeat(64 << 10)).raft());
    node.apply_all(small.chain(large).collect());
    for (request, chunks_max) in [(all(), 50), (RangeRequest { keys_only: true, ..all() }, 10)] {
        let mut stream = node.store.range_stream(request).unwrap();
        let (mut found, mut chunks) = (Vec::new(), 0);
        while let Some(chunk) = stream.next() {
            let RangeChunk { kvs, end } = chunk.unwrap();
            assert!(kvs.encoded_len() < 200 << 10, "a chunk of {} bytes", kvs.encoded_len());
            found.extend(kvs.to_messages().into_iter().map(|kv| kv.key));
            assert_eq!(end.map(|end| end.count), (found.len() == 2060).then_some(2060));
            chunks += 1;
        }
        assert!(chunks <= chunks_max, "{chunks} chunks");
        assert!(found.len() == 2060 && found.is_sorted());
    }
}

#[test]
fn a_stream_looks_at_few_deleted_keys_at_a_time() {
    let mut node = Node::new();
    let puts = (0..70_000).map(|key| put(&format!("d{key:05}"), "").raft());
    let behind = (0..20).map(|key| put(&format!("e{key:05}"), "").raft());
    node.apply_all(puts.chain(behind).collect());
    node.apply(delete("d", "e").raft()).unwrap();
    let mut stream = node.store.range_stream(all()).unwrap();
    // Keys that were written since are passed over one by one.
    node.apply(put("f", "").raft()).unwrap();
    let (mut found, mut pauses) = (0, 0);
    while let Some(chunk) = stream.next() {
        let RangeChunk { kvs, end } = chunk.unwrap();
        found += kvs.len();
        pauses += usize::from(kvs.is_empty());
        assert_eq!(end.map(|end| end.count), (found == 20).then_some(20));
    }
    assert_eq!((found, pauses), (20, 2));
}

#[test]
fn the_first_of_many_in_order_take_little_memory() {
    let mut node = Node::new();
    let put = |key: usize| put(&format!("key{:04}", key * 7_919 % 3_000), "").raft();
    node.apply_all((0..3_000).chain(0..1_000).chain(0..100).map(put).collect());
    let small = Allowance { bytes_max: 40 << 10, ..Allowance::UNBOUNDED };
    for (sort_target, sort_order) in (0..=3).flat_map(|target| [(target, 1), (target, 2)]) {
        for filtered in [0, 50] {
            let every = RangeRequest { sort_target, sort_order, min_mod_revision: filtered, ..all() };
            let every = RangeRequest { keys_only: filtered > 0, ..every };
            let whole = node.store.range(&every).unwrap();
            let whole_keys: Vec<_> = whole.kvs.to_messages().into_iter().map(|kv| kv.key).collect();
            for limit in [1, 2, 127, 128, 500] {
                let request = RangeRequest { limit, ..every.clone() };
                let first = node.store.range_within(&request, small).unwrap();
                let keys: Vec<_> = first.kvs.to_messages().into_iter().map(|kv| kv.key).collect();
                assert_eq!(keys, whole_keys[..limit as usize], "{request:?}");
                assert_eq!((first.count, first.more), (whole.count, true));
            }
            let most = RangeRequest { limit: whole_keys.len() as i64, ..every };
            let most = node.store.range(&most).unwrap();
            assert_eq!((most.kvs.len(), most.more), (whole_keys.len(), false));
        }
    }
}

#[test]
fn heavy_ranges_are_known() {
    let mut node = Node::new();
    let many = INLINE_SORT_KEYS_MAX + 1;
    node.apply_all((0..many).map(|key| put(&format!("key{key:05}"), "").raft()).collect());
    let heavy = |request: RangeRequest| node.store.is_heavy(&request);
    let by_value = RangeRequest { sort_target: 4, sort_order: 1, limit: 1, ..all() };
    assert!(heavy(all()) && heavy(by_value.clone()) && heavy(RangeRequest { min_mod_revision: 1, limit: 1, ..all() }));
    assert!(heavy(RangeRequest { revision: 2, count_only: true, ..all() }));
    assert!(!heavy(RangeRequest { limit: 1, ..all() }) && !heavy(RangeRequest { count_only: true, ..all() }));
    assert!(!heavy(range("key00001", "")) && !heavy(RangeRequest { range_end: "key00009".into(), ..by_value }));
}

#[test]
fn keys_that_are_gone_are_passed_over_at_once() {
    thread_local!(static PAUSES: Cell<u32> = const { Cell::new(0) });
    let mut node = Node::with(Options { pause: || PAUSES.set(PAUSES.get() + 1), ..Options::default() });
    let many = INLINE_SORT_KEYS_MAX + 1;
    node.apply_all((0..many).map(|key| put(&format!("a{key:05}"), "").raft()).collect());
    let before = node.store.revision();
    node.apply(delete("a", "b").raft()).unwrap();
    node.apply_all(["a", "a99999"].map(|key| put(key, "").raft()).into());
    node.apply_all((0..READ_STRIDE_KEYS - 1).map(|key| put(&format!("b{key}"), "").raft()).collect());
    let read = |request: &RangeRequest| {
        PAUSES.set(0);
        let pairs = node.store.range(request).unwrap().kvs.len();
        (node.store.is_heavy(request), PAUSES.get(), pairs)
    };
    assert_eq!(read(&range("a", "b")), (false, 0, 2));
    assert_eq!(read(&RangeRequest { limit: 9, ..range("a0", "a9") }), (false, 0, 0));
    assert_eq!(read(&range("b", "c")), (false, 0, READ_STRIDE_KEYS - 1));
    // Once others may write meanwhile, they are looked at.
    assert!(node.store.is_heavy(&all()) && node.store.is_heavy(&RangeRequest { limit: 256, ..all() }));
    assert!(!node.store.is_heavy(&range("b", "c")) && !node.store.is_heavy(&RangeRequest { limit: 200, ..all() }));
    assert!(node.store.is_heavy(&RangeRequest { revision: before, limit: 1, ..range("a", "b") }));

    let of = |range: RangeRequest, ranges| {
        let op = RequestOp { request: Some(Request::RequestRange(range)) };
        TxnRequest { success: vec![op; ranges], ..Default::default() }
    };
    let gone = of(RangeRequest { limit: 1, ..range("a0", "a9") }, 128);
    assert!(!node.store.is_heavy_txn(&gone));
    PAUSES.set(0);
    node.store.read_txn(&gone).unwrap();
    assert_eq!(PAUSES.get(), 0);
    assert!(node.store.is_heavy_txn(&of(RangeRequest { limit: 2, ..all() }, 128)));

    // So are they by deletions, which show what there was.
    let show = |key, range_end| DeleteRangeRequest { prev_kv: true, ..delete(key, range_end) };
    assert!(node.store.is_heavy_delete(&show("a", "c")) && !node.store.is_heavy_delete(&show("a", "b")));
    PAUSES.set(0);
    assert_eq!(node.store.delete_cost_bytes(api::KeyRange::new(b"a", b"b")), 2 * 48 + 1 + 6);
    node.store.pairs_bytes(api::KeyRange::new(b"a", b"b"));
    assert_eq!(PAUSES.get(), 0);
}

#[test]
fn a_transaction_is_heavy_by_all_its_ranges_together() {
    let mut node = Node::new();
    node.apply_all((0..4000).map(|key| put(&format!("{key:05}"), "").raft()).collect());
    let range = |limit| Request::RequestRange(RangeRequest { limit, ..all() });
    let txn = |limit, ranges| {
        let op = api::etcdserverpb::RequestOp { request: Some(range(limit)) };
        TxnRequest { success: vec![op; ranges], ..Default::default() }
    };
    assert!(!node.store.is_heavy_txn(&txn(0, 2)));
    assert!(node.store.is_heavy_txn(&txn(0, 3)));
    assert!(!node.store.is_heavy_txn(&txn(10, 100)));
    assert_eq!(node.store.read_txn(&txn(10, 100)).unwrap().responses.len(), 100);
}

#[test]
fn reads_stay_within_their_allowance() {
    let mut node = Node::new();
    node.apply_all((0..4000).map(|key| put(&format!("{key:05}"), "").raft()).collect());
    let by_value = RangeRequest { sort_target: 4, sort_order: 1, ..all() };
    let keys_only = RangeRequest { keys_only: true, ..all() };
    for request in [all(), by_value, keys_only] {
        let likely_bytes = node.store.places_bytes(&request) as usize;
        let within = |bytes_max| node.store.range_within(&request, Allowance { wanted: &|| true, bytes_max });
        let found = within(likely_bytes).unwrap();
        assert!(found.kvs.len() == 4000 && found.kvs.held_bytes() <= likely_bytes, "{request:?}");
        assert_eq!(within(4000).unwrap_err(), Unread::TooMuch);
        let txn = TxnRequest { success: vec![op(Request::RequestRange(request.clone())); 3], ..Default::default() };
        let within = |bytes_max| node.store.read_txn_within(&txn, Allowance { wanted: &|| true, bytes_max });
        assert_eq!(node.store.txn_places_bytes(&txn) as usize, 3 * likely_bytes);
        assert_eq!(within(3 * likely_bytes).unwrap().ranges.len(), 3);
        assert_eq!(within(likely_bytes / 2).unwrap_err(), Unread::TooMuch);
    }
    assert_eq!(node.store.places_bytes(&range("00001", "")), 0);
    // What a transaction that writes would answer: of the longer branch, with what is nested in it.
    let gets = vec![op(Request::RequestRange(all())); 2];
    let stored: u64 = node.store.range(&all()).unwrap().kvs.iter().map(|pair| pair.len() as u64).sum();
    let nested = op(Request::RequestTxn(TxnRequest { success: gets, ..Default::default() }));
    let txn =
        TxnRequest { success: vec![nested], failure: vec![op(Request::RequestRange(all()))], ..Default::default() };
    assert_eq!(node.store.txn_answer_bytes(&txn), 2 * stored);
}

#[test]
fn reads_that_nobody_waits_for_are_given_up() {
    let mut node = Node::new();
    node.apply_all((0..4000).map(|key| put(&format!("{key:05}"), "").raft()).collect());
    let looks = std::cell::Cell::new(0);
    // Gone after a few looks; each read looks between its slices.
    let wanted = || {
        looks.set(looks.get() + 1);
        looks.get() < 3
    };
    let again = || looks.set(0);
    let old = RangeRequest { revision: 100, count_only: true, ..all() };
    for request in [all(), old.clone()] {
        again();
        let given_up = node.store.range_within(&request, Allowance { wanted: &wanted, bytes_max: usize::MAX });
        assert_eq!((given_up.unwrap_err(), looks.get()), (Unread::Unwanted, 3), "{request:?}");
    }
    again();
    assert_eq!(node.store.range_stream_while(old, &wanted).err(), Some(Unread::Unwanted));
    let gone = || false;
    assert_eq!(node.store.hash_kv_while(0, &gone).err(), Some(Unread::Unwanted));
    assert_eq!(node.store.hash_while(&gone).err(), Some(Unread::Unwanted));
    assert_eq!(node.applier.snapshot().image_while(&gone).err(), Some(Unread::Unwanted));
}
