//! What one transaction may cost: weighed before it is proposed, and bounded when it is applied.

use crate::support::{Node, Told, requests::*};
use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::*;
use api::limits::{APPLY_STRIDE_ANSWER_BYTES, TXN_ANSWER_BYTES_MAX};
use api::{Error, Message, raftpb};
use store::{Response, Sink};

fn get(request: RangeRequest) -> RequestOp {
    op(Request::RequestRange(request))
}

fn set(key: &str, value: &str) -> RequestOp {
    op(Request::RequestPut(put(key, value)))
}

fn nested(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
    op(Request::RequestTxn(TxnRequest { success, failure, ..Default::default() }))
}

fn txn(success: Vec<RequestOp>) -> TxnRequest {
    TxnRequest { success, ..Default::default() }
}

/// Holds if every key of the range was put once.
fn put_once(key: &str, range_end: &str) -> Compare {
    Compare {
        key: key.to_owned().into(),
        range_end: range_end.to_owned().into(),
        target: CompareTarget::Version as i32,
        result: CompareResult::Equal as i32,
        target_union: Some(TargetUnion::Version(1)),
    }
}

#[test]
fn a_transaction_is_weighed_with_what_it_puts() {
    let mut node = Node::new();
    let value = "v".repeat(64 << 10);
    let puts: Vec<RequestOp> = (0..20).map(|key| set(&format!("{key:05}"), &value)).collect();
    let with = |ranges, request: RangeRequest| [puts.clone(), vec![get(request); ranges]].concat();
    let weigh = |node: &Node, request: &TxnRequest| {
        let over = node.store.txn_answer_bytes(request) > TXN_ANSWER_BYTES_MAX as u64;
        (over, node.store.txn_answer_is_too_large(request))
    };
    let many = with(500, all());
    assert_eq!(weigh(&node, &txn(many.clone())), (true, true));
    assert_eq!(weigh(&node, &txn(vec![nested(many.clone(), vec![])])), (true, true));
    assert_eq!(weigh(&node, &txn(with(300, all()))), (false, false));
    assert_eq!(weigh(&node, &txn(with(500, RangeRequest { count_only: true, ..all() }))), (false, false));
    assert_eq!(weigh(&node, &txn(with(500, RangeRequest { limit: 1, ..all() }))), (false, false));
    // It may be too large, and is not.
    assert_eq!(weigh(&node, &txn(with(500, RangeRequest { keys_only: true, ..all() }))), (true, false));
    let other = TxnRequest { failure: many.clone(), ..Default::default() };
    assert_eq!(weigh(&node, &other), (true, false));
    let deleted = op(Request::RequestDeleteRange(delete("\0", "\0")));
    assert_eq!(weigh(&node, &txn([puts.clone(), vec![deleted], vec![get(all()); 500]].concat())), (true, false));

    // What is there already is shown, too, unless it is put anew.
    node.apply(txn(puts.clone()).raft()).unwrap();
    assert_eq!(weigh(&node, &txn([vec![set("k", "")], vec![get(all()); 500]].concat())), (true, true));
    assert_eq!(weigh(&node, &txn(with(300, all()))), (true, false));
    let failing = Compare { key: "00000".into(), target_union: Some(TargetUnion::Version(2)), ..put_once("", "") };
    assert_eq!(weigh(&node, &TxnRequest { compare: vec![failing], ..txn(many) }), (true, false));
    // So is what was there at an old revision.
    let old = RangeRequest { revision: 2, ..all() };
    node.apply(delete("\0", "\0").raft()).unwrap();
    assert!(node.store.txn_answer_bytes(&txn(vec![set("k", ""), get(old)])) >= 20 << 16);
}

/// Waits for some answers only, and measures what it is given in one go.
#[derive(Default)]
struct Crowd {
    told: Told,
    waits: bool,
    bytes: usize,
    most: usize,
}

impl Sink for Crowd {
    fn is_awaited(&self, _: u64) -> bool {
        self.waits
    }
    fn hand_out(&mut self) {
        self.bytes = 0;
    }
    fn done(&mut self, index: u64, request_id: u64, result: Result<Response, Error>) {
        if let Ok(Response::Txn(txn)) = &result {
            self.bytes += txn.encoded_len();
            self.most = self.most.max(self.bytes);
        }
        self.told.done(index, request_id, result);
    }
    fn conf_change(&mut self, _: u64, _: raftpb::ConfChange) {}
    fn over_quota(&mut self, _: &Response) {}
}

#[test]
fn answers_are_handed_out_before_they_pile_up() {
    let mut node = Node::new();
    let value = "v".repeat(1 << 20);
    let request = txn([vec![set("k", &value)], vec![get(all()); 4]].concat());
    let entries: Vec<_> = (0..32).map(|_| node.entry(request.clone().raft())).collect();
    let mut crowd = Crowd { waits: true, ..Crowd::default() };
    node.applier.apply(&entries, &mut crowd).unwrap();
    assert_eq!(crowd.told.results.len(), 32);
    assert!(crowd.most <= APPLY_STRIDE_ANSWER_BYTES + (5 << 20), "{} bytes at once", crowd.most);
}

