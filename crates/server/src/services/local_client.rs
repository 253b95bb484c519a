//! The server as its own client: what the Lock and Election services are made of.
//!
//! etcd builds these services on its client library, inside the server. Their errors therefore reach clients with etcd's sentences
//! but without their codes: all are `Unknown`.

use super::auth_retry::Tries;
use super::reply::complete;
use super::rooms::Rooms;
use crate::auth::rules::Parts;
use crate::auth::{Asking, Permitted, Rule, hand_over};
use crate::node::{self, Node, Weight};
use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::range_request::{SortOrder, SortTarget};
use api::etcdserverpb::{
    Compare, DeleteRangeRequest, DeleteRangeResponse, LeaseGrantRequest, RangeRequest, RangeResponse, RequestOp,
    TxnRequest, TxnResponse, WatchResponse, request_op::Request,
};
use api::{Code, Error, KeyRange, Message, RaftRequest, check, limits};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use rpc::Status;
use std::collections::VecDeque;
use std::sync::Arc;
use store::Response;
use store::watch::{Chunks, Hub, Room, Sink, WatchStream};

/// Lifetime of the lease that a call without one gets.
const SESSION_TTL_SECONDS: i64 = 60;

/// Keys that a transaction may look at. Tests have fewer.
const TXN_KEYS_MAX: u64 = if cfg!(test) { 20_000 } else { limits::TXN_KEYS_MAX };

/// The result of a request that the server makes of itself.
pub(super) type Answer<T> = Result<T, Status>;

/// Makes requests on behalf of the client of a call.
#[derive(Clone)]
pub(super) struct LocalClient {
    pub(super) node: Arc<Node>,
    asking: Asking<Parts>,
}

impl LocalClient {
    /// Makes requests for the client in `asking`.
    pub(super) fn new(node: &Arc<Node>, asking: Asking<Parts>) -> LocalClient {
        LocalClient { node: node.clone(), asking }
    }

    /// This client, which also keeps `bytes` bytes of a stream's message in memory.
    #[must_use]
    pub(super) fn holding(&self, bytes: usize) -> LocalClient {
        LocalClient { node: self.node.clone(), asking: self.asking.clone().holding(bytes) }
    }

    /// A stream of watches. They count towards the client's share like its other watches.
    pub(super) fn watches(&self, wake: impl Fn() + Send + Sync + 'static) -> WatchStream {
        let mut stream = Hub::stream(&self.node.store, Arc::new(wake));
        if let Some(client) = self.weight().client() {
            stream.limit(self.node.watches.of(client));
        }
        stream
    }

    /// The bytes of the call that are kept in memory.
    pub(super) fn weight(&self) -> Weight {
        self.asking.weight()
    }

    /// The lease of a session: the given one, or a new one if there is none.
    pub(super) fn session(&self, lease: i64, then: impl FnOnce(Answer<i64>) + Send + 'static) {
        if lease != 0 {
            return then(Ok(lease));
        }
        let mut request = LeaseGrantRequest { id: super::lease::free_id(&self.node), ttl: SESSION_TTL_SECONDS };
        super::lease::raise(&self.node, &mut request);
        let write =
            Write { kind: RaftRequest::LeaseGrant, looks: |_, _| 0, adds: |_| store::LEASE_BYTES, deletes: |_, _| 0 };
        self.write(
            write,
            request,
            |response| match response {
                Response::LeaseGrant(grant) => Some(grant.id),
                _ => None,
            },
            then,
        );
    }

    /// A transaction that writes.
    pub(super) fn txn(&self, request: &TxnRequest, then: impl FnOnce(Answer<TxnResponse>) + Send + 'static) {
        let node = &self.node;
        if let Err(error) = check::txn(request, node.config.max_txn_ops) {
            return then(Err(unknown(error)));
        }
        let write = Write {
            kind: RaftRequest::Txn,
            looks: |node, request| node.store.txn_keys(request),
            adds: store::txn_cost,
            deletes: |node, request| node.store.txn_delete_cost_bytes(request),
        };
        let own = node.clone();
        self.write(
            write,
            request.clone(),
            move |response| match response {
                Response::Txn(mut txn) => {
                    complete(&own, &mut txn.header);
                    Some(txn)
                }
                _ => None,
            },
            then,
        );
    }

