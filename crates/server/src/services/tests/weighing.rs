//! Writes whose room takes a look at many keys, and those that would cost every member too much.

use super::{fill, occupy_slow_threads};
use crate::overload::Class;
use crate::test_support::Rig;
use api::etcdserverpb::alarm_request::AlarmAction;
use api::etcdserverpb::range_request::{SortOrder, SortTarget};
use api::etcdserverpb::response_op::Response;
use api::etcdserverpb::{
    AlarmRequest, AlarmResponse, Compare, DeleteRangeRequest, DeleteRangeResponse, LeaseGrantRequest,
    LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
    RequestOp, TxnRequest, TxnResponse, request_op::Request,
};
use api::limits::{INLINE_SORT_KEYS_MAX, TXN_ANSWER_BYTES_MAX, TXN_KEYS_MAX};
use api::{Code, Error, Message};

const DELETE_RANGE: &str = "/etcdserverpb.KV/DeleteRange";
const TXN: &str = "/etcdserverpb.KV/Txn";

fn delete(key: String, range_end: &str) -> DeleteRangeRequest {
    DeleteRangeRequest { key: key.into(), range_end: range_end.to_owned().into(), prev_kv: false }
}

fn txn(deletes: Vec<DeleteRangeRequest>) -> TxnRequest {
    let op = |delete| RequestOp { request: Some(Request::RequestDeleteRange(delete)) };
    TxnRequest { success: deletes.into_iter().map(op).collect(), ..Default::default() }
}

#[test]
fn deletions_of_many_keys_are_weighed_on_slow_threads() {
    let rig = Rig::start(&[]);
    let keys = INLINE_SORT_KEYS_MAX + 2;
    fill(&rig, keys);
    let go_on = occupy_slow_threads(&rig);
    // Requests that match few keys or none need not wait.
    let few = delete(format!("large/{:09}", keys - 1), "large0");
    let answer: DeleteRangeResponse = rig.call(DELETE_RANGE, None, &few).expect("deleted");
    assert_eq!(answer.deleted, 1);
    let none = txn(vec![delete("none/".into(), "none0"); 100]);
    let _: TxnResponse = rig.call(TXN, None, &none).expect("applied");
    let waiting = |count| rig.wait_for("the slow threads", || rig.node().depth(Class::Slow) == count);
    let many = rig.begin(TXN, None, &txn(vec![delete("large/".into(), "large0")]));
    waiting(1);
    let again = rig.begin(DELETE_RANGE, None, &delete("large/".into(), "large0"));
    waiting(2);
    drop(go_on);
    let deleted = |answer: TxnResponse| match answer.responses.into_iter().next().and_then(|op| op.response) {
        Some(Response::ResponseDeleteRange(answer)) => answer.deleted,
        _ => panic!("an answer to a deletion"),
    };
    let both = [deleted(many.take().expect("applied")), again.take::<DeleteRangeResponse>().expect("deleted").deleted];
    // Either of the two may have been applied first.
    assert!(both.contains(&0) && both.iter().sum::<i64>() == keys as i64 - 1, "{both:?}");
}

#[test]
fn transactions_that_look_at_many_keys_are_weighed_on_slow_threads() {
    let rig = Rig::start(&[]);
    fill(&rig, INLINE_SORT_KEYS_MAX + 2);
    let _: DeleteRangeResponse = rig.call(DELETE_RANGE, None, &delete("large/".into(), "large0")).expect("deleted");
    let go_on = occupy_slow_threads(&rig);
    let get = |revision, limit| {
        let all = RangeRequest { key: "\0".into(), range_end: "\0".into(), revision, limit, ..Default::default() };
        let success = vec![put(1), RequestOp { request: Some(Request::RequestRange(all)) }];
        TxnRequest { success, ..Default::default() }
    };
    // What is not live is passed over one by one, at an old revision and now.
    let many = [get(2, 0), get(0, 1), txn(vec![delete("large/".into(), "large0")])];
    let begun: Vec<_> = (1..)
        .zip(&many)
        .map(|(waiting, txn)| {
            let begun = rig.begin(TXN, None, txn);
            rig.wait_for("the slow threads", || rig.node().depth(Class::Slow) == waiting);
            begun
        })
        .collect();
    // Few keys need not wait.
    let none = txn(vec![delete("none/".into(), "none0"); 100]);
    let _: TxnResponse = rig.call(TXN, None, &none).expect("applied");
    drop(go_on);
    let pairs: Vec<_> = begun
        .into_iter()
        .map(|begun| {
            let answer: TxnResponse = begun.take().expect("applied");
            match answer.responses.into_iter().next_back().and_then(|op| op.response) {
                Some(Response::ResponseRange(range)) => range.kvs.len(),
                _ => 0,
            }
        })
        .collect();
    assert_eq!(pairs, [128, 1, 0]);
}

