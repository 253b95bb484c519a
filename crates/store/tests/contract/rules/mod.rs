//! The rules that clients can see, one by one.
#![allow(clippy::unwrap_used)]

mod ranges;
mod upkeep;
mod writes;

use crate::support::Node;
use crate::support::requests::*;
use api::Error;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::*;
use store::Response;

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
        Response::Auth(response, _) => response.header,
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
