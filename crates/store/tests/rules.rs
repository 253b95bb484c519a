//! The rules that clients can see, one by one.
#![allow(clippy::unwrap_used)]

mod support;

use api::Error;
use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response as OpResponse;
use api::etcdserverpb::*;
use bytes::BytesMut;
use prost::Message;
use store::{Options, Response, Work};
use support::requests::*;
use support::{Node, Told, small_segments};

fn revision_of(result: &Result<Response, Error>) -> i64 {
    let header = match result.as_ref().unwrap() {
        Response::Put(response) => response.header,
        Response::DeleteRange(response) => response.header,
        Response::Txn(response) => response.header,
        Response::Range(response) => response.header,
        Response::Compaction(response) => response.header,
        Response::LeaseGrant(response) => response.header,
        Response::LeaseRevoke(_, response) => response.header,
        Response::LeaseCheckpoint(response) => response.header,
        Response::Alarm(response) => response.header,
        Response::None => None,
    };
    header.unwrap().revision
}

fn keys(response: &RangeResponse) -> Vec<&str> {
    response.kvs.iter().map(|kv| std::str::from_utf8(&kv.key).unwrap()).collect()
}

fn filled(pairs: &[(&str, &str)]) -> Node {
    let mut node = Node::new();
    node.apply_all(pairs.iter().map(|(key, value)| put(key, value).raft()).collect());
    node
}

fn txn(success: Vec<Request>) -> TxnRequest {
    TxnRequest { success: success.into_iter().map(op).collect(), ..Default::default() }
}

fn run_txn(node: &mut Node, request: TxnRequest) -> Result<TxnResponse, Error> {
    match node.apply(request.raft())? {
        Response::Txn(response) => Ok(response),
        other => panic!("{other:?}"),
    }
}

#[test]
fn revisions_count_what_changes() {
    let mut node = Node::new();
    assert_eq!((node.store.revision(), node.store.compact_revision()), (1, -1));
    assert_eq!(revision_of(&node.apply(delete("a", "z").raft())), 1);
    assert_eq!(revision_of(&node.apply(grant(7, 10))), 1);
    assert_eq!(revision_of(&node.apply(put("a", "1").raft())), 2);
    assert_eq!(revision_of(&node.apply(txn(vec![]).raft())), 2);
    assert_eq!(revision_of(&node.apply(delete("a", "z").raft())), 3);
    assert_eq!(revision_of(&node.apply(revoke(7))), 3);
    assert_eq!(revision_of(&node.apply(compact(3))), 3);
    assert_eq!(node.store.revision(), 3);
}

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
fn put_rules() {
    let mut node = Node::new();
    let ask = |node: &mut Node, request: PutRequest| node.apply(request.raft());
    assert_eq!(ask(&mut node, PutRequest { lease: 9, ..put("a", "1") }), Err(Error::LeaseNotFound));
    assert_eq!(ask(&mut node, PutRequest { ignore_value: true, ..put("a", "") }), Err(Error::KeyNotFound));
    assert_eq!(ask(&mut node, PutRequest { ignore_lease: true, ..put("a", "") }), Err(Error::KeyNotFound));
    assert_eq!(ask(&mut node, put("", "1")), Err(Error::EmptyKey));
    assert_eq!(node.store.revision(), 1);
    node.apply(grant(9, 10)).unwrap();
    ask(&mut node, PutRequest { lease: 9, ..put("a", "1") }).unwrap();
    ask(&mut node, PutRequest { ignore_lease: true, ..put("a", "2") }).unwrap();
    assert_eq!(node.store.leases().keys(9), ["a"]);
    let Ok(Response::Put(answer)) = ask(&mut node, PutRequest { ignore_value: true, prev_kv: true, ..put("a", "") })
    else {
        panic!()
    };
    assert_eq!(answer.prev_kv.unwrap().value, "2");
    let kv = node.range(&range("a", "")).unwrap().kvs.remove(0);
    assert_eq!((&kv.value[..], kv.lease, kv.version, kv.create_revision, kv.mod_revision), (&b"2"[..], 0, 3, 2, 4));
    assert!(node.store.leases().keys(9).is_empty());
    node.apply(delete("a", "").raft()).unwrap();
    ask(&mut node, put("a", "")).unwrap();
    let kv = node.range(&range("a", "")).unwrap().kvs.remove(0);
    assert_eq!((kv.version, kv.create_revision, kv.mod_revision, kv.value.len()), (1, 6, 6, 0));
}

