//! `etcdserverpb.KV`.

use super::again::TRIES_MAX;
use super::reply::{decode, outcome, put_varint, refuse, too_large, unreadable, varint_len};
use crate::auth::{Identity, Pass, admit, identify};
use crate::metrics::{Answered, Operation};
use crate::node::{self, Claim, For, Node, lock};
use api::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest, ResponseHeader, TxnRequest, request_op::Request,
};
use api::{Error, KeyRange, Message, check, limits};
use bytes::{BufMut, Bytes, BytesMut};
use contain::contain;
use rpc::{Call, Reply, Responder, Status};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::{Ask, Author, Kvs, Space};

/// Answers up to this size are built in one piece; larger ones are produced as the client's window opens.
const WHOLE_BYTES_MAX: usize = limits::TURN_BYTES_MAX;

pub(super) fn range(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let request: RangeRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    if let Err(error) = check::range(&request) {
        return refuse(responder, error);
    }
    let serializable = request.serializable;
    read(
        node,
        identity,
        serializable,
        Reading::new(Operation::Range),
        responder,
        move |node, pass, reading, responder| {
            if let Err(error) = pass.decide(Ask::Range(&request), &node.store) {
                reading.end(node, false);
                return refuse(responder, error);
            }
            let heavy = node.store.is_heavy(&request);
            let answer = move |node: &Arc<Node>| {
                let answer = answer_permitted(node, pass, &request);
                if let Some(took) = reading.end(node, answer.is_ok()) {
                    let bytes = answer.as_ref().map_or(0, Reply::len);
                    // What it counts is in the answer, which is encoded already.
                    let answered = Answered { count: -1, bytes };
                    node.metrics.slow.read(&request, took, reading.allowed - reading.began, answered);
                }
                answer
            };
            if heavy { run_slowly(node, responder, answer) } else { responder.send(answer(node)) }
        },
    );
}

/// A read under way: what it is counted as, and when it came.
#[derive(Clone, Copy)]
struct Reading {
    operation: Operation,
    began: Instant,
    /// When it was allowed to look at the store.
    allowed: Instant,
}

impl Reading {
    fn new(operation: Operation) -> Reading {
        let now = Instant::now();
        Reading { operation, began: now, allowed: now }
    }

    /// Counts what it took, and says if that is too long.
    fn end(self, node: &Node, ok: bool) -> Option<Duration> {
        let (now, metrics) = (Instant::now(), &node.metrics);
        let (total, took) = (now - self.began, now - self.allowed);
        metrics.requests.observe(self.operation, ok, total);
        metrics.stages.read.observe(took);
        if self.allowed != self.began {
            metrics.stages.read_index.observe(self.allowed - self.began);
        }
        if self.operation == Operation::Range {
            metrics.reads.range(ok, took);
        }
        (total > node.config.warning_unary_request).then_some(total)
    }
}

/// Runs `then` once it is known who asks and the answer may be read here: at once for a serializable read.
fn read(
    node: &Arc<Node>,
    identity: Identity,
    serializable: bool,
    mut reading: Reading,
    responder: Responder,
    then: impl FnOnce(&Arc<Node>, Pass, Reading, Responder) + Send + 'static,
) {
    let waits = !serializable && !node.status.serves_local_reads();
    if serializable {
        return identify(node, identity, move |node, pass| match pass {
            Ok(pass) => then(node, pass, reading, responder),
            Err(error) => {
                reading.end(node, false);
                refuse(responder, error);
            }
        });
    }
    let own = node.clone();
    // After the read index: what was acknowledged about users and permissions counts too.
    node.linearize(move |allowed| {
        if waits {
            reading.allowed = Instant::now();
        }
        match allowed.and_then(|()| own.pass_now(&identity)) {
            Ok(pass) => then(&own, pass, reading, responder),
            Err(error) => {
                own.metrics.requests.observe(reading.operation, false, reading.allowed - reading.began);
                refuse(responder, error);
            }
        }
    });
}

/// The answer, if who asked may still have it: it was built from what was in the store after they were permitted.
pub(super) fn still(node: &Node, pass: &Pass, answer: Result<Reply, Status>) -> Result<Reply, Status> {
    pass.check_unchanged(&node.store)?;
    answer
}

/// Answers from the slow pool, or refuses when its queue is full.
pub(super) fn run_slowly(
    node: &Arc<Node>,
    responder: Responder,
    answer: impl FnOnce(&Arc<Node>) -> Result<Reply, Status> + Send + 'static,
) {
    let own = node.clone();
    let slot = Arc::new(std::sync::Mutex::new(Some(responder)));
    let taken = slot.clone();
    let queued = node.slow.try_run(move || {
        if let Some(responder) = lock(&taken).take().filter(|responder| !responder.is_canceled()) {
            responder.send(answer(&own));
        }
    });
    if !queued && let Some(responder) = lock(&slot).take() {
        refuse(responder, Error::TooManyRequests);
    }
}

