//! `etcdserverpb.Lease`.

use super::kv::{propose_holding, propose_in, still};
use super::reply::{decode, encode, refuse};
use super::within::{self, Order, Stop, Terms, counted, with_room};
use crate::auth::rules::{Keys, User};
use crate::auth::{Asking, Permitted};
use crate::cluster;
use crate::node::Node;
use crate::yield_cpu::pause;
use api::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseLeasesRequest, LeaseLeasesResponse,
    LeaseRevokeRequest, LeaseStatus, LeaseTimeToLiveRequest, ResponseHeader,
};
use api::limits::INLINE_SORT_KEYS_MAX;
use api::{Error, Message, RaftRequest, limits};
use budget::Claim;
use bytes::Bytes;
use contain::lock;
use replica::Lessor;
use rpc::{Address, Call, Outbound, Reply, Responder, Status, StreamCall, StreamHandler, StreamWaker};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

pub(super) fn grant(node: &Arc<Node>, call: Call, request: Permitted<User, LeaseGrantRequest>, responder: Responder) {
    let (mut request, author) = request.into_parts();
    // A random id that is in use is replaced here. A client's own id that is in use is refused by the store.
    if request.id == 0 {
        request.id = free_id(node);
    }
    raise(node, &mut request);
    if request.ttl > limits::LEASE_TTL_SECONDS_MAX {
        return refuse(responder, Error::LeaseTtlTooLarge);
    }
    match node.claim_space(store::LEASE_BYTES) {
        Ok(space) => {
            let request = request.encode_to_vec();
            propose_holding(space, node, author, RaftRequest::LeaseGrant, &request, call.is_alone, responder);
        }
        Err(error) => refuse(responder, error),
    }
}

/// Raises a time to live that is too short. This happens before the log: applied by members with different flags, it
/// would make them diverge.
pub(super) fn raise(node: &Node, request: &mut LeaseGrantRequest) {
    request.ttl = request.ttl.max(node.config.lease_ttl_seconds_min());
}

/// An id that no lease has.
pub(super) fn free_id(node: &Node) -> i64 {
    loop {
        let id = random_id();
        if id != 0 && !node.store.leases().exists(id) {
            return id;
        }
    }
}

/// A random positive number, from the process's own keyed hash.
fn random_id() -> i64 {
    (RandomState::new().hash_one(0u64) >> 1) as i64
}

pub(super) fn revoke(node: &Arc<Node>, call: Call, request: Permitted<Keys, LeaseRevokeRequest>, responder: Responder) {
    match node.claim_headroom(node.store.revoke_cost_bytes(request.id)) {
        Ok(room) => {
            // Not as it came: what goes ahead of all writes has no bound but the number of requests.
            let (author, revoke) = (request.author(), request.encode_to_vec());
            propose_in(room, node, author, RaftRequest::LeaseRevoke, &revoke, call.is_alone, responder);
        }
        Err(error) => refuse(responder, error),
    }
}

/// Memory of a lease's key in an answer besides its bytes: its places in the message and in the encoding.
const KEY_PLACE_BYTES: u64 = 64;

pub(super) fn time_to_live(
    node: &Arc<Node>,
    call: Call,
    request: Permitted<Keys, LeaseTimeToLiveRequest>,
    responder: Responder,
) {
    let client = call.peer.address;
    // The keys are in the message and in its encoding.
    let (keys, key_bytes) = if request.keys { node.store.leases().attached(request.id) } else { (0, 0) };
    let bytes = keys.saturating_mul(KEY_PLACE_BYTES).saturating_add(key_bytes.saturating_mul(2));
    with_room(node, client, 0, bytes, responder, move |node, claim, responder| {
        let own = node.clone();
        cluster::leases::time_to_live(node, client, *request, move |found| {
            // Keys may have been put on the lease meanwhile.
            let permitted = request.decide_again(&own.store);
            match found.and_then(|found| permitted.map(|()| found)) {
                Ok(mut response) => {
                    response.header = Some(own.header(own.store.revision()));
                    let reply = encode(&response).map(|reply| counted(&own, claim, reply));
                    responder.send(still(&own, &request, reply));
                }
                Err(error) => refuse(responder, error),
            }
        });
    });
}

pub(super) fn leases(node: &Arc<Node>, call: Call, request: Permitted<Keys, LeaseLeasesRequest>, responder: Responder) {
    let leases = node.store.leases().count();
    let order = Order {
        client: call.peer.address,
        is_heavy: leases > INLINE_SORT_KEYS_MAX,
        likely_bytes: leases_bytes(leases),
        request_bytes: 0,
    };
    within::answer(node, order, responder, move |terms| {
        let answer = answer_leases(terms);
        if !matches!(answer, Err(Stop::Needs(_))) {
            request.check_unchanged(&terms.node.store)?;
        }
        answer
    });
}

/// Memory for the list of `leases` leases: two lists to sort them, the message and its encoding.
fn leases_bytes(leases: usize) -> u64 {
    (leases as u64).saturating_mul(64)
}

