//! Acquiring a lease key, which reads its key.

use api::Message as _;
use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response;
use api::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, RequestOp, ResponseHeader, ResponseOp,
    TxnRequest, TxnResponse,
};
use api::mvccpb::KeyValue;
use bytes::{Bytes, BytesMut};

use super::REVOKE;
use super::book::{Acquired, Acquisition, Release};
use super::mistake::Mistake;

/// The lease key of a key.
pub(crate) fn lease_key(prefix: &[u8], key: &[u8]) -> Bytes {
    let mut joined = BytesMut::with_capacity(prefix.len().saturating_add(key.len()));
    joined.extend_from_slice(prefix);
    joined.extend_from_slice(key);
    joined.freeze()
}

pub(super) fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

pub(super) fn read(key: Bytes) -> RequestOp {
    op(Request::RequestRange(RangeRequest { key, ..RangeRequest::default() }))
}

pub(super) fn pairs(op: Option<ResponseOp>) -> Option<RangeResponse> {
    match op?.response? {
        Response::ResponseRange(range) => Some(range),
        _ => None,
    }
}

/// That a key was created by a revision; 0 if it is not to be there.
pub(super) fn created(key: Bytes, result: CompareResult, revision: i64) -> Compare {
    let target_union = Some(TargetUnion::CreateRevision(revision));
    Compare { result: result as i32, target: CompareTarget::Create as i32, key, target_union, range_end: Bytes::new() }
}

/// The transaction that acquires a lease key. Keys that are not there are not kept: what creates one need not ask for its lease key then,
/// and locks and elections create keys without asking.
pub(crate) fn acquiring(prefix: &[u8], acquisition: &Acquisition) -> TxnRequest {
    let (key, lease_key) = (acquisition.key.clone(), lease_key(prefix, &acquisition.key));
    let unleased = Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Lease as i32,
        key: key.clone(),
        target_union: Some(TargetUnion::Lease(0)),
        range_end: Bytes::new(),
    };
    let put = PutRequest { key: lease_key.clone(), lease: acquisition.lease, ..PutRequest::default() };
    TxnRequest {
        compare: vec![
            created(lease_key.clone(), CompareResult::Equal, 0),
            created(key.clone(), CompareResult::Greater, 0),
            unleased,
        ],
        success: vec![read(key.clone()), op(Request::RequestPut(put))],
        failure: vec![read(key), read(lease_key)],
    }
}

/// What came of it, and the read's own answer; none if it cannot be understood. `lease` is that of the acquisition.
pub(crate) fn acquired(answer: TxnResponse, lease: i64) -> (Acquired, Option<RangeResponse>) {
    let header = answer.header.unwrap_or_default();
    let mut ops = answer.responses.into_iter();
    let Some(mut range) = pairs(ops.next()) else { return (Acquired::Unknown, None) };
    range.header = Some(header);
    let how = match range.kvs.first() {
        Some(kv) if answer.succeeded => {
            // Copies: the answer may hold a claim of the client that asked.
            let (key, value) = (Bytes::copy_from_slice(&kv.key), Bytes::copy_from_slice(&kv.value));
            Acquired::Yes(KeyValue { key, value, ..kv.clone() }, header)
        }
        // It takes place only if the key is there.
        None if answer.succeeded => Acquired::Unknown,
        kv => match (pairs(ops.next()).map(|found| found.kvs.into_iter().next()), kv) {
            (Some(Some(own)), Some(kv)) if own.lease == lease && Mistake::AdoptsLeaseKeys.is_planted() => {
                Acquired::Yes(kv.clone(), ResponseHeader { revision: own.create_revision, ..header })
            }
            (Some(found), _) => Acquired::No(found),
            (None, _) => Acquired::Unknown,
        },
    };
    (how, Some(range))
}

/// The transaction that gives a lease key back.
pub(crate) fn releasing(prefix: &[u8], release: &Release) -> TxnRequest {
    let key = lease_key(prefix, &release.key);
    let delete = DeleteRangeRequest { key: key.clone(), ..DeleteRangeRequest::default() };
    TxnRequest {
        compare: vec![created(key, CompareResult::Equal, release.created)],
        success: vec![op(Request::RequestDeleteRange(delete))],
        failure: Vec::new(),
    }
}

/// The transaction that asks the owner of a lease key to give it back.
pub(crate) fn revoking(lease_key: &KeyValue) -> TxnRequest {
    let key = lease_key.key.clone();
    let value = Bytes::from_static(REVOKE);
    let put = PutRequest { key: key.clone(), value, ignore_lease: true, ..PutRequest::default() };
    TxnRequest {
        compare: vec![created(key, CompareResult::Equal, lease_key.create_revision)],
        success: vec![op(Request::RequestPut(put))],
        failure: Vec::new(),
    }
}

pub(crate) fn encoded(txn: &TxnRequest) -> Bytes {
    txn.encode_to_vec().into()
}