#[test]
fn delete_returns_what_was_there() {
    let mut node = filled(&[("b", "2"), ("a", "1"), ("c", "3")]);
    let request = DeleteRangeRequest { prev_kv: true, ..delete("a", "c") };
    let Ok(Response::DeleteRange(answer)) = node.apply(request.raft()) else { panic!() };
    let prev: Vec<_> = answer.prev_kvs.iter().map(|kv| (&kv.key[..], &kv.value[..])).collect();
    assert_eq!((answer.deleted, prev), (2, vec![(&b"a"[..], &b"1"[..]), (b"b", b"2")]));
    assert_eq!(node.store.revision(), 5);
    assert_eq!(keys(&node.range(&all()).unwrap()), ["c"]);
}

#[test]
fn a_transaction_reads_what_it_wrote() {
    let mut node = filled(&[("a", "1")]);
    let response = run_txn(
        &mut node,
        txn(vec![
            Request::RequestRange(range("a", "")),
            Request::RequestPut(PutRequest { prev_kv: true, ..put("a", "2") }),
            Request::RequestRange(all()),
            Request::RequestRange(RangeRequest { revision: 2, ..range("a", "") }),
            Request::RequestTxn(txn(vec![Request::RequestDeleteRange(delete("b", "\0"))])),
        ]),
    )
    .unwrap();
    let range_of = |at: usize| match &response.responses[at].response {
        Some(OpResponse::ResponseRange(range)) => (range.header.unwrap().revision, range.kvs[0].value.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(range_of(0), (2, "1".into()));
    assert_eq!(range_of(2), (3, "2".into()));
    assert_eq!(range_of(3), (3, "1".into()));
    assert_eq!(response.header.unwrap().revision, 3);
    let Some(OpResponse::ResponsePut(put)) = &response.responses[1].response else { panic!() };
    assert_eq!((put.header.unwrap().revision, &put.prev_kv.as_ref().unwrap().value[..]), (3, &b"1"[..]));
    let Some(OpResponse::ResponseTxn(nested)) = &response.responses[4].response else { panic!() };
    assert_eq!((nested.header, nested.succeeded), (Some(ResponseHeader::default()), true));
    let Some(OpResponse::ResponseDeleteRange(none)) = &nested.responses[0].response else { panic!() };
    assert_eq!((none.header.unwrap().revision, none.deleted), (3, 0));
}

#[test]
fn a_failed_check_changes_nothing() {
    let mut node = filled(&[("a", "1"), ("a", "2"), ("a", "3")]);
    node.apply(compact(3)).unwrap();
    for (bad, error) in [
        (Request::RequestRange(RangeRequest { revision: 5, ..all() }), Error::FutureRev),
        (Request::RequestRange(RangeRequest { revision: 2, ..all() }), Error::Compacted),
        (Request::RequestRange(RangeRequest { revision: -1, ..all() }), Error::Compacted),
        (Request::RequestPut(PutRequest { lease: 1, ..put("b", "") }), Error::LeaseNotFound),
        // The key is only put by this very transaction.
        (Request::RequestPut(PutRequest { ignore_value: true, ..put("b", "") }), Error::KeyNotFound),
        (
            Request::RequestTxn(txn(vec![Request::RequestRange(RangeRequest { revision: 9, ..all() })])),
            Error::FutureRev,
        ),
    ] {
        let request = txn(vec![Request::RequestPut(put("x", "")), bad.clone()]);
        assert_eq!(run_txn(&mut node, request), Err(error), "{bad:?}");
        let untaken = TxnRequest { failure: vec![op(bad)], ..txn(vec![]) };
        run_txn(&mut node, untaken).unwrap();
    }
    assert_eq!((node.store.revision(), keys(&node.range(&all()).unwrap())), (4, vec!["a"]));
}

fn compare(target: CompareTarget, result: CompareResult, key: &str, union: TargetUnion) -> Compare {
    Compare {
        target: target as i32,
        result: result as i32,
        key: key.to_owned().into(),
        target_union: Some(union),
        ..Default::default()
    }
}

#[test]
fn conditions() {
    let mut node = filled(&[("a", "m"), ("b", "m")]);
    let mut ask = |compare: Compare| {
        run_txn(&mut node, TxnRequest { compare: vec![compare], ..Default::default() }).unwrap().succeeded
    };
    let value = |text: &'static str| TargetUnion::Value(text.into());
    for result in [CompareResult::Equal, CompareResult::NotEqual, CompareResult::Greater, CompareResult::Less] {
        assert!(!ask(compare(CompareTarget::Value, result, "missing", value(""))), "a value of no key is nothing");
    }
    assert!(ask(compare(CompareTarget::Create, CompareResult::Equal, "missing", TargetUnion::CreateRevision(0))));
    assert!(ask(compare(CompareTarget::Mod, CompareResult::Less, "missing", TargetUnion::ModRevision(i64::MAX))));
    assert!(ask(compare(CompareTarget::Version, CompareResult::Greater, "missing", TargetUnion::Version(i64::MIN))));
    assert!(ask(compare(CompareTarget::Value, CompareResult::Greater, "a", value("l"))));
    // A union of another target counts as unset.
    assert!(ask(compare(CompareTarget::Version, CompareResult::Greater, "a", TargetUnion::ModRevision(7))));
    let over_range = |range_end: &'static str, union| Compare {
        range_end: range_end.into(),
        ..compare(CompareTarget::Mod, CompareResult::Less, "a", union)
    };
    assert!(ask(over_range("c", TargetUnion::ModRevision(4))));
    assert!(!ask(over_range("c", TargetUnion::ModRevision(3))));
    assert!(ask(over_range("b", TargetUnion::ModRevision(3))));
    let empty = compare(CompareTarget::Mod, CompareResult::Equal, "x", TargetUnion::ModRevision(0));
    assert!(ask(Compare { range_end: "\0".into(), ..empty }));
}

#[test]
fn nested_conditions_see_the_state_before_the_transaction() {
    let mut node = Node::new();
    let is_new = compare(CompareTarget::Version, CompareResult::Equal, "a", TargetUnion::Version(0));
    let nested = TxnRequest { compare: vec![is_new], ..txn(vec![Request::RequestPut(put("b", "new"))]) };
    let outer = txn(vec![Request::RequestPut(put("a", "1")), Request::RequestTxn(nested)]);
    run_txn(&mut node, outer).unwrap();
    assert_eq!(keys(&node.range(&all()).unwrap()), ["a", "b"]);
    assert_eq!(node.store.revision(), 2);
}

#[test]
fn entries_of_one_stride_see_each_other() {
    let mut node = Node::new();
    let results = node
        .apply_all(vec![
            put("a", "1").raft(),
            put("a", "2").raft(),
            txn(vec![Request::RequestRange(RangeRequest { revision: 2, ..range("a", "") })]).raft(),
            RangeRequest { revision: 3, ..range("a", "") }.raft(),
            delete("a", "b").raft(),
            txn(vec![Request::RequestRange(all())]).raft(),
            compact(4),
            txn(vec![Request::RequestRange(RangeRequest { revision: 3, ..all() })]).raft(),
        ])
        .results;
    let results: Vec<_> = results.into_iter().map(|(_, result)| result).collect();
    let Ok(Response::Txn(first)) = &results[2] else { panic!() };
    let Some(OpResponse::ResponseRange(old)) = &first.responses[0].response else { panic!() };
    assert_eq!((&old.kvs[0].value[..], old.header.unwrap().revision), (&b"1"[..], 3));
    let Ok(Response::Range(newer)) = &results[3] else { panic!() };
    assert_eq!(&newer.kvs[0].value[..], b"2");
    let Ok(Response::Txn(after)) = &results[5] else { panic!() };
    let Some(OpResponse::ResponseRange(none)) = &after.responses[0].response else { panic!() };
    assert_eq!((none.count, none.header.unwrap().revision), (0, 4));
    assert_eq!(results[7], Err(Error::Compacted));
}

#[test]
fn compaction_rules() {
    let mut node = filled(&[("a", "1"), ("a", "2"), ("b", "1")]);
    node.apply(delete("b", "").raft()).unwrap();
    assert_eq!(node.apply(compact(6)), Err(Error::FutureRev));
    assert_eq!(node.apply(compact(-1)), Err(Error::Compacted));
    assert_eq!(node.apply(compact(i64::MIN)), Err(Error::Compacted));
    let before = node.store.usage().live_bytes;
    node.apply(compact(5)).unwrap();
    assert_eq!(node.apply(compact(5)), Err(Error::Compacted));
    assert_eq!((node.store.compact_revision(), node.store.compacted()), (5, -1));
    node.settle();
    assert_eq!(node.store.compacted(), 5);
    assert!(node.store.usage().live_bytes < before);
    assert_eq!(node.range(&RangeRequest { revision: 5, ..all() }).unwrap().count, 1);
}

#[test]
fn a_pinned_reader_holds_compaction_up() {
    let mut node = filled(&[("a", "1"), ("a", "2"), ("a", "3")]);
    let snapshot = node.applier.snapshot();
    node.apply(compact(4)).unwrap();
    while node.store.maintain(1 << 20).unwrap().work == Work::Busy {}
    assert_eq!(node.store.maintain(1 << 20).unwrap().work, Work::Waiting);
    drop(snapshot);
    node.settle();
    assert_eq!(node.store.compacted(), 4);
}

#[test]
fn leases_come_and_go_with_their_keys() {
    let mut node = Node::new();
    let Ok(Response::LeaseGrant(answer)) = node.apply(grant(-5, 1)) else { panic!() };
    assert_eq!((answer.id, answer.ttl, answer.error.as_str()), (-5, 2, ""));
    for key in ["c", "a", "b"] {
        node.apply(PutRequest { lease: -5, ..put(key, "") }.raft()).unwrap();
    }
    node.apply(put("b", "").raft()).unwrap();
    assert_eq!(node.store.leases().keys(-5), ["a", "c"]);
    node.checkpoint();
    node.reopen();
    assert_eq!(node.store.leases().keys(-5), ["a", "c"]);
    assert_eq!(node.store.leases().lease_of(b"a"), -5);
    assert_eq!(node.apply(revoke(6)), Err(Error::LeaseNotFound));
    assert_eq!(revision_of(&node.apply(revoke(-5))), 6);
    assert_eq!((keys(&node.range(&all()).unwrap()), node.store.leases().count()), (vec!["b"], 0));
    assert_eq!(node.apply(revoke(-5)), Err(Error::LeaseNotFound));
}

fn alarm(action: alarm_request::AlarmAction, alarm: AlarmType) -> InternalRaftRequest {
    AlarmRequest { action: action as i32, member_id: 1, alarm: alarm as i32 }.raft()
}

#[test]
fn alarms_refuse() {
    use alarm_request::AlarmAction::*;
    let mut node = filled(&[("a", "1")]);
    node.apply(alarm(Activate, AlarmType::Nospace)).unwrap();
    assert_eq!(node.apply(put("b", "").raft()), Err(Error::NoSpace));
    assert_eq!(node.apply(grant(1, 10)), Err(Error::NoSpace));
    assert_eq!(run_txn(&mut node, txn(vec![Request::RequestPut(put("b", ""))])), Err(Error::NoSpace));
    run_txn(&mut node, txn(vec![Request::RequestDeleteRange(delete("a", ""))])).unwrap();
    node.apply(compact(3)).unwrap();
    node.checkpoint();
    node.reopen();
    assert_eq!(node.apply(put("b", "").raft()), Err(Error::NoSpace), "alarms survive a restart");
    node.apply(alarm(Activate, AlarmType::Corrupt)).unwrap();
    for refused in [put("b", "").raft(), delete("a", "").raft(), txn(vec![]).raft(), compact(3), grant(1, 5), revoke(1)]
    {
        assert_eq!(node.apply(refused), Err(Error::Corrupt));
    }
    assert_eq!(node.store.alarms().len(), 2);
    node.apply(alarm(Deactivate, AlarmType::Corrupt)).unwrap();
    node.apply(alarm(Deactivate, AlarmType::Nospace)).unwrap();
    node.apply(put("b", "").raft()).unwrap();
}

#[test]
fn an_entry_over_quota_is_applied_and_raises_the_alarm() {
    let mut node = Node::with(Options { quota_bytes: 2000, ..small_segments() });
    let mut told = Told::default();
    for at in 0..10 {
        let put = put(&format!("k{at}"), &"v".repeat(300)).raft();
        let expected = node.store.quota_check(&put).is_err();
        let entry = node.entry(put);
        let (before, revision) = (told.no_space, node.store.revision());
        node.applier.apply(&[entry], &mut told).unwrap();
        assert_eq!(node.store.revision(), revision + 1);
        assert_eq!(told.no_space - before, usize::from(expected));
        assert_eq!(told.results.last().unwrap().1.is_err(), expected);
    }
    assert!(told.no_space > 2);
    assert_eq!(node.store.quota_check(&delete("a", "").raft()), Ok(()));
    let unlimited = Node::with(Options { quota_bytes: -1, ..small_segments() });
    assert!(!unlimited.store.over_quota(u64::MAX));
}

#[test]
fn a_full_disk_is_noticed_before_a_write_fails() {
    let mut node = filled(&[("a", "1")]);
    node.settle();
    assert!(!node.store.over_quota(1));
    node.disk.set_capacity(Some(40 << 10));
    node.settle();
    assert_eq!(node.store.quota_check(&put("b", "").raft()), Err(Error::NoSpace));
    assert_eq!(node.store.quota_check(&delete("a", "").raft()), Ok(()));
    node.disk.set_capacity(None);
    node.settle();
    assert!(!node.store.over_quota(1));
    node.apply(put("b", "").raft()).unwrap();
}

#[test]
fn hashes_are_those_of_etcd() {
    // The numbers are what etcd 3.7.3 answered to the same requests.
    let mut node = filled(&[("foo", "bar")]);
    let hash = |node: &Node, revision| node.store.hash_kv(revision).map(|hash| (hash.hash, hash.compact_revision));
    assert_eq!(hash(&node, 0), Ok((3_305_255_506, -1)));
    assert_eq!(hash(&node, 3), Err(Error::FutureRev));
    node.apply(put("foo", "baz").raft()).unwrap();
    assert_eq!(hash(&node, 3), Ok((2_020_292_994, -1)));
    node.apply(delete("foo", "").raft()).unwrap();
    assert_eq!(hash(&node, 0), Ok((3_153_096_970, -1)));
    node.apply(compact(3)).unwrap();
    node.settle();
    // Of a finished compaction: what it found.
    assert_eq!(hash(&node, 3), Ok((2_020_292_994, -1)));
    // Nothing is alive at 4: etcd's rule then counts what the compaction has left.
    assert_eq!(hash(&node, 4), Ok((588_758_777, 3)));
    assert_eq!(hash(&node, 2), Err(Error::Compacted));
    node.checkpoint();
    node.reopen();
    assert_eq!(hash(&node, 4), Ok((588_758_777, 3)));
    assert_eq!(hash(&node, 3).map(|hash| hash.1), Ok(3));
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
fn a_big_deletion_is_one_revision() {
    let mut node = Node::new();
    node.apply_all((0..2500).map(|key| put(&format!("key{key:05}"), "").raft()).collect());
    let Ok(Response::DeleteRange(answer)) = node.apply(delete("key00100", "\0").raft()) else { panic!() };
    assert_eq!((answer.deleted, answer.header.unwrap().revision), (2400, 2502));
    assert_eq!(node.range(&all()).unwrap().count, 100);
    assert_eq!(node.range(&RangeRequest { revision: 2501, count_only: true, ..all() }).unwrap().count, 2500);
}

#[test]
fn heavy_ranges_are_known() {
    let mut node = Node::new();
    let many = api::limits::INLINE_SORT_KEYS_MAX + 1;
    node.apply_all((0..many).map(|key| put(&format!("key{key:05}"), "").raft()).collect());
    let heavy = |request: RangeRequest| node.store.is_heavy(&request);
    let by_value = RangeRequest { sort_target: 4, sort_order: 1, limit: 1, ..all() };
    assert!(heavy(all()) && heavy(by_value.clone()) && heavy(RangeRequest { min_mod_revision: 1, limit: 1, ..all() }));
    assert!(heavy(RangeRequest { revision: 2, count_only: true, ..all() }));
    assert!(!heavy(RangeRequest { limit: 1, ..all() }) && !heavy(RangeRequest { count_only: true, ..all() }));
    assert!(!heavy(range("key00001", "")) && !heavy(RangeRequest { range_end: "key00009".into(), ..by_value }));
}

#[test]
fn read_only_transactions() {
    let mut node = filled(&[("a", "1"), ("b", "2")]);
    let request =
        txn(vec![Request::RequestRange(range("a", "")), Request::RequestRange(RangeRequest { limit: 1, ..all() })]);
    assert!(store::is_read_only(&request) && store::is_read_only(&txn(vec![])));
    assert!(!store::is_read_only(&txn(vec![Request::RequestTxn(txn(vec![]))])));
    let response = node.store.read_txn(&request).unwrap();
    assert_eq!(Ok(response), run_txn(&mut node, request));
    let future = txn(vec![Request::RequestRange(RangeRequest { revision: i64::MAX, ..all() })]);
    assert_eq!(node.store.read_txn(&future), Err(Error::FutureRev));
}

#[test]
fn membership_goes_through_the_log() {
    use api::membershippb::{
        Attributes, ClusterMemberAttrSetRequest, ClusterVersionSetRequest, DowngradeInfoSetRequest,
    };
    use api::raftpb;
    let mut node = Node::new();
    let context = store::ConfChangeContext {
        member: store::Member { id: 9, peer_urls: vec!["http://a:1".into()], ..Default::default() },
        is_promote: false,
    };
    let change =
        raftpb::ConfChange { id: Some(77), node_id: Some(9), context: Some(context.encode().into()), r#type: None };
    let mut told = Told::default();
    for _ in 0..2 {
        let index = node.entries.len() as u64 + 1;
        let entry = raftpb::Entry {
            term: Some(3),
            index: Some(index),
            r#type: Some(raftpb::EntryType::EntryConfChange as i32),
            data: Some(change.encode_to_vec().into()),
        };
        node.entries.push(entry.clone());
        node.applier.apply(&[entry], &mut told).unwrap();
    }
    assert_eq!(told.results, [(77, Ok(Response::None)), (77, Err(Error::MemberExist))]);
    let ids: Vec<_> = told.changes.iter().map(|change| change.node_id()).collect();
    assert_eq!(ids, [9, 0], "a change that cannot be has no node");
    let attributes = Attributes { name: "nine".into(), client_urls: vec!["http://c:1".into()] };
    node.apply(ClusterMemberAttrSetRequest { member_id: 9, member_attributes: Some(attributes) }.raft()).unwrap();
    node.apply(ClusterVersionSetRequest { ver: "3.7.0".into() }.raft()).unwrap();
    node.apply(DowngradeInfoSetRequest { enabled: true, ver: "3.6.0".into() }.raft()).unwrap();
    let members = node.store.members();
    for _ in 0..2 {
        assert!(!node.applier.can_capture(), "Raft has not said what it made of the change");
        node.applier.set_conf_state(raftpb::ConfState { voters: vec![9], ..Default::default() });
    }
    assert!(node.applier.can_capture());
    node.checkpoint();
    node.reopen();
    assert_eq!(node.store.members(), members);
    assert_eq!((members.members[&9].name.as_str(), node.store.cluster_version().as_str()), ("nine", "3.7.0"));
    assert_eq!(members.downgrade.target_version, "3.6.0");
    assert_eq!(node.applier.checkpoint().applied_index(), 5);
}

#[test]
fn entries_are_applied_once_and_in_order() {
    let mut node = Node::new();
    let first = node.entry(put("a", "1").raft());
    let second = node.entry(put("a", "2").raft());
    let mut told = Told::default();
    node.applier.apply(&[first.clone(), second.clone()], &mut told).unwrap();
    node.applier.apply(&[first, second], &mut told).unwrap();
    assert_eq!((node.store.revision(), told.results.len(), node.applier.applied_index()), (3, 2, 2));
    node.entry(put("a", "3").raft());
    let fourth = node.entry(put("a", "4").raft());
    assert!(matches!(node.applier.apply(&[fourth], &mut told), Err(store::Fatal::Gap { applied: 2, found: 4 })));
    let mut other = Node::new();
    let mut broken = other.entry(put("a", "1").raft());
    broken.data = Some(b"\x22\xff".as_slice().into());
    assert!(matches!(other.applier.apply(&[broken], &mut told), Err(store::Fatal::Entry { index: 1, .. })));
    let mut leader = Node::new();
    let mut empty = leader.entry(put("a", "1").raft());
    empty.data = None;
    leader.applier.apply(&[empty], &mut told).unwrap();
    assert_eq!((leader.applier.applied_index(), leader.store.revision()), (1, 1));
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
