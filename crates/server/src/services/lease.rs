//! `etcdserverpb.Lease`.

use super::kv::propose;
use super::reply::{decode, encode, outcome, refuse};
use crate::node::{self, Node, lock};
use api::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseLeasesResponse, LeaseRevokeRequest,
    LeaseStatus, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use api::{Error, Message, limits};
use bytes::Bytes;
use rpc::{Call, Outbound, Reply, Responder, Status, StreamCall, StreamHandler, StreamWaker};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

/// What a lease costs against the quota, as etcd estimates it.
const GRANT_COST_BYTES: u64 = 64;

pub(super) fn grant(node: &Arc<Node>, call: Call, responder: Responder) {
    let mut request: LeaseGrantRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    // Only an id that is drawn here may be drawn again; a client's own id in use is for the store to refuse.
    let drawn = request.id == 0;
    if request.ttl > limits::LEASE_TTL_SECONDS_MAX {
        return refuse(responder, Error::LeaseTtlTooLarge);
    }
    if let Err(error) = node.check_space(GRANT_COST_BYTES) {
        return refuse(responder, error);
    }
    while request.id == 0 || (drawn && node.store.leases().exists(request.id)) {
        request.id = random_id();
    }
    propose(node, node::LEASE_GRANT, &request.encode_to_vec(), responder);
}

/// A random positive number, from the process's own keyed hash.
fn random_id() -> i64 {
    (RandomState::new().hash_one(0u64) >> 1) as i64
}

pub(super) fn revoke(node: &Arc<Node>, call: Call, responder: Responder) {
    let request: LeaseRevokeRequest = match decode(call.message.clone()) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let own = node.clone();
    let done = move |result: node::Outcome| {
        if result.is_ok() {
            lock(&own.lessor).revoke(request.id);
        }
        responder.send(outcome(&own, result));
    };
    node.propose(node::LEASE_REVOKE, &call.message, Box::new(done));
}

pub(super) fn time_to_live(node: &Arc<Node>, call: Call, responder: Responder) {
    let request: LeaseTimeToLiveRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let own = node.clone();
    node.linearize(move |allowed| match allowed {
        Ok(()) => responder.send(answer_time_to_live(&own, &request)),
        Err(error) => refuse(responder, error),
    });
}

fn answer_time_to_live(node: &Node, request: &LeaseTimeToLiveRequest) -> Result<Reply, Status> {
    let leases = node.store.leases();
    let mut response = LeaseTimeToLiveResponse {
        header: Some(node.header(node.store.revision())),
        id: request.id,
        ttl: -1,
        ..Default::default()
    };
    if let Some(granted_ttl) = leases.get(request.id).map(|lease| lease.ttl) {
        response.granted_ttl = granted_ttl;
        response.ttl = lock(&node.lessor).remaining_seconds(request.id, node.now_ms()).unwrap_or(granted_ttl);
        if request.keys {
            response.keys = leases.keys(request.id);
        }
    }
    encode(&response)
}

pub(super) fn leases(node: &Arc<Node>, _call: Call, responder: Responder) {
    let own = node.clone();
    node.linearize(move |allowed| match allowed {
        Ok(()) => responder.send(answer_leases(&own)),
        Err(error) => refuse(responder, error),
    });
}

fn answer_leases(node: &Node) -> Result<Reply, Status> {
    let now_ms = node.now_ms();
    let granted = node.store.leases().list();
    let lessor = lock(&node.lessor);
    let mut by_expiry: Vec<(i64, i64)> = granted
        .into_iter()
        .map(|lease| (lessor.remaining_seconds(lease.id, now_ms).unwrap_or(lease.ttl), lease.id))
        .collect();
    drop(lessor);
    by_expiry.sort_unstable();
    let leases = by_expiry.into_iter().map(|(_, id)| LeaseStatus { id }).collect();
    encode(&LeaseLeasesResponse { header: Some(node.header(node.store.revision())), leases })
}

/// A keep-alive stream: each request is answered in order by the member that keeps the deadlines.
pub(super) struct KeepAlive {
    node: Arc<Node>,
    waker: StreamWaker,
    /// Requests that wait for the word that this member still leads.
    waiting: VecDeque<i64>,
    allowed: Arc<Mutex<Option<Result<(), Error>>>>,
    closing: bool,
}

impl KeepAlive {
    pub(super) fn new(node: &Arc<Node>, call: StreamCall) -> KeepAlive {
        let allowed = Arc::default();
        KeepAlive { node: node.clone(), waker: call.waker, waiting: VecDeque::new(), allowed, closing: false }
    }

    fn answer(&self, id: i64, out: &mut Outbound<'_>) -> Result<(), Status> {
        // The revision is taken before the lease is renewed.
        let header = self.node.header(self.node.store.revision());
        let mut lessor = lock(&self.node.lessor);
        if !lessor.is_primary() {
            return Err(Error::NotPrimaryLessor.into());
        }
        let ttl = lessor.renew(id, self.node.now_ms()).unwrap_or(0);
        drop(lessor);
        self.node.metrics.count_renewal(ttl > 0);
        out.send(LeaseKeepAliveResponse { header: Some(header), id, ttl }.encode_to_vec().into());
        Ok(())
    }

    /// Answers what waits as far as the client takes it.
    fn pump(&mut self, out: &mut Outbound<'_>) -> Result<(), Status> {
        if let Some(allowed) = lock(&self.allowed).take() {
            allowed?;
            while let Some(id) = self.waiting.pop_front() {
                self.answer(id, out)?;
            }
        }
        if self.closing && self.waiting.is_empty() {
            out.finish(Status::OK);
        }
        Ok(())
    }

    fn take(&mut self, message: Bytes, out: &mut Outbound<'_>) -> Result<(), Status> {
        let request: LeaseKeepAliveRequest = decode(message)?;
        if self.waiting.is_empty() && self.node.status.serves_local_reads() {
            return self.answer(request.id, out);
        }
        // Whether this member still leads is asked once for all that wait.
        self.waiting.push_back(request.id);
        if self.waiting.len() == 1 {
            let (allowed, waker) = (self.allowed.clone(), self.waker.clone());
            self.node.linearize(move |result| {
                *lock(&allowed) = Some(result);
                waker.wake();
            });
        }
        Ok(())
    }
}

impl StreamHandler for KeepAlive {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        if let Err(status) = self.take(message, out) {
            out.finish(status);
        }
    }

    fn half_closed(&mut self, out: &mut Outbound<'_>) {
        self.closing = true;
        self.ready(out);
    }

    fn ready(&mut self, out: &mut Outbound<'_>) {
        if let Err(status) = self.pump(out) {
            out.finish(status);
        }
    }
}