fn answer_leases(terms: &Terms<'_>) -> Result<Reply, Stop> {
    let node = terms.node;
    let bytes = leases_bytes(node.store.leases().count());
    let claim = terms.claim(usize::try_from(bytes).unwrap_or(usize::MAX))?;
    let now_ms = node.now_ms();
    let granted = node.store.leases().list();
    let mut by_expiry: Vec<(i64, i64)> = Vec::with_capacity(granted.len());
    let note = |lessor: &mut Lessor, lease: &store::Lease| {
        by_expiry.push((lessor.seconds_left(lease, now_ms), lease.id));
    };
    node.lessor.look_at_all(&granted, note, pause);
    by_expiry.sort_unstable();
    let leases = by_expiry.into_iter().map(|(_, id)| LeaseStatus { id }).collect();
    let reply = encode(&LeaseLeasesResponse { header: Some(node.header(node.store.revision())), leases })?;
    Ok(counted(node, claim, reply))
}

/// Memory of a keep-alive until it is answered. Its lease is in three lists: `waiting`, `asked` and the request to the
/// leader.
const KEEP_ALIVE_BYTES: usize = 3 * size_of::<i64>();

/// A keep-alive stream. The leader renews the leases, and the answers have the order of the requests.
pub(super) struct KeepAlive {
    node: Arc<Node>,
    asking: Asking<Keys>,
    client: Address,
    waker: StreamWaker,
    /// Requests that the leader has not been asked about yet.
    waiting: VecDeque<i64>,
    /// Claims the memory of the waiting requests.
    held: Claim,
    /// The leases that the leader has been asked to renew.
    asked: Vec<i64>,
    /// The header of the answers for `asked`: its revision is read before the leases are renewed.
    header: ResponseHeader,
    renewed: Arc<Mutex<Option<cluster::leases::Renewed>>>,
    closing: bool,
}

impl KeepAlive {
    pub(super) fn new(node: &Arc<Node>, call: StreamCall, asking: Asking<Keys>) -> KeepAlive {
        KeepAlive {
            node: node.clone(),
            asking,
            client: call.peer.address,
            waker: call.waker,
            waiting: VecDeque::new(),
            held: node.budget.request(call.peer.address),
            asked: Vec::new(),
            header: ResponseHeader::default(),
            renewed: Arc::default(),
            closing: false,
        }
    }

    /// Sends the answers of the leader, and asks it to renew the leases that have arrived meanwhile.
    fn pump(&mut self, out: &mut Outbound<'_>) -> Result<(), Status> {
        loop {
            let renewed = if self.asked.is_empty() { None } else { lock(&self.renewed).take() };
            if let Some(renewed) = renewed {
                for (id, ttl) in std::mem::take(&mut self.asked).into_iter().zip(renewed?) {
                    self.answer(self.header, id, ttl, out);
                }
            }
            if !self.asked.is_empty() {
                break;
            }
            while let Some(&id) = self.waiting.front() {
                let header = self.node.header(self.node.store.revision());
                let Some(ttl) = cluster::leases::renew_at_once(&self.node, id) else { break };
                self.waiting.pop_front();
                self.answer(header, id, ttl, out);
            }
            if self.waiting.is_empty() {
                if self.held.bytes() > 0 {
                    self.held.resize(0);
                }
                break;
            }
            self.ask();
            // The result may be there at once.
            if lock(&self.renewed).is_none() {
                break;
            }
        }
        if self.closing && self.asked.is_empty() && self.waiting.is_empty() {
            out.finish(Status::OK);
        }
        Ok(())
    }

    fn ask(&mut self) {
        self.header = self.node.header(self.node.store.revision());
        self.asked = std::mem::take(&mut self.waiting).into();
        let (renewed, waker) = (self.renewed.clone(), self.waker.clone());
        // The request to the leader uses this memory until it is answered, even if the stream ends.
        let held = std::mem::replace(&mut self.held, self.node.budget.request(self.client));
        let keeper = cluster::leases::Keeper { client: self.client, waker: self.waker.clone() };
        cluster::leases::renew(&self.node, keeper, self.asked.clone(), move |result| {
            *lock(&renewed) = Some(result);
            drop(held);
            waker.wake();
        });
    }

    /// Claims the memory of the waiting requests, unless that is little.
    fn hold(&mut self) -> Result<(), Status> {
        let bytes = self.waiting.len().saturating_mul(KEEP_ALIVE_BYTES);
        if bytes as u64 <= self.held.bytes().max(limits::BUDGET_FREE_BYTES as u64) {
            return Ok(());
        }
        // The claim is larger than needed, so that not every request has to claim.
        let bytes = bytes.saturating_add(limits::BUDGET_FREE_BYTES) as u64;
        if self.held.resize(bytes) { Ok(()) } else { Err(Error::TooManyRequests.into()) }
    }

    fn answer(&self, header: ResponseHeader, id: i64, ttl: i64, out: &mut Outbound<'_>) {
        self.node.metrics.count_renewal(ttl > 0);
        let response = LeaseKeepAliveResponse { header: Some(header), id, ttl };
        let message = out.message(response.encoded_len());
        response.encode_raw(message);
    }

    fn take(&mut self, message: Bytes, out: &mut Outbound<'_>) -> Result<(), Status> {
        let request: LeaseKeepAliveRequest = decode(message)?;
        if self.waiting.len() >= limits::KEEP_ALIVES_WAITING_MAX {
            return Err(Error::TooManyRequests.into());
        }
        self.waiting.push_back(self.asking.decide(&self.node, request)?.id);
        self.pump(out)?;
        self.hold()
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

    fn answers_in_a_crowd(&self) -> bool {
        self.asked.is_empty() && self.waiting.is_empty()
    }
}