fn put(value_bytes: usize) -> RequestOp {
    let put = PutRequest { key: "k".into(), value: vec![7; value_bytes].into(), ..Default::default() };
    RequestOp { request: Some(Request::RequestPut(put)) }
}

/// The error that a transaction is refused with, without having been applied.
fn refusal(rig: &Rig, txn: &TxnRequest) -> String {
    let before = rig.node().store.revision();
    let refused = rig.call::<TxnResponse>(TXN, None, txn).expect_err("it costs too much");
    assert_eq!(rig.node().store.revision(), before, "it was applied");
    refused.message.into()
}

#[test]
fn a_transaction_that_shows_what_it_puts_too_often_is_not_proposed() {
    let rig = Rig::start(&["--max-txn-ops=1000"]);
    let value_bytes = 1 << 20;
    let get = RangeRequest { key: "k".into(), ..Default::default() };
    let gets = |count| vec![RequestOp { request: Some(Request::RequestRange(get.clone())) }; count];
    let txn = |count| TxnRequest { success: [vec![put(value_bytes)], gets(count)].concat(), ..Default::default() };
    assert_eq!(refusal(&rig, &txn(TXN_ANSWER_BYTES_MAX / value_bytes + 1)), Error::TxnAnswerTooLarge.message());
    let answer: TxnResponse = rig.call(TXN, None, &txn(8)).expect("applied");
    assert_eq!(answer.responses.len(), 9);
}

#[test]
fn a_transaction_that_looks_at_too_many_keys_is_not_proposed() {
    let rig = Rig::start(&["--max-txn-ops=5000"]);
    let keys = TXN_KEYS_MAX as usize / 5000 + 1;
    fill(&rig, keys);
    let all = Compare { key: "large/".into(), range_end: "large0".into(), ..Default::default() };
    let txn = |conditions| TxnRequest {
        compare: vec![all.clone(); conditions],
        success: vec![put(1)],
        failure: vec![put(1)],
    };
    assert_eq!(refusal(&rig, &txn(5000)), Error::TxnTooManyKeys.message());
    let _: TxnResponse = rig.call(TXN, None, &txn(50)).expect("applied");
}

#[test]
fn what_is_under_way_looks_at_a_bounded_number_of_keys() {
    let rig = Rig::start(&["--max-txn-ops=5000"]);
    let keys = 2_000;
    fill(&rig, keys);
    let all = Compare { key: "large/".into(), range_end: "large0".into(), ..Default::default() };
    let txn = |conditions: u64| TxnRequest {
        compare: vec![all.clone(); conditions as usize],
        success: vec![put(1)],
        failure: vec![put(1)],
    };
    let most = TXN_KEYS_MAX / keys as u64;
    // Nothing is committed from here on.
    rig.cut_off(None);
    let pending = |count| rig.wait_for("proposals", || rig.node().proposals_pending() == count);
    let before = rig.node().proposals_pending();
    let _first = rig.begin(TXN, None, &txn(most));
    pending(before + 1);
    assert_eq!(refusal(&rig, &txn(2)), Error::TooManyRequests.message());
    assert_eq!(rig.node().refused(Class::Write), 1);
    // Other hosts find room.
    let _others = [1_u8, 2].map(|host| {
        let begun = rig.begin_from(host, TXN, &txn(most));
        pending(before + 1 + usize::from(host));
        begun
    });
    // Those that look at few keys go on.
    let _second = rig.begin(TXN, None, &TxnRequest { success: vec![put(1)], ..Default::default() });
    pending(before + 4);
}

