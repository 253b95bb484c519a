//! `v3lockpb.Lock`: a lock is the oldest key under its name.

use super::local_client::{Answer, LocalClient, if_created, oldest, prefix, put_op, range_op, session_key, unknown};
use super::lock_queue::{Contender, LockQueue};
use super::reply::{decode, encode, refuse};
use crate::auth::Asking;
use crate::auth::rules::Parts;
use crate::node::Node;
use api::Code;
use api::etcdserverpb::{RangeRequest, ResponseHeader, TxnResponse, response_op::Response};
use api::mvccpb::KeyValue;
use api::v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse};
use bytes::Bytes;
use rpc::{Call, Responder, Status};
use std::sync::Arc;

pub(super) fn lock(queue: &Arc<LockQueue>, node: &Arc<Node>, call: Call, asking: Asking<Parts>, responder: Responder) {
    let request: LockRequest = match decode(call.message) {
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
            Ok(lease) => acquire(&queue, own, &prefix(&request.name), lease, responder),
            Err(status) => refuse(responder, status),
        }
    });
}

pub(super) fn unlock(_: &Arc<LockQueue>, node: &Arc<Node>, call: Call, asking: Asking<Parts>, responder: Responder) {
    match decode::<UnlockRequest>(call.message) {
        Ok(request) => LocalClient::new(node, asking).delete(request.key, move |answer| {
            responder.send(answer.and_then(|deleted| encode(&UnlockResponse { header: deleted.header })));
        }),
        Err(status) => refuse(responder, status),
    }
}

/// Creates the session's key under `prefix`, and waits if there are older keys.
fn acquire(queue: &Arc<LockQueue>, caller: LocalClient, prefix: &Bytes, lease: i64, responder: Responder) {
    let key = session_key(prefix, lease);
    let owner = || range_op(oldest(prefix));
    let mut request = if_created(&key, 0, vec![put_op(&key, Bytes::new(), lease), owner()]);
    // A session that already has a key keeps its place in the queue.
    request.failure = vec![range_op(RangeRequest { key: key.clone(), ..Default::default() }), owner()];
    let (own, prefix, queue) = (caller.clone(), prefix.clone(), queue.clone());
    caller.txn(&request, move |answer| match answer {
        Ok(txn) => {
            let revision = own_revision(&txn);
            let place = Place { caller: own, key, revision, responder };
            match first_pair(&txn, 1) {
                Some(owner) if owner.create_revision != revision => {
                    queue.wait(place.caller.clone(), prefix, revision.saturating_sub(1), Box::new(place));
                }
                _ => place.answer(txn.header),
            }
        }
        Err(status) => refuse(responder, status),
    });
}

/// The revision at which the session's key was created: that of this transaction, or an earlier one if the key existed.
pub(super) fn own_revision(txn: &TxnResponse) -> i64 {
    let now = txn.header.map_or(0, |header| header.revision);
    if txn.succeeded { now } else { first_pair(txn, 0).map_or(now, |pair| pair.create_revision) }
}

/// The first pair found by the range that is operation number `place` of a transaction.
pub(super) fn first_pair(txn: &TxnResponse, place: usize) -> Option<&KeyValue> {
    match txn.responses.get(place)?.response.as_ref()? {
        Response::ResponseRange(range) => range.kvs.first(),
        _ => None,
    }
}

/// A place in the queue for a lock.
struct Place {
    caller: LocalClient,
    key: Bytes,
    revision: i64,
    responder: Responder,
}

impl Place {
    /// Tells the client that it owns the lock. If the client has gone, deletes the key so that the next one gets the
    /// lock.
    fn answer(self, header: Option<ResponseHeader>) {
        if self.responder.is_canceled() {
            return self.caller.take_back(&self.key, self.revision);
        }
        self.responder.send(encode(&LockResponse { header, key: self.key }));
    }

    fn give_up(self, status: Status) {
        self.caller.take_back(&self.key, self.revision);
        refuse(self.responder, status);
    }
}

impl Contender for Place {
    fn is_canceled(&self) -> bool {
        self.responder.is_canceled()
    }

    fn settle(self: Box<Self>, outcome: Answer<()>) {
        if let Err(status) = outcome {
            return self.give_up(status);
        }
        // The lease may have ended during the wait, which deletes the key.
        let request = RangeRequest { key: self.key.clone(), ..Default::default() };
        self.caller.clone().range(request, move |answer| match answer {
            Ok(found) if found.kvs.is_empty() => {
                refuse(self.responder, Status::new(Code::Unknown, "mutex: session is expired"));
            }
            Ok(found) => self.answer(found.header),
            Err(status) => self.give_up(status),
        });
    }
}
