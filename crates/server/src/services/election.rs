//! `v3electionpb.Election`: the leader is who holds the oldest key under the election's name.

use super::local_client::{
    Answer, LocalClient, delete_op, if_created, oldest, prefix, put_op, range_op, session_key, unknown,
};
use super::lock::{first_pair, own_revision};
use super::lock_queue::{Contender, LockQueue};
use super::reply::{decode, encode, refuse};
use crate::auth::Asking;
use crate::auth::rules::Parts;
use crate::node::Node;
use api::etcdserverpb::{RangeRequest, ResponseHeader};
use api::mvccpb::KeyValue;
use api::v3electionpb::{
    CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, ProclaimRequest, ProclaimResponse,
    ResignRequest, ResignResponse,
};
use api::{Code, Message, varint};
use bytes::{Bytes, BytesMut};
use rpc::{Call, Chunks, Reply, Responder, Status};
use std::sync::Arc;

pub(super) fn campaign(
    queue: &Arc<LockQueue>,
    node: &Arc<Node>,
    call: Call,
    asking: Asking<Parts>,
    responder: Responder,
) {
    let request: CampaignRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let caller = LocalClient::new(node, asking);
    let kept = match caller.weight().claim(&node.budget) {
        Ok(kept) => kept,
        Err(error) => return refuse(responder, unknown(error)),
    };
    let (own, queue) = (caller.clone(), queue.clone());
    caller.session(request.lease, move |session| {
        // The queue claims what it keeps.
        drop(kept);
        match session {
            Ok(lease) => stand(&queue, own, request, lease, responder),
            Err(status) => refuse(responder, status),
        }
    });
}

/// Writes the candidate's key. A session that already has a key keeps its place.
fn stand(queue: &Arc<LockQueue>, caller: LocalClient, request: CampaignRequest, lease: i64, responder: Responder) {
    let prefix = prefix(&request.name);
    let key = session_key(&prefix, lease);
    let mut txn = if_created(&key, 0, vec![put_op(&key, request.value.clone(), lease)]);
    txn.failure = vec![range_op(RangeRequest { key: key.clone(), ..Default::default() })];
    let (own, queue) = (caller.clone(), queue.clone());
    caller.txn(&txn, move |answer| {
        let txn = match answer {
            Ok(txn) => txn,
            Err(status) => return refuse(responder, status),
        };
        let leader = LeaderKey { name: request.name, key, rev: own_revision(&txn), lease };
        let has_other_value = first_pair(&txn, 0).is_some_and(|pair| pair.value != request.value);
        let candidate = Candidate { caller: own, leader, header: txn.header, responder };
        if !has_other_value {
            return candidate.wait(&queue, prefix);
        }
        let (caller, leader) = (candidate.caller.clone(), candidate.leader.clone());
        caller.proclaim(&leader, lease, request.value, move |answer| match answer {
            Ok(_) => candidate.wait(&queue, prefix),
            Err(status) => candidate.resign(status),
        });
    });
}

impl LocalClient {
    /// Changes the value of a leader's key.
    fn proclaim(
        &self,
        leader: &LeaderKey,
        lease: i64,
        value: Bytes,
        then: impl FnOnce(Answer<Option<ResponseHeader>>) + Send + 'static,
    ) {
        let request = if_created(&leader.key, leader.rev, vec![put_op(&leader.key, value, lease)]);
        self.txn(&request, move |answer| {
            then(answer.and_then(|txn| match txn.succeeded {
                true => Ok(txn.header),
                false => Err(Status::new(Code::Unknown, "election: not leader")),
            }));
        });
    }
}

/// A candidate that waits for its election.
struct Candidate {
    caller: LocalClient,
    leader: LeaderKey,
    /// The header of the transaction that wrote the key.
    header: Option<ResponseHeader>,
    responder: Responder,
}

impl Candidate {
    fn wait(self, queue: &LockQueue, prefix: Bytes) {
        queue.wait(self.caller.clone(), prefix, self.leader.rev.saturating_sub(1), Box::new(self));
    }

    fn resign(self, status: Status) {
        self.caller.take_back(&self.leader.key, self.leader.rev);
        refuse(self.responder, status);
    }
}

impl Contender for Candidate {
    fn is_canceled(&self) -> bool {
        self.responder.is_canceled()
    }

    fn settle(self: Box<Self>, outcome: Answer<()>) {
        match outcome {
            // A candidate that has gone would lead without knowing it.
            _ if self.responder.is_canceled() => self.resign(Status::new(Code::Canceled, "context canceled")),
            Ok(()) => {
                let response = CampaignResponse { header: self.header, leader: Some(self.leader) };
                self.responder.send(encode(&response));
            }
            // The key stays: the candidate keeps its place, and may campaign again with the same lease.
            Err(status) => refuse(self.responder, status),
        }
    }
}