    /// Deletes one key.
    pub(super) fn delete(&self, key: Bytes, then: impl FnOnce(Answer<DeleteRangeResponse>) + Send + 'static) {
        let request = DeleteRangeRequest { key, ..Default::default() };
        if let Err(error) = check::delete_range(&request) {
            return then(Err(unknown(error)));
        }
        let write = Write {
            kind: RaftRequest::DeleteRange,
            looks: |_, _| 0,
            adds: |_: &DeleteRangeRequest| 0,
            deletes: |node, request| node.store.delete_cost_bytes(KeyRange::One(&request.key)),
        };
        let own = self.node.clone();
        self.write(
            write,
            request,
            move |response| match response {
                Response::DeleteRange(mut deleted) => {
                    complete(&own, &mut deleted.header);
                    Some(deleted)
                }
                _ => None,
            },
            then,
        );
    }

    /// Sends a write through the log; `read` takes the wanted part out of the answer.
    fn write<R: Message + 'static, T>(
        &self,
        write: Write<R>,
        request: R,
        read: impl FnOnce(Response) -> Option<T> + Send + 'static,
        then: impl FnOnce(Answer<T>) + Send + 'static,
    ) where
        Parts: Rule<R>,
    {
        let then = move |outcome: node::Outcome| {
            then(outcome.map_err(unknown).and_then(|response| read(response).ok_or_else(unexpected)));
        };
        self.clone().attempt(write, request, Tries::new(&self.node), Box::new(then));
    }

    fn attempt<R: Message + 'static>(self, write: Write<R>, request: R, tries: Tries, then: node::Done)
    where
        Parts: Rule<R>,
    {
        // Both the client's call and the request made from it are kept while they wait.
        let (node, asking) = (self.node.clone(), self.asking.clone().holding(request.encoded_len()));
        let weight = asking.weight();
        asking.admit(&node, request, move |node, decided| {
            let claimed = |request: Permitted<Parts, R>| {
                // Every member would look at all of them before it applies anything else.
                let keys = (write.looks)(node, &request);
                if keys > TXN_KEYS_MAX {
                    return Err(Error::TxnTooManyKeys);
                }
                let looks = node.claim_looks(weight.client(), keys)?;
                let space = node.claim_space((write.adds)(&request))?;
                let room = node.claim_headroom((write.deletes)(node, &request))?;
                Ok((request.into_parts(), (looks, space), room))
            };
            let ((request, author), space, room) = match decided.and_then(claimed) {
                Ok(claimed) => claimed,
                Err(error) => return then.end(Err(error)),
            };
            let (kind, encoded) = (write.kind, request.encode_to_vec());
            let done = move |outcome: node::Outcome| {
                drop(space);
                room.end(&self.node, &outcome);
                let is_outdated = outcome == Err(Error::AuthOldRevision);
                match tries.next(&self.node).filter(|_| is_outdated) {
                    None => then.end(outcome),
                    Some(tries) => self.node.clone().linearize(weight, move |caught_up| match caught_up {
                        Ok(()) => self.attempt(write, request, tries, then),
                        Err(_) => then.end(outcome),
                    }),
                }
            };
            node.propose(author, kind, &encoded, Box::new(done));
        });
    }

    /// Undoes the write of a call: deletes `key`, if it is still the one created at `revision`.
    pub(super) fn take_back(&self, key: &Bytes, revision: i64) {
        // No one waits for the result. If the deletion fails, the key ends with its lease.
        self.txn(&if_created(key, revision, vec![delete_op(key)]), drop);
    }

    /// A linearizable range.
    pub(super) fn range(&self, request: RangeRequest, then: impl FnOnce(Answer<RangeResponse>) + Send + 'static) {
        let own = self.clone();
        let weight = self.weight().and(request.encoded_len());
        // With local reads, `linearize` calls back at once on this thread; otherwise on a thread that must not be
        // delayed.
        let is_here = self.node.status.serves_local_reads();
        self.node.linearize(weight, move |allowed| match allowed {
            Err(error) => then(Err(unknown(error))),
            Ok(()) if is_here => own.range_on_a_thread(request, then),
            Ok(()) => {
                let node = own.node.clone();
                hand_over(&node, weight.client(), move || own.range_on_a_thread(request, then));
            }
        });
    }

    /// Reads on this thread if that is quick, else on a slow one.
    fn range_on_a_thread(&self, request: RangeRequest, then: impl FnOnce(Answer<RangeResponse>) + Send + 'static) {
        if self.node.store.is_heavy(&request) {
            self.range_slowly(request, then)
        } else {
            then(self.range_now(request))
        }
    }

    fn range_slowly(&self, request: RangeRequest, then: impl FnOnce(Answer<RangeResponse>) + Send + 'static) {
        let own = self.clone();
        if let Err(then) =
            self.node.slow.try_give(self.weight().client(), then, move |then| then(own.range_now(request)))
        {
            then(Err(unknown(Error::TooManyRequests)));
        }
    }

    /// Whether the client has the permission to read a range.
    pub(super) fn may(&self, request: RangeRequest) -> Answer<()> {
        self.asking.decide(&self.node, request).map(drop).map_err(unknown)
    }

    /// The first key of a range of this member's data. The caller asks whether a client has the permission.
    pub(super) fn predecessor(&self, request: &RangeRequest) -> Result<Predecessor, Error> {
        let users = self.node.store.auth().revision();
        let answer = self.node.store.range(request)?;
        let first = answer.kvs.to_messages().into_iter().next();
        Ok(Predecessor { key: first.map(|pair| pair.key), revision: answer.revision, users })
    }

    /// Reads a range of this member's data on this thread, if the client has the permission.
    fn range_now(&self, request: RangeRequest) -> Answer<RangeResponse> {
        let request = self.asking.decide(&self.node, request).map_err(unknown)?;
        let answer = self.node.store.range(&request).map_err(unknown)?;
        request.check_unchanged(&self.node.store).map_err(unknown)?;
        Ok(RangeResponse {
            header: Some(self.node.header(answer.revision)),
            kvs: answer.kvs.to_messages(),
            more: answer.more,
            count: answer.count,
        })
    }

    /// The next response of a watch; `None` when there is none now. Large values are not copied. With `rooms`, what is copied is claimed
    /// there first.
    pub(super) fn read_watch(
        &self,
        watch: &mut WatchStream,
        rooms: Option<&mut Rooms>,
    ) -> Option<Answer<WatchResponse>> {
        let mut response = Single { front: BytesMut::new(), events: VecDeque::new(), rooms };
        let is_there = watch.poll(&self.node.origin(), 1, &mut response) > 0;
        let Single { front, mut events, .. } = response;
        events.push_front(front.freeze());
        is_there.then(|| WatchResponse::decode(Rope(events)).map_err(|_| unexpected()))
    }
}