/// Reads as often as users and permissions change meanwhile, within reason: the answer is from before the change or from after it.
fn answer_permitted(node: &Node, mut pass: Pass, request: &RangeRequest) -> Result<Reply, Status> {
    for _ in 0..TRIES_MAX {
        let answer = answer_range(node, request);
        if pass.check_unchanged(&node.store).is_ok() {
            return answer;
        }
        pass.decide_anew(Ask::Range(request), &node.store)?;
    }
    Err(Error::AuthOldRevision.into())
}

fn answer_range(node: &Node, request: &RangeRequest) -> Result<Reply, Status> {
    let answer = node.store.range(request)?;
    node.metrics.operations.ranges.fetch_add(1, Ordering::Relaxed);
    let header = node.header(answer.revision);
    // From here on only the answer changes.
    contain(|| encode_range(answer, &header))?
}

fn encode_range(mut answer: store::RangeAnswer, header: &ResponseHeader) -> Result<Reply, Status> {
    let header_len = header.encoded_len();
    let put_tail = |out: &mut BytesMut| {
        if answer.more {
            out.put_slice(&[0x18, 1]);
        }
        if answer.count != 0 {
            out.put_u8(0x20);
            put_varint(answer.count as u64, out);
        }
    };
    let count_len = if answer.count == 0 { 0 } else { 1 + varint_len(answer.count as u64) };
    let len = 2 + header_len + answer.kvs.encoded_len() + 2 * usize::from(answer.more) + count_len;
    if len > limits::SEND_BYTES_MAX {
        return Err(too_large(len));
    }
    // Of exactly its length, an answer in one piece is one allocation.
    let is_whole = len <= WHOLE_BYTES_MAX;
    let mut head = BytesMut::with_capacity(if is_whole { len } else { 2 + header_len });
    head.put_u8(0x0a);
    head.put_u8(header_len as u8);
    header.encode_raw(&mut head);
    if is_whole {
        while !answer.kvs.encode_next(&mut head, usize::MAX) {}
        put_tail(&mut head);
        return Ok(Reply::Whole(head.freeze()));
    }
    let mut tail = BytesMut::new();
    put_tail(&mut tail);
    let source = RangeSource { ready: head, kvs: answer.kvs, tail: Some(tail.freeze()) };
    Ok(Reply::Parts { len, source: Box::new(source) })
}

/// A long answer: only places of values are held, the bytes are copied as the client takes them.
struct RangeSource {
    /// Encoded and not yet taken: the beginning of the answer, then pieces of it, then the rest of a large value.
    ready: BytesMut,
    kvs: Kvs,
    tail: Option<Bytes>,
}

impl RangeSource {
    fn piece(&mut self, bytes_max: usize) -> Option<Bytes> {
        if self.ready.len() < bytes_max && self.tail.is_some() {
            let missing = (bytes_max - self.ready.len()).min(WHOLE_BYTES_MAX);
            if self.kvs.encode_next(&mut self.ready, missing)
                && let Some(tail) = self.tail.take()
            {
                self.ready.put_slice(&tail);
            }
        }
        let piece = self.ready.split_to(self.ready.len().min(bytes_max));
        (!piece.is_empty()).then(|| piece.freeze())
    }
}

impl rpc::Source for RangeSource {
    fn next(&mut self, bytes_max: usize) -> Option<Bytes> {
        // An answer that ends too soon ends the connection.
        contain(|| self.piece(bytes_max)).ok().flatten()
    }
}

pub(super) fn put(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let (message, is_alone) = (call.message, call.is_alone);
    let request: PutRequest = match decode(message.clone()) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let space = match check::put(&request).and_then(|()| node.claim_space(store::put_cost(&request))) {
        Ok(space) => space,
        Err(error) => return refuse(responder, error),
    };
    admit(
        node,
        identity,
        request,
        |request| Ask::Put(request),
        move |node, _, pass| match pass {
            Ok(pass) => propose_holding(space, node, pass.author(), node::PUT, &message, is_alone, responder),
            Err(error) => refuse(responder, error),
        },
    );
}

pub(super) fn delete_range(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let request: DeleteRangeRequest = match decode(call.message.clone()) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    if let Err(error) = check::delete_range(&request) {
        return refuse(responder, error);
    }
    admit(
        node,
        identity,
        request,
        |request| Ask::DeleteRange(request),
        move |node, request, pass| {
            if pass.is_ok() && node.store.delete_answer_is_too_large(&request) {
                return refuse(responder, Error::TxnAnswerTooLarge);
            }
            let cost = || node.store.delete_cost_bytes(KeyRange::new(&request.key, &request.range_end));
            match pass.and_then(|pass| node.claim_room(cost()).map(|room| (pass, room))) {
                Ok((pass, room)) => {
                    propose_in((room, Space::default()), node, pass.author(), node::DELETE_RANGE, &call, responder);
                }
                Err(error) => refuse(responder, error),
            }
        },
    );
}