/// The leader's key of a request; an error if it is missing.
fn of_leader(leader: Option<LeaderKey>) -> Answer<LeaderKey> {
    leader.ok_or_else(|| Status::new(Code::Unknown, "\"leader\" field must be provided"))
}

pub(super) fn proclaim(_: &Arc<LockQueue>, node: &Arc<Node>, call: Call, asking: Asking<Parts>, responder: Responder) {
    let decoded =
        decode::<ProclaimRequest>(call.message).and_then(|request| Ok((of_leader(request.leader)?, request.value)));
    let (leader, value) = match decoded {
        Ok(decoded) => decoded,
        Err(status) => return refuse(responder, status),
    };
    let caller = LocalClient::new(node, asking);
    let kept = match caller.weight().claim(&node.budget) {
        Ok(kept) => kept,
        Err(error) => return refuse(responder, unknown(error)),
    };
    let own = caller.clone();
    caller.session(leader.lease, move |session| {
        // What is made of it claims its own.
        drop(kept);
        match session {
            Ok(lease) => own.proclaim(&leader, lease, value, move |answer| {
                responder.send(answer.and_then(|header| encode(&ProclaimResponse { header })));
            }),
            Err(status) => refuse(responder, status),
        }
    });
}

pub(super) fn leader(_: &Arc<LockQueue>, node: &Arc<Node>, call: Call, asking: Asking<Parts>, responder: Responder) {
    let request: LeaderRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    LocalClient::new(node, asking).range(oldest(&prefix(&request.name)), move |answer| {
        responder.send(answer.and_then(|found| match found.kvs.into_iter().next() {
            Some(pair) => Ok(leader_response(found.header, pair)),
            None => Err(Status::new(Code::Unknown, "election: no leader")),
        }));
    });
}

/// Values from this size on are sent from where they lie.
const LARGE_BYTES_MIN: usize = 16 * 1024;

/// The response that names a leader.
pub(super) fn leader_response(header: Option<ResponseHeader>, pair: KeyValue) -> Reply {
    if pair.value.len() < LARGE_BYTES_MIN {
        return Reply::Whole(LeaderResponse { header, kv: Some(pair) }.encode_to_vec().into());
    }
    let len = pair.encoded_len();
    let mut front = BytesMut::from(&LeaderResponse { header, kv: None }.encode_to_vec()[..]);
    varint::put_delimited(&mut front, LEADER_KV, len);
    let KeyValue { value, lease, .. } = &pair;
    let (value, lease) = (value.clone(), *lease);
    // This cannot fail: the buffer grows.
    KeyValue { value: Bytes::new(), lease: 0, ..pair }.encode_raw(&mut front);
    varint::put_delimited(&mut front, KV_VALUE, value.len());
    let mut tail = BytesMut::new();
    varint::put_nonzero(&mut tail, KV_LEASE, lease as u64);
    [front.freeze(), value, tail.freeze()].into_iter().collect::<Chunks>().into_reply()
}

/// The field `kv` of `LeaderResponse`; the fields `value` and `lease` of `KeyValue`, its last.
const LEADER_KV: u32 = 2;
const KV_VALUE: u32 = 5;
const KV_LEASE: u32 = 6;

pub(super) fn resign(_: &Arc<LockQueue>, node: &Arc<Node>, call: Call, asking: Asking<Parts>, responder: Responder) {
    let decoded = decode::<ResignRequest>(call.message).and_then(|request| of_leader(request.leader));
    let leader = match decoded {
        Ok(leader) => leader,
        Err(status) => return refuse(responder, status),
    };
    let request = if_created(&leader.key, leader.rev, vec![delete_op(&leader.key)]);
    // To resign without being the leader is no error.
    LocalClient::new(node, asking).txn(&request, move |answer| {
        responder.send(answer.and_then(|txn| encode(&ResignResponse { header: txn.header })));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_value_is_sent_from_where_it_lies() {
        let header = Some(ResponseHeader { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 });
        for len in [0, 1, LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN, 1 << 20] {
            for lease in [0, -1, 7] {
                let value = Bytes::from(vec![7; len]);
                let pair = KeyValue {
                    key: "k".into(),
                    create_revision: 5,
                    mod_revision: 6,
                    version: 2,
                    value: value.clone(),
                    lease,
                };
                let wanted = LeaderResponse { header, kv: Some(pair.clone()) }.encode_to_vec();
                let reply = leader_response(header, pair);
                assert_eq!((reply.len(), matches!(reply, Reply::Parts { .. })), (wanted.len(), len >= LARGE_BYTES_MIN));
                assert_eq!(reply.into_whole().expect("whole"), wanted);
            }
        }
    }
}
