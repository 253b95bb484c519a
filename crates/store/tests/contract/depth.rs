//! Transactions nested as deep as allowed, on a stack of 2 MiB, as the threads have that apply and answer.

use crate::support::Node;
use crate::support::requests::{Raft, delete, op, put};
use api::Error;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response as Answer;
use api::etcdserverpb::{RangeRequest, RequestOp, TxnRequest, TxnResponse};
use api::limits::TXN_NESTING_MAX;

const STACK_BYTES: usize = 2 << 20;

#[allow(clippy::disallowed_methods, reason = "the stack of a thread is what is tested")]
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).expect("a thread");
    thread.join().expect("the work is done");
}

/// `inner` in as many transactions as there may be.
fn nested(inner: Vec<RequestOp>) -> TxnRequest {
    let mut txn = TxnRequest { success: inner, ..Default::default() };
    for _ in 1..TXN_NESTING_MAX {
        txn = TxnRequest { success: vec![op(Request::RequestTxn(txn))], ..Default::default() };
    }
    txn
}

fn depth(mut answer: &TxnResponse) -> usize {
    let mut depth = 1;
    while let Some(Answer::ResponseTxn(nested)) = answer.responses.first().and_then(|first| first.response.as_ref()) {
        (answer, depth) = (nested, depth + 1);
    }
    depth
}

#[test]
fn transactions_are_weighed_applied_and_answered() {
    on_a_small_stack(|| {
        let mut node = Node::new();
        // It names a revision that is to come, which is looked for before anything is written.
        let future = RangeRequest { key: "k".into(), revision: 9, ..Default::default() };
        let early = nested(vec![op(Request::RequestPut(put("k", "v"))), op(Request::RequestRange(future))]);
        assert_eq!(node.apply(early.raft()), Err(Error::FutureRev));

        let writes =
            nested(vec![op(Request::RequestPut(put("k", "v"))), op(Request::RequestDeleteRange(delete("d", "")))]);
        assert!(store::txn_cost(&writes) > 0 && !store::is_read_only(&writes));
        assert_eq!(node.store.txn_answer_bytes(&writes), 0, "neither shows what was there before");
        assert_eq!(node.store.txn_delete_cost_bytes(&writes), 0, "there is nothing to delete");
        assert_eq!((node.store.txn_keys(&writes), node.store.txn_answer_is_too_large(&writes)), (2, false));
        assert_eq!((store::sorts_by_value(&writes), node.store.txn_sort_keys(&writes)), (false, 0));
        let answer = node.apply(writes.raft()).expect("applied");
        let store::Response::Txn(answer) = answer else { panic!("of a transaction") };
        assert_eq!((depth(&answer), node.store.revision()), (TXN_NESTING_MAX, 2));

        node.reopen();
        assert_eq!(node.store.revision(), 2);
    });
}
