//! Members, as far as leased keys have to do with them.

use api::etcdserverpb::compare::{CompareResult, TargetUnion};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response;
use api::etcdserverpb::{
    Compare, DeleteRangeResponse, PutResponse, RangeResponse, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use api::mvccpb::KeyValue;
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A key that was put, or deleted if there is no pair, at a revision.
pub(super) type Event = (Bytes, i64, Option<KeyValue>);

#[derive(Default)]
pub(super) struct Store {
    pub(super) revision: i64,
    pub(super) pairs: BTreeMap<Bytes, KeyValue>,
    /// Leases, and when they end.
    pub(super) leases: BTreeMap<i64, u64>,
    pub(super) events: Vec<Event>,
}

fn is_in(key: &Bytes, start: &Bytes, end: &Bytes) -> bool {
    match &end[..] {
        b"" => key == start,
        b"\0" => key >= start,
        _ => key >= start && key < end,
    }
}

impl Store {
    fn header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader { revision: self.revision, ..ResponseHeader::default() })
    }

    fn found(&self, start: &Bytes, end: &Bytes) -> Vec<KeyValue> {
        self.pairs.values().filter(|kv| is_in(&kv.key, start, end)).cloned().collect()
    }

    fn holds(&self, compare: &Compare) -> bool {
        let number = |kv: &KeyValue| match compare.target_union {
            Some(TargetUnion::CreateRevision(wanted)) => kv.create_revision.cmp(&wanted),
            Some(TargetUnion::Lease(wanted)) => kv.lease.cmp(&wanted),
            Some(TargetUnion::Version(wanted)) => kv.version.cmp(&wanted),
            _ => panic!("a comparison that nobody makes"),
        };
        let holds = |kv: &KeyValue| match CompareResult::try_from(compare.result).expect("a result") {
            CompareResult::Equal => number(kv) == Ordering::Equal,
            CompareResult::Greater => number(kv) == Ordering::Greater,
            CompareResult::Less => number(kv) == Ordering::Less,
            CompareResult::NotEqual => number(kv) != Ordering::Equal,
        };
        let found = self.found(&compare.key, &compare.range_end);
        if found.is_empty() { holds(&KeyValue::default()) } else { found.iter().all(holds) }
    }

    fn delete(&mut self, key: &Bytes, revision: i64) {
        if self.pairs.remove(key).is_some() {
            self.events.push((key.clone(), revision, None));
        }
    }

    /// Carries out a transaction. None if a lease is gone.
    pub(super) fn txn(&mut self, txn: &TxnRequest) -> Option<TxnResponse> {
        if !self.has_leases(txn) {
            return None;
        }
        let revision = self.revision + 1;
        let answer = self.carry_out(txn, revision);
        if self.events.last().is_some_and(|(_, last, _)| *last == revision) {
            self.revision = revision;
        }
        Some(TxnResponse { header: self.header(), ..answer })
    }

    fn has_leases(&self, txn: &TxnRequest) -> bool {
        let ops = if txn.compare.iter().all(|compare| self.holds(compare)) { &txn.success } else { &txn.failure };
        ops.iter().all(|op| match &op.request {
            Some(Request::RequestPut(put)) => put.lease == 0 || self.leases.contains_key(&put.lease),
            Some(Request::RequestTxn(inner)) => self.has_leases(inner),
            _ => true,
        })
    }

    fn carry_out(&mut self, txn: &TxnRequest, revision: i64) -> TxnResponse {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let mut responses = Vec::new();
        for op in if succeeded { &txn.success } else { &txn.failure } {
            let response = match op.request.as_ref().expect("a request") {
                Request::RequestRange(range) => {
                    let mut kvs = self.found(&range.key, &range.range_end);
                    if range.keys_only {
                        // As etcd 3.7: the lease is not told either.
                        kvs.iter_mut().for_each(|kv| (kv.value, kv.lease) = (Bytes::new(), 0));
                    }
                    Response::ResponseRange(RangeResponse { count: kvs.len() as i64, kvs, ..RangeResponse::default() })
                }
                Request::RequestPut(put) => {
                    let before = self.pairs.get(&put.key);
                    let lease = if put.ignore_lease { before.map_or(0, |kv| kv.lease) } else { put.lease };
                    let kv = KeyValue {
                        key: put.key.clone(),
                        value: put.value.clone(),
                        create_revision: before.map_or(revision, |kv| kv.create_revision),
                        mod_revision: revision,
                        version: before.map_or(0, |kv| kv.version) + 1,
                        lease,
                    };
                    self.events.push((put.key.clone(), revision, Some(kv.clone())));
                    self.pairs.insert(put.key.clone(), kv);
                    Response::ResponsePut(PutResponse::default())
                }
                Request::RequestDeleteRange(delete) => {
                    let found = self.found(&delete.key, &delete.range_end);
                    found.iter().for_each(|kv| self.delete(&kv.key, revision));
                    Response::ResponseDeleteRange(DeleteRangeResponse {
                        deleted: found.len() as i64,
                        ..DeleteRangeResponse::default()
                    })
                }
                Request::RequestTxn(inner) => Response::ResponseTxn(self.carry_out(inner, revision)),
            };
            responses.push(ResponseOp { response: Some(response) });
        }
        TxnResponse { header: None, succeeded, responses }
    }

    /// Ends the leases whose time is over.
    pub(super) fn expire(&mut self, now_ms: u64) {
        let over: Vec<i64> = self.leases.iter().filter(|(_, end)| **end <= now_ms).map(|(id, _)| *id).collect();
        for lease in over {
            self.leases.remove(&lease);
            let keys: Vec<Bytes> =
                self.pairs.values().filter(|kv| kv.lease == lease).map(|kv| kv.key.clone()).collect();
            if !keys.is_empty() {
                self.revision += 1;
                keys.iter().for_each(|key| self.delete(key, self.revision));
            }
        }
    }
}