#[test]
fn an_answer_that_nobody_waits_for_is_not_built() {
    let prev = |key: &str| DeleteRangeRequest { prev_kv: true, ..delete(key, "") };
    let requests = || {
        let ops = vec![set("a", "1"), set("b", "2"), get(all()), op(Request::RequestDeleteRange(prev("b")))];
        let again = PutRequest { prev_kv: true, ..put("a", "3") };
        let kept = PutRequest { prev_kv: true, ignore_value: true, ..put("a", "") };
        [txn(ops).raft(), again.raft(), kept.raft(), set_and_get().raft(), prev("a").raft()]
    };
    fn set_and_get() -> TxnRequest {
        txn(vec![set("c", "4"), get(all())])
    }
    let [waits, does_not] = [true, false].map(|waits| {
        let mut node = Node::new();
        let entries: Vec<_> = requests().into_iter().map(|request| node.entry(request)).collect();
        let mut crowd = Crowd { waits, ..Crowd::default() };
        node.applier.apply(&entries, &mut crowd).unwrap();
        let pairs = |response: &Response| match response {
            Response::Put(put) => put.prev_kv.iter().count(),
            Response::DeleteRange(deleted) => deleted.prev_kvs.len(),
            Response::Txn(txn) => txn.responses.iter().map(shown).sum(),
            _ => 0,
        };
        let results = crowd.told.results.iter();
        let pairs: Vec<usize> = results.map(|(_, result)| pairs(result.as_ref().unwrap())).collect();
        (pairs, node.range(&all()).unwrap(), node.store.revision())
    });
    assert_eq!(waits.0, [3, 1, 1, 2, 1]);
    assert_eq!(does_not.0, [0; 5]);
    assert_eq!((waits.1, waits.2), (does_not.1, does_not.2), "the state is the same");
}

fn shown(op: &ResponseOp) -> usize {
    match &op.response {
        Some(response_op::Response::ResponseRange(range)) => range.kvs.len(),
        Some(response_op::Response::ResponseDeleteRange(deleted)) => deleted.prev_kvs.len(),
        _ => 0,
    }
}

#[test]
fn the_keys_that_a_transaction_looks_at_are_counted() {
    let mut node = Node::new();
    node.apply_all((0..1000).map(|key| put(&format!("key{key:04}"), "").raft()).collect());
    let keys = |node: &Node, request: &TxnRequest| node.store.txn_keys(request);
    let deleted = |key, range_end| op(Request::RequestDeleteRange(delete(key, range_end)));

    let conditions = TxnRequest { compare: vec![put_once("key", "kez"); 300], ..Default::default() };
    assert_eq!(keys(&node, &conditions), 300_000);
    assert_eq!(keys(&node, &TxnRequest { compare: vec![put_once("key0001", ""); 300], ..Default::default() }), 300);
    let in_it = TxnRequest { failure: vec![op(Request::RequestTxn(conditions.clone()))], ..txn(vec![get(all()); 2]) };
    assert_eq!(keys(&node, &in_it), 300_000, "of the dearer branch");

    assert_eq!(keys(&node, &txn(vec![get(all()); 7])), 7_000);
    assert_eq!(keys(&node, &txn(vec![get(RangeRequest { limit: 9, ..all() }); 7])), 70);
    assert_eq!(keys(&node, &txn(vec![get(RangeRequest { limit: 9, sort_order: 1, sort_target: 3, ..all() })])), 1_000);
    assert_eq!(keys(&node, &txn(vec![get(RangeRequest { count_only: true, ..all() }); 7])), 0);
    assert_eq!(keys(&node, &txn(vec![get(RangeRequest { count_only: true, revision: 5, ..all() })])), 1_000);
    // What it puts itself is looked at, too.
    assert_eq!(keys(&node, &txn(vec![set("a", ""), set("key", ""), get(range("a", "b")), get(all())])), 1_003);

    // What is deleted once is not counted; what is passed over because of that is.
    assert_eq!(keys(&node, &txn(vec![deleted("\0", "\0")])), 0);
    assert_eq!(keys(&node, &txn(vec![deleted("\0", "\0"); 3])), 2_000);
    assert_eq!(keys(&node, &txn(vec![deleted("key", "key05"), deleted("key05", "kez")])), 0);
    let count = get(RangeRequest { count_only: true, ..all() });
    assert_eq!(keys(&node, &txn(vec![deleted("\0", "\0"), count.clone(), count])), 2_000);
    assert_eq!(keys(&node, &txn(vec![nested(vec![deleted("\0", "\0")], vec![]); 3])), 3_000);

    // Deleted keys are passed over one by one until they are compacted.
    node.apply(delete("\0", "\0").raft()).unwrap();
    assert_eq!(keys(&node, &conditions), 300_000);
    assert_eq!(keys(&node, &txn(vec![get(RangeRequest { limit: 9, ..all() }); 7])), 7_000);
    assert_eq!(keys(&node, &txn(vec![deleted("\0", "\0")])), 1_000, "to delete them again takes a look at each");
    node.apply(put("key0500", "").raft()).unwrap();
    assert_eq!(keys(&node, &txn(vec![deleted("\0", "\0")])), 999);
    node.apply(delete("key0500", "").raft()).unwrap();
    node.apply(compact(node.store.revision()).clone()).unwrap();
    node.apply(put("other", "").raft()).unwrap();
    node.apply(compact(node.store.revision()).clone()).unwrap();
    node.settle();
    assert_eq!(keys(&node, &conditions), 0);
}