pub(super) fn txn(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let request: TxnRequest = match contain(|| api::decode::txn(call.message.clone())) {
        Ok(Ok(request)) => request,
        Ok(Err(api::decode::Error::TooDeep)) => return refuse(responder, Error::TooManyOps),
        Ok(Err(api::decode::Error::Malformed(error))) => return refuse(responder, unreadable(&error)),
        Err(panicked) => return refuse(responder, panicked),
    };
    if let Err(error) = check::txn(&request, node.config.max_txn_ops) {
        return refuse(responder, error);
    }
    match only_reads(&request) {
        Some(serializable) => read(
            node,
            identity,
            serializable,
            Reading::new(Operation::ReadonlyTxn),
            responder,
            move |node, pass, reading, responder| {
                if let Err(error) = pass.decide(Ask::Txn(&request), &node.store) {
                    reading.end(node, false);
                    return refuse(responder, error);
                }
                let heavy = node.store.is_heavy_txn(&request);
                let answer = move |node: &Arc<Node>| {
                    let answered = node.store.read_txn(&request);
                    reading.end(node, answered.is_ok());
                    if let Ok(response) = &answered {
                        node.metrics.operations.count_txn(response);
                    }
                    still(node, &pass, outcome(node, answered.map(store::Response::Txn)))
                };
                if heavy { run_slowly(node, responder, answer) } else { responder.send(answer(node)) }
            },
        ),
        None => {
            let space = match node.claim_space(store::txn_cost(&request)) {
                Ok(space) => space,
                Err(error) => return refuse(responder, error),
            };
            admit(
                node,
                identity,
                request,
                |request| Ask::Txn(request),
                move |node, request, pass| {
                    let room = || node.claim_room(node.store.txn_delete_cost_bytes(&request));
                    match pass.and_then(|pass| room().map(|room| (pass, room))) {
                        Ok((pass, room)) => propose_in((room, space), node, pass.author(), node::TXN, &call, responder),
                        Err(error) => refuse(responder, error),
                    }
                },
            );
        }
    }
}

/// `Some` when every operation is a range; then whether all of them are content with local data.
fn only_reads(request: &TxnRequest) -> Option<bool> {
    let mut serializable = true;
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Request::RequestRange(range)) => serializable &= range.serializable,
            _ => return None,
        }
    }
    Some(serializable)
}

pub(super) fn compact(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let request: CompactionRequest = match decode(call.message.clone()) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    admit(
        node,
        identity,
        request,
        |_| Ask::Root,
        move |node, request, pass| match pass {
            Ok(pass) => compact_as(node, pass.author(), request, &call, responder),
            Err(error) => refuse(responder, error),
        },
    );
}

fn compact_as(node: &Arc<Node>, author: Author, request: CompactionRequest, call: &Call, responder: Responder) {
    if !request.physical {
        return propose(node, author, node::COMPACTION, &call.message, call.is_alone, responder);
    }
    let own = node.clone();
    let done = move |responder: Responder, result: node::Outcome| match result {
        Ok(response) => {
            let waiting = own.clone();
            let answer = move || responder.send(outcome(&waiting, Ok(response)));
            own.when_compacted(request.revision, Box::new(answer));
        }
        Err(error) => refuse(responder, error),
    };
    node.propose(author, node::COMPACTION, &call.message, For::new(responder, done));
}

/// Sends a request through the log and its outcome to the client.
pub(super) fn propose(
    node: &Arc<Node>,
    author: Author,
    field: u32,
    request: &[u8],
    is_alone: bool,
    responder: Responder,
) {
    propose_holding(Space::default(), node, author, field, request, is_alone, responder);
}

/// The same, claiming space until the outcome is there.
pub(super) fn propose_holding(
    space: Space,
    node: &Arc<Node>,
    author: Author,
    field: u32,
    request: &[u8],
    is_alone: bool,
    responder: Responder,
) {
    let own = node.clone();
    let done = For::new(responder, move |responder: Responder, result| {
        drop(space);
        responder.send(outcome(&own, result));
    });
    send(node, author, field, request, is_alone, done);
}

/// As [`propose_holding`], with room on the disks.
pub(super) fn propose_in(
    (room, space): (Claim, Space),
    node: &Arc<Node>,
    author: Author,
    field: u32,
    call: &Call,
    responder: Responder,
) {
    let own = node.clone();
    let done = For::new(responder, move |responder: Responder, result| {
        drop(space);
        room.end(&own, &result);
        responder.send(outcome(&own, result));
    });
    send(node, author, field, &call.message, call.is_alone, done);
}

fn send(node: &Arc<Node>, author: Author, field: u32, request: &[u8], is_alone: bool, done: node::Done) {
    if is_alone { node.propose_here(author, field, request, done) } else { node.propose(author, field, request, done) }
}