/// A key that was searched.
#[derive(Clone)]
pub(super) struct Predecessor {
    /// The key, if there is one.
    pub(super) key: Option<Bytes>,
    /// The revision at which it was searched.
    pub(super) revision: i64,
    /// The auth revision before the search.
    pub(super) users: u64,
}

/// How a kind of request goes through the log.
struct Write<R> {
    /// The kind of the entry.
    kind: RaftRequest,
    /// `looks` is the number of keys that applying the request looks at, `adds` what it adds to the store, `deletes` the
    /// disk space that its deletions need. All are called once the request is permitted.
    looks: fn(&Node, &R) -> u64,
    adds: fn(&R) -> u64,
    deletes: fn(&Node, &R) -> u64,
}

/// One response of a watch.
struct Single<'a> {
    front: BytesMut,
    events: VecDeque<Bytes>,
    rooms: Option<&'a mut Rooms>,
}

impl Sink for Single<'_> {
    fn response(&mut self, _: usize) -> &mut BytesMut {
        &mut self.front
    }

    fn long_response(&mut self, front: Bytes, events: Chunks) {
        self.front = front.into();
        self.events = events.iter().cloned().collect();
    }

    fn room(&mut self, bytes: usize, waits: bool) -> Option<Arc<dyn Room>> {
        self.rooms.as_mut()?.ask(bytes, waits)
    }
}

/// Bytes in parts, of which a message is read without copying what lies in one of them.
struct Rope(VecDeque<Bytes>);

impl Rope {
    /// Removes parts at the front that are used up.
    fn trim(&mut self) {
        while self.0.front().is_some_and(Bytes::is_empty) {
            self.0.pop_front();
        }
    }
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).fold(0, usize::saturating_add)
    }

    fn chunk(&self) -> &[u8] {
        self.0.iter().find(|part| !part.is_empty()).map_or(&[], |part| part)
    }

    fn advance(&mut self, mut count: usize) {
        loop {
            self.trim();
            let Some(front) = self.0.front_mut() else { break };
            let step = count.min(front.len());
            front.advance(step);
            count = count.saturating_sub(step);
            if count == 0 {
                break;
            }
        }
        self.trim();
        assert!(count == 0, "no more is taken than is there");
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        self.trim();
        match self.0.front_mut() {
            Some(front) if len <= front.len() => front.split_to(len),
            _ => {
                let mut all = BytesMut::with_capacity(len);
                all.put(self.take(len));
                all.freeze()
            }
        }
    }
}