#[test]
fn urgent_requests_are_proposed_without_what_nobody_knows() {
    let rig = Rig::start(&[]);
    let padding = [&[0x7a, 0x80, 0x80, 0x40][..], &[7; 1 << 20]].concat();
    let log_bytes = || rig.node().status.log_bytes();
    let before = log_bytes();
    for _ in 0..4 {
        let grant = LeaseGrantRequest { ttl: 100, id: 1 };
        let _: LeaseGrantResponse = rig.call("/etcdserverpb.Lease/LeaseGrant", None, &grant).expect("granted");
        let revoke = [LeaseRevokeRequest { id: 1 }.encode_to_vec(), padding.clone()].concat();
        let revoked = rig.begin_raw("/etcdserverpb.Lease/LeaseRevoke", None, revoke.into());
        let _: LeaseRevokeResponse = revoked.take().expect("revoked");
        let alarm = AlarmRequest { action: AlarmAction::Deactivate as i32, member_id: 1, alarm: 1 };
        let alarm = [alarm.encode_to_vec(), padding.clone()].concat();
        let _: AlarmResponse =
            rig.begin_raw("/etcdserverpb.Maintenance/Alarm", None, alarm.into()).take().expect("nothing to do");
    }
    assert!(log_bytes() < before + (1 << 20), "{before}, then {}", log_bytes());
}

#[test]
fn values_that_are_alike_are_sorted_on_slow_threads_and_not_too_often() {
    let rig = Rig::start(&[]);
    let (pairs, value_bytes) = (128, 256 << 10);
    for key in 0..pairs {
        let value = [vec![7; value_bytes], vec![key]].concat();
        let put = PutRequest { key: format!("alike/{key:03}").into(), value: value.into(), ..Default::default() };
        let _: PutResponse = rig.call("/etcdserverpb.KV/Put", None, &put).expect("put");
    }
    let (sort_order, sort_target) = (SortOrder::Descend as i32, SortTarget::Value as i32);
    let (key, range_end) = ("alike/".into(), "alike0".into());
    let first = RangeRequest { key, range_end, limit: 1, sort_order, sort_target, ..Default::default() };
    let op = RequestOp { request: Some(Request::RequestRange(first.clone())) };
    let txn = |ranges| TxnRequest { success: [vec![put(1)], vec![op.clone(); ranges]].concat(), ..Default::default() };
    // A hundred of them compare gigabytes, though they look at few keys.
    assert_eq!(refusal(&rig, &txn(127)), Error::TxnTooManyKeys.message());

    let go_on = occupy_slow_threads(&rig);
    let waiting = |count| rig.wait_for("the slow threads", || rig.node().depth(Class::Slow) == count);
    let written = rig.begin(TXN, None, &txn(2));
    waiting(1);
    let read = rig.begin("/etcdserverpb.KV/Range", None, &first);
    waiting(2);
    let reads = rig.begin(TXN, None, &TxnRequest { success: vec![op.clone(); 2], ..Default::default() });
    waiting(3);
    // Few bytes, and those of a pair alone, need not wait.
    let few = RangeRequest { range_end: "alike/001".into(), ..first.clone() };
    let few: RangeResponse = rig.call("/etcdserverpb.KV/Range", None, &few).expect("a pair");
    assert_eq!(few.kvs.len(), 1);
    drop(go_on);
    let last = format!("alike/{:03}", pairs - 1);
    assert_eq!(read.take::<RangeResponse>().expect("sorted").kvs[0].key, last);
    let written: TxnResponse = written.take().expect("applied");
    let reads: TxnResponse = reads.take().expect("read");
    for response in written.responses.into_iter().skip(1).chain(reads.responses) {
        let Some(Response::ResponseRange(range)) = response.response else { panic!("an answer to a range") };
        assert_eq!(range.kvs[0].key, last);
    }
}

#[test]
fn a_transaction_is_not_decoded_beyond_what_is_taken() {
    const EMPTY_OPERATION: [u8; 2] = [0x12, 0];
    const FAULT: u8 = 0xff;
    for (flags, ops_max) in [(&["--max-txn-ops=100"][..], 10_000), (&["--max-txn-ops=5000"], 15_000)] {
        let rig = Rig::start(flags);
        let sent = |ops: usize| [&EMPTY_OPERATION.repeat(ops), &[FAULT][..]].concat().into();
        // A fault behind them is found only if all are looked at.
        let refused = rig.begin_raw(TXN, None, sent(ops_max)).take::<TxnResponse>().expect_err("a fault");
        assert_eq!(refused.code, Code::Internal, "{refused:?}");
        let refused = rig.begin_raw(TXN, None, sent(ops_max + 1)).take::<TxnResponse>().expect_err("too many");
        assert_eq!(refused.message, Error::TooManyOps.message());
    }
}
