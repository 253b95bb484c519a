//! Writes whose room takes a look at many keys.

use super::{fill, occupy_slow_threads};
use crate::overload::Class;
use crate::test_support::Rig;
use api::etcdserverpb::response_op::Response;
use api::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, RequestOp, TxnRequest, TxnResponse, request_op::Request,
};
use api::limits::INLINE_SORT_KEYS_MAX;

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
