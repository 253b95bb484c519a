//! Messages nested as deep as allowed, on a stack of 2 MiB, as threads have.

use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response;
use api::etcdserverpb::{
    Compare, InternalRaftRequest, PutRequest, RequestOp, ResponseOp, TxnRequest, TxnResponse, WatchRequest,
};
use api::limits::TXN_NESTING_MAX;
use api::{Message, check, decode, raftpb};

const STACK_BYTES: usize = 2 << 20;

fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).expect("a thread");
    thread.join().expect("the work is done");
}

fn nested(depth: usize) -> TxnRequest {
    let put = PutRequest { key: "k".into(), value: "v".into(), ..Default::default() };
    let op = |request| RequestOp { request: Some(request) };
    let mut txn = TxnRequest { success: vec![op(Request::RequestPut(put))], ..Default::default() };
    for _ in 1..depth {
        let compare = vec![Compare { key: "c".into(), ..Default::default() }];
        txn = TxnRequest { compare, success: vec![op(Request::RequestTxn(txn))], failure: Vec::new() };
    }
    txn
}

#[test]
fn transactions_are_decoded_checked_and_encoded() {
    on_a_small_stack(|| {
        let sent = nested(TXN_NESTING_MAX);
        let wire = sent.encode_to_vec();
        assert_eq!(wire.len(), sent.encoded_len());
        let got = decode::txn(wire.into(), usize::MAX).expect("not too deep");
        assert_eq!(got, sent);
        assert_eq!(check::txn(&got, TXN_NESTING_MAX), Ok(()));
        assert!(!format!("{:?}", got.clone()).is_empty());
        let deeper = nested(TXN_NESTING_MAX + 1);
        assert!(check::txn(&deeper, usize::MAX).is_err());
        assert!(matches!(decode::txn(deeper.encode_to_vec().into(), usize::MAX), Err(decode::Error::TooDeep)));
    });
}

#[test]
fn answers_to_them_are_encoded() {
    on_a_small_stack(|| {
        let mut answer = TxnResponse::default();
        for _ in 1..TXN_NESTING_MAX {
            let response = Some(Response::ResponseTxn(answer));
            answer = TxnResponse { responses: vec![ResponseOp { response }], ..Default::default() };
        }
        assert_eq!(answer.encode_to_vec().len(), answer.encoded_len());
    });
}

/// Messages and groups that are unknown, in each kind of message that others send: prost takes a hundred of them inside each other.
#[test]
fn what_is_unknown_is_not_followed_down() {
    on_a_small_stack(|| {
        let groups = vec![0x0b; 1 << 20];
        assert!(TxnRequest::decode(&groups[..]).is_err() && decode::txn(groups.clone().into(), usize::MAX).is_err());
        assert!(InternalRaftRequest::decode(&groups[..]).is_err());
        assert!(WatchRequest::decode(&groups[..]).is_err());
        assert!(raftpb::Message::decode(&groups[..]).is_err() && raftpb::Entry::decode(&groups[..]).is_err());
        let deep = nested(TXN_NESTING_MAX).encode_to_vec();
        assert!(TxnRequest::decode(&deep[..]).is_err(), "prost stops before");
    });
}