/// An error as these services show it.
pub(super) fn unknown(error: Error) -> Status {
    Status::new(Code::Unknown, error.message())
}

/// The error for an answer of the store that does not belong to the request: a bug.
fn unexpected() -> Status {
    Status::new(Code::Internal, "the store answered another request")
}

/// The key of a session under `prefix`.
pub(super) fn session_key(prefix: &[u8], lease: i64) -> Bytes {
    let sign = if lease < 0 { "-" } else { "" };
    let mut key = prefix.to_vec();
    key.extend_from_slice(format!("{sign}{:x}", lease.unsigned_abs()).as_bytes());
    key.into()
}

/// The prefix of the keys of a lock or an election.
pub(super) fn prefix(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// Everything under a prefix, which ends in a slash.
pub(super) fn under(prefix: &Bytes) -> RangeRequest {
    const BEHIND_SLASH: u8 = b'/' + 1;
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = BEHIND_SLASH;
    }
    RangeRequest { key: prefix.clone(), range_end: end.into(), ..Default::default() }
}

/// The oldest key under a prefix: the owner of a lock, the leader of an election.
pub(super) fn oldest(prefix: &Bytes) -> RangeRequest {
    by_creation(prefix, SortOrder::Ascend)
}

/// The youngest key under a prefix that was created at `revision` or earlier.
pub(super) fn youngest_until(prefix: &Bytes, revision: i64) -> RangeRequest {
    RangeRequest { max_create_revision: revision, ..by_creation(prefix, SortOrder::Descend) }
}

fn by_creation(prefix: &Bytes, order: SortOrder) -> RangeRequest {
    RangeRequest { limit: 1, sort_order: order as i32, sort_target: SortTarget::Create as i32, ..under(prefix) }
}

/// A transaction that runs `success` if `key` was created at `revision`; 0 means that the key does not exist.
pub(super) fn if_created(key: &Bytes, revision: i64, success: Vec<RequestOp>) -> TxnRequest {
    let compare = Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Create as i32,
        key: key.clone(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        ..Default::default()
    };
    TxnRequest { compare: vec![compare], success, failure: Vec::new() }
}

/// A read inside a transaction.
pub(super) fn range_op(request: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(request)) }
}

/// A write inside a transaction.
pub(super) fn put_op(key: &Bytes, value: Bytes, lease: i64) -> RequestOp {
    let put = api::etcdserverpb::PutRequest { key: key.clone(), value, lease, ..Default::default() };
    RequestOp { request: Some(Request::RequestPut(put)) }
}

/// A deletion inside a transaction.
pub(super) fn delete_op(key: &Bytes) -> RequestOp {
    let delete = DeleteRangeRequest { key: key.clone(), ..Default::default() };
    RequestOp { request: Some(Request::RequestDeleteRange(delete)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::mvccpb::{Event, KeyValue};

    #[test]
    fn a_message_is_read_from_its_parts() {
        let kv = KeyValue { key: "k".into(), value: vec![7; 1_000].into(), lease: 3, ..Default::default() };
        let event = |kv: &KeyValue| Event { kv: Some(kv.clone()), ..Default::default() };
        let message = WatchResponse { watch_id: 5, events: vec![event(&kv), event(&kv)], ..Default::default() };
        let encoded = Bytes::from(message.encode_to_vec());
        for step in [1, 2, 3, 500, 997, 5_000] {
            let parts = encoded.chunks(step).map(|part| encoded.slice_ref(part));
            let rope = Rope(parts.flat_map(|part| [Bytes::new(), part]).collect());
            let read = WatchResponse::decode(rope).expect("a message");
            assert_eq!(read, message, "in parts of {step} bytes");
            let value = &read.events[0].kv.as_ref().expect("a pair").value;
            let is_shared = encoded.as_ptr_range().contains(&value.as_ptr());
            assert_eq!(is_shared, step == 5_000, "in parts of {step} bytes");
        }
    }

    #[test]
    fn keys_are_those_of_etcd() {
        let prefix = prefix(b"name");
        assert_eq!(session_key(&prefix, 0x1a), "name/1a");
        assert_eq!(session_key(&prefix, -7), "name/-7");
        assert_eq!(session_key(&prefix, i64::MIN), "name/-8000000000000000");
        assert_eq!(under(&prefix).range_end, "name0");
    }
}
