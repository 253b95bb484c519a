//! Puts, deletions and transactions.

use super::{filled, keys, revision_of, run_txn, txn};
use crate::support::requests::*;
use crate::support::{Node, Told};
use api::Error;
use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response as OpResponse;
use api::etcdserverpb::*;
use store::Response;

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
fn a_big_deletion_is_one_revision() {
    let mut node = Node::new();
    node.apply_all((0..2500).map(|key| put(&format!("key{key:05}"), "").raft()).collect());
    let Ok(Response::DeleteRange(answer)) = node.apply(delete("key00100", "\0").raft()) else { panic!() };
    assert_eq!((answer.deleted, answer.header.unwrap().revision), (2400, 2502));
    assert_eq!(node.range(&all()).unwrap().count, 100);
    assert_eq!(node.range(&RangeRequest { revision: 2501, count_only: true, ..all() }).unwrap().count, 2500);
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
