//! `etcdserverpb.KV`.

use super::auth_retry::TRIES_MAX;
use super::reply::{outcome, refuse};
use super::timed::{Reading, TimedRange, TimedTxn};
use super::within::{self, Order, Stop, Terms, counted, held, with_room};
use crate::auth::rules::{Keys, Root};
use crate::auth::{Permitted, Rule};
use crate::metrics::Answered;
use crate::node::{self, Claim, For, Looked, Node};
use api::etcdserverpb::{CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest, ResponseHeader, TxnRequest};
use api::{Error, KeyRange, Message, RaftRequest, limits, varint};
use bytes::{BufMut, Bytes, BytesMut};
use contain::contain;
use contain::lock;
use rpc::{Address, Call, Reply, Responder, Status};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::{Author, Kvs, RangeAnswer, Reached, Space, TxnAnswer};

/// Answers up to this size are built in one piece; larger ones are produced as the client's window opens.
const WHOLE_BYTES_MAX: usize = limits::TURN_BYTES_MAX;
/// Pairs from this size on are not copied. Each costs a frame of its own.
const LARGE_BYTES_MIN: usize = 16 * 1024;
/// Memory for the pieces of a larger answer: one on its way, one being produced.
const PIECES_BYTES: usize = 2 * WHOLE_BYTES_MAX;

/// Adds up lengths. The sum saturates: the largest number is too large for any answer.
fn sum<const N: usize>(lens: [usize; N]) -> usize {
    lens.into_iter().fold(0, usize::saturating_add)
}

pub(super) fn range(node: &Arc<Node>, call: Call, mut range: Permitted<Keys, TimedRange>, responder: Responder) {
    let (client, request_bytes) = (call.peer.address, call.message.len());
    let is_heavy = node.store.is_heavy(&range.request);
    let likely_bytes = if is_heavy { node.store.places_bytes(&range.request) } else { 0 };
    within::answer(node, Order { client, is_heavy, likely_bytes, request_bytes }, responder, move |terms| {
        let answer = answer_permitted(terms, &mut range);
        if !matches!(answer, Err(Stop::Needs(_)))
            && let Some(took) = range.reading.end(terms.node, answer.is_ok())
        {
            let bytes = answer.as_ref().map_or(0, Reply::len);
            // The number of pairs is unknown here, since the answer is already encoded.
            let answered = Answered { count: -1, bytes };
            terms.node.metrics.slow.read(&range.request, took, range.reading.waited(), answered);
        }
        answer
    });
}

/// Returns the answer if the permissions of its request still hold: it was built from the store after the request was
/// permitted.
pub(super) fn still<R: Rule<M>, M>(
    node: &Node,
    request: &Permitted<R, M>,
    answer: Result<Reply, Status>,
) -> Result<Reply, Status> {
    request.check_unchanged(&node.store)?;
    answer
}

/// Answers a call of `client` from the slow pool, or refuses it when there is no place. The function passed to `answer` tells
/// whether the client still waits.
pub(super) fn run_slowly(
    node: &Arc<Node>,
    client: Address,
    responder: Responder,
    answer: impl FnOnce(&Arc<Node>, &dyn Fn() -> bool) -> Result<Reply, Status> + Send + 'static,
) {
    run_slowly_with(node, client, responder, |node, responder| {
        let answer = answer(node, &|| !responder.is_canceled());
        responder.send(answer);
    });
}

/// Like [`run_slowly`], for work that sends the answer itself, perhaps later.
pub(super) fn run_slowly_with(
    node: &Arc<Node>,
    client: Address,
    responder: Responder,
    work: impl FnOnce(&Arc<Node>, Responder) + Send + 'static,
) {
    let own = node.clone();
    let slot = Arc::new(std::sync::Mutex::new(Some(responder)));
    let (taken, waiting) = (slot.clone(), slot.clone());
    let wanted = move || lock(&waiting).as_ref().is_some_and(|responder| !responder.is_canceled());
    let queued = node.slow.try_run_while(Some(client), wanted, move || {
        let responder = lock(&taken).take();
        if let Some(responder) = responder {
            work(&own, responder);
        }
    });
    if !queued && let Some(responder) = lock(&slot).take() {
        refuse(responder, Error::TooManyRequests);
    }
}

/// Reads, and reads again if users or permissions have changed meanwhile, at most [`TRIES_MAX`] times. So the answer is
/// entirely from before a change or from after it.
fn answer_permitted(terms: &Terms<'_>, range: &mut Permitted<Keys, TimedRange>) -> Result<Reply, Stop> {
    for _ in 0..TRIES_MAX {
        let answer = answer_range(terms, &range.request);
        if matches!(answer, Err(Stop::Needs(_))) || range.check_unchanged(&terms.node.store).is_ok() {
            return answer;
        }
        range.decide_anew(&terms.node.store)?;
    }
    Err(Error::AuthOldRevision.into())
}

fn answer_range(terms: &Terms<'_>, request: &RangeRequest) -> Result<Reply, Stop> {
    let node = terms.node;
    let found = node.store.range_within(request, terms.allowance());
    let answer = found.map_err(|unread| terms.stop(unread, node.store.places_bytes(request)))?;
    let header = node.header(answer.revision);
    let len = sum([2, header.encoded_len(), answer.kvs.encoded_len(), tail_len(&answer)]);
    if len > limits::SEND_BYTES_MAX {
        return Err(Status::too_large_to_send(len).into());
    }
    let is_whole = len <= WHOLE_BYTES_MAX;
    let claim = terms.claim(if is_whole { len } else { sum([answer.kvs.held_bytes(), PIECES_BYTES]) })?;
    node.metrics.operations.ranges.fetch_add(1, Ordering::Relaxed);
    // A panic from here on can damage only the answer, so it ends only this call.
    Ok(contain(|| encode_range(answer, &header, len, claim)).map_err(Status::from)?)
}

fn encode_range(answer: RangeAnswer, header: &ResponseHeader, len: usize, claim: Option<budget::Claim>) -> Reply {
    // An answer in one piece needs only one allocation, because its length is known.
    let is_whole = len <= WHOLE_BYTES_MAX;
    let mut head = BytesMut::with_capacity(if is_whole { len } else { sum([2, header.encoded_len()]) });
    put_header(header, &mut head);
    if is_whole {
        let mut kvs = answer.kvs;
        while !kvs.encode_next(&mut head, usize::MAX) {}
        #[cfg(test)]
        crate::planted::panic_over_answer(&head);
        put_tail(answer.more, answer.count, &mut head);
        return Reply::Whole(held(claim, head.freeze()));
    }
    let mut tail = BytesMut::with_capacity(tail_len(&answer));
    put_tail(answer.more, answer.count, &mut tail);
    let parts = VecDeque::from([(answer.kvs, tail)]);
    Reply::Parts { len, source: PairsSource::new(head, parts, claim) }
}

/// The answer to a transaction of ranges. As for one range, the pairs of a long answer are copied as the client takes
/// them.
fn answer_read_txn(terms: &Terms<'_>, request: &TxnRequest) -> Result<Reply, Stop> {
    let node = terms.node;
    let found = node.store.read_txn_within(request, terms.allowance());
    let answer = found.map_err(|unread| terms.stop(unread, node.store.txn_places_bytes(request)))?;
    let header = node.header(answer.revision);
    // The headers of the ranges contain only the revision.
    let inner = ResponseHeader { revision: answer.revision, ..Default::default() };
    let inner_len = sum([2, inner.encoded_len()]);
    let mut len = sum([2, header.encoded_len(), if answer.succeeded { 2 } else { 0 }]);
    let mut held_bytes = 0;
    let lens: Vec<(usize, usize)> = answer
        .ranges
        .iter()
        .map(|range| {
            let range_len = sum([inner_len, range.kvs.encoded_len(), tail_len(range)]);
            let op_len = varint::delimited_len(1, range_len);
            len = sum([len, varint::delimited_len(3, op_len)]);
            held_bytes = sum([held_bytes, range.kvs.held_bytes(), RANGE_BYTES]);
            (op_len, range_len)
        })
        .collect();
    if len > limits::SEND_BYTES_MAX {
        return Err(Status::too_large_to_send(len).into());
    }
    let is_whole = len <= WHOLE_BYTES_MAX;
    let claim = terms.claim(if is_whole { len } else { sum([held_bytes, PIECES_BYTES]) })?;
    node.metrics.operations.count_read_txn(&answer);
    Ok(contain(|| encode_read_txn(answer, (&header, &inner), &lens, len, claim)).map_err(Status::from)?)
}

/// `headers` are the header of the answer and that of its ranges. `lens` are the lengths of each operation and of the
/// range in it.
fn encode_read_txn(
    answer: TxnAnswer,
    (header, inner): (&ResponseHeader, &ResponseHeader),
    lens: &[(usize, usize)],
    len: usize,
    claim: Option<budget::Claim>,
) -> Reply {
    let is_whole = len <= WHOLE_BYTES_MAX;
    let mut head = BytesMut::with_capacity(if is_whole { len } else { 0 });
    put_header(header, &mut head);
    if answer.succeeded {
        head.put_slice(&[0x10, 1]);
    }
    let mut parts: VecDeque<(Kvs, BytesMut)> = VecDeque::with_capacity(if is_whole { 0 } else { lens.len() });
    for (range, (op_len, range_len)) in answer.ranges.into_iter().zip(lens) {
        let front = match parts.back_mut() {
            Some((_, tail)) => tail,
            None => &mut head,
        };
        varint::put_delimited(front, 3, *op_len);
        varint::put_delimited(front, 1, *range_len);
        put_header(inner, front);
        let mut kvs = range.kvs;
        if is_whole {
            while !kvs.encode_next(front, usize::MAX) {}
            put_tail(range.more, range.count, front);
        } else {
            let mut tail = BytesMut::new();
            put_tail(range.more, range.count, &mut tail);
            parts.push_back((kvs, tail));
        }
    }
    if is_whole {
        return Reply::Whole(held(claim, head.freeze()));
    }
    Reply::Parts { len, source: PairsSource::new(head, parts, claim) }
}

/// Approximate memory of a transaction's range besides the places of its pairs, in bytes.
const RANGE_BYTES: usize = 256;

/// Appends the field `header`, which comes first in every answer. Its length fits into a byte.
fn put_header(header: &ResponseHeader, out: &mut BytesMut) {
    out.put_u8(0x0a);
    out.put_u8(header.encoded_len() as u8);
    // This cannot fail: the buffer grows.
    header.encode_raw(out);
}

/// Length of the fields behind the pairs of a range.
fn tail_len(answer: &RangeAnswer) -> usize {
    sum([varint::nonzero_len(3, u64::from(answer.more)), varint::nonzero_len(4, answer.count as u64)])
}

/// Appends the fields behind the pairs of a range.
fn put_tail(more: bool, count: i64, out: &mut BytesMut) {
    varint::put_nonzero(out, 3, u64::from(more));
    varint::put_nonzero(out, 4, count as u64);
}

/// A long answer: only places of values are held. Small pairs are copied as the client takes them; large ones go to the socket from
/// where they are stored.
pub(super) struct PairsSource {
    /// Encoded bytes that the client has not taken yet: the beginning of the answer, or a piece of it.
    ready: BytesMut,
    /// The rest of a large pair, which follows `ready`.
    large: Bytes,
    /// Pairs, and the encoded fields behind them.
    parts: VecDeque<(Kvs, BytesMut)>,
    _claim: Option<budget::Claim>,
}

impl PairsSource {
    pub(super) fn new(
        ready: BytesMut,
        parts: VecDeque<(Kvs, BytesMut)>,
        claim: Option<budget::Claim>,
    ) -> Box<PairsSource> {
        Box::new(PairsSource { ready, large: Bytes::new(), parts, _claim: claim })
    }

    fn piece(&mut self, bytes_max: usize) -> Option<Bytes> {
        while self.large.is_empty()
            && self.ready.len() < bytes_max
            && let Some((kvs, tail)) = self.parts.front_mut()
        {
            let missing = bytes_max.saturating_sub(self.ready.len()).min(WHOLE_BYTES_MAX);
            match kvs.encode_around(&mut self.ready, missing, LARGE_BYTES_MIN) {
                Reached::Large(pair) => self.large = pair.into_bytes(),
                Reached::Part => {}
                Reached::All => {
                    self.ready.put_slice(tail);
                    self.parts.pop_front();
                }
            }
        }
        let piece = match self.ready.len().min(bytes_max) {
            0 => self.large.split_to(self.large.len().min(bytes_max)),
            len => self.ready.split_to(len).freeze(),
        };
        #[cfg(test)]
        crate::planted::panic_over_answer(&piece);
        (!piece.is_empty()).then_some(piece)
    }
}

impl rpc::Source for PairsSource {
    fn next(&mut self, bytes_max: usize) -> Option<Bytes> {
        // A panic ends the answer too soon, and that ends the connection.
        contain(|| self.piece(bytes_max)).ok().flatten()
    }
}

pub(super) fn put(node: &Arc<Node>, call: Call, put: Permitted<Keys, PutRequest>, responder: Responder) {
    let bytes = if put.prev_kv { node.store.pair_bytes(&put.key) } else { 0 };
    let within = Within::of(call, put.author(), RaftRequest::Put);
    let kept =
        move |node: &Arc<Node>, _| Ok(Claims { space: node.claim_space(store::put_cost(&put))?, ..Claims::default() });
    propose_within(bytes, within, node, responder, kept);
}

pub(super) fn delete_range(
    node: &Arc<Node>,
    call: Call,
    request: Permitted<Keys, DeleteRangeRequest>,
    responder: Responder,
) {
    let is_heavy = node.store.is_heavy_delete(&request);
    let within = Within::of(call, request.author(), RaftRequest::DeleteRange);
    weigh(is_heavy, within, node, responder, move |within, node, responder| {
        if node.store.delete_answer_is_too_large(&request) {
            return refuse(responder, Error::TxnAnswerTooLarge);
        }
        let range = KeyRange::new(&request.key, &request.range_end);
        let bytes = if request.prev_kv { node.store.pairs_bytes(range) } else { 0 };
        let kept = move |node: &Arc<Node>, client| {
            if node.store.delete_answer_is_too_large(&request) {
                return Err(Error::TxnAnswerTooLarge);
            }
            let range = KeyRange::new(&request.key, &request.range_end);
            let looks = node.claim_looks(Some(client), node.store.delete_share(range))?;
            let headroom = node.claim_headroom(node.store.delete_cost_bytes(range))?;
            Ok(Claims { headroom: Some(headroom), looks, ..Claims::default() })
        };
        propose_within(bytes, within, node, responder, kept);
    });
}

pub(super) fn txn(node: &Arc<Node>, call: Call, txn: Permitted<Keys, TimedTxn>, responder: Responder) {
    match txn.reading {
        Some(reading) => read_txn(node, call, txn, reading, responder),
        None => write_txn(node, call, txn, responder),
    }
}

fn read_txn(node: &Arc<Node>, call: Call, txn: Permitted<Keys, TimedTxn>, reading: Reading, responder: Responder) {
    let (client, request_bytes) = (call.peer.address, call.message.len());
    let is_heavy = node.store.is_heavy_txn(&txn.request);
    let likely_bytes = if is_heavy { node.store.txn_places_bytes(&txn.request) } else { 0 };
    within::answer(node, Order { client, is_heavy, likely_bytes, request_bytes }, responder, move |terms| {
        let answer = answer_read_txn(terms, &txn.request);
        if !matches!(answer, Err(Stop::Needs(_))) {
            reading.end(terms.node, answer.is_ok());
            txn.check_unchanged(&terms.node.store)?;
        }
        answer
    });
}

fn write_txn(node: &Arc<Node>, call: Call, txn: Permitted<Keys, TimedTxn>, responder: Responder) {
    let keys = node.store.txn_keys(&txn.request);
    if keys > limits::TXN_KEYS_MAX {
        return refuse(responder, Error::TxnTooManyKeys);
    }
    // How long values are is not known without a look at the keys.
    let sorts = store::sorts_by_value(&txn.request);
    let is_heavy = sorts || keys > limits::INLINE_SORT_KEYS_MAX as u64 || node.store.is_heavy_write_txn(&txn.request);
    let within = Within::of(call, txn.author(), RaftRequest::Txn);
    weigh(is_heavy, within, node, responder, move |within, node, responder| {
        let sorted = if sorts { node.store.txn_sort_keys(&txn.request) } else { 0 };
        if keys.saturating_add(sorted) > limits::TXN_KEYS_MAX {
            return refuse(responder, Error::TxnTooManyKeys);
        }
        let bytes = node.store.txn_answer_bytes(&txn.request);
        let may_be_too_large = bytes > limits::TXN_ANSWER_BYTES_MAX as u64;
        weigh(may_be_too_large && !is_heavy, within, node, responder, move |within, node, responder| {
            if may_be_too_large && node.store.txn_answer_is_too_large(&txn.request) {
                return refuse(responder, Error::TxnAnswerTooLarge);
            }
            let kept = move |node: &Arc<Node>, client| {
                // A transaction of few keys counts for nothing, unless it deletes many.
                let looks = node.store.txn_share(&txn.request, keys);
                let looks = node.claim_looks(Some(client), looks.saturating_add(sorted))?;
                let space = node.claim_space(store::txn_cost(&txn.request))?;
                let headroom = node.claim_headroom(node.store.txn_delete_cost_bytes(&txn.request))?;
                Ok(Claims { headroom: Some(headroom), space, looks })
            };
            propose_within(bytes, within, node, responder, kept);
        });
    });
}

pub(super) fn compact(node: &Arc<Node>, call: Call, request: Permitted<Root, CompactionRequest>, responder: Responder) {
    let author = request.author();
    if !request.physical {
        return propose(node, author, RaftRequest::Compaction, &call.message, call.is_alone, responder);
    }
    let own = node.clone();
    let done = move |responder: Responder, result: node::Outcome| match result {
        Ok(response) => {
            let waiting = own.clone();
            let answer = move |responder: Responder, waited| match waited {
                Ok(()) => responder.send(outcome(&waiting, Ok(response))),
                Err(error) => refuse(responder, error),
            };
            own.when_compacted(request.revision, For::new(responder, answer));
        }
        Err(error) => refuse(responder, error),
    };
    node.propose(author, RaftRequest::Compaction, &call.message, For::new(responder, done));
}

/// Sends a request through the log and its outcome to the client.
pub(super) fn propose(
    node: &Arc<Node>,
    author: Author,
    kind: RaftRequest,
    request: &[u8],
    is_alone: bool,
    responder: Responder,
) {
    propose_holding(Space::default(), node, author, kind, request, is_alone, responder);
}

/// Like [`propose`], with space in the quota that is claimed until the outcome is there.
pub(super) fn propose_holding(
    space: Space,
    node: &Arc<Node>,
    author: Author,
    kind: RaftRequest,
    request: &[u8],
    is_alone: bool,
    responder: Responder,
) {
    let done = answering(node, Claims { space, ..Claims::default() }, None, responder);
    send(node, author, kind, request, is_alone, done);
}

/// Like [`propose`], with headroom on the disks that is claimed until the outcome is there.
pub(super) fn propose_in(
    headroom: Claim,
    node: &Arc<Node>,
    author: Author,
    kind: RaftRequest,
    request: &[u8],
    is_alone: bool,
    responder: Responder,
) {
    let done = answering(node, Claims { headroom: Some(headroom), ..Claims::default() }, None, responder);
    send(node, author, kind, request, is_alone, done);
}

/// A proposal that may have to wait for memory first.
struct Within {
    author: Author,
    kind: RaftRequest,
    message: Bytes,
    is_alone: bool,
    client: Address,
}

impl Within {
    fn of(call: Call, author: Author, kind: RaftRequest) -> Within {
        let Call { message, is_alone, peer, .. } = call;
        Within { author, kind, message, is_alone, client: peer.address }
    }
}

/// Calls `then`, which finds out how much memory a proposal needs. If that `is_heavy`, it runs on a slow thread, so
/// that the clients of a request thread do not wait for it.
fn weigh(
    is_heavy: bool,
    within: Within,
    node: &Arc<Node>,
    responder: Responder,
    then: impl FnOnce(Within, &Arc<Node>, Responder) + Send + 'static,
) {
    if !is_heavy {
        return then(within, node, responder);
    }
    match node.budget.claim_request(within.message.len(), within.client) {
        Ok(kept) => run_slowly_with(node, within.client, responder, move |node, responder| {
            drop(kept);
            // A slow thread has other work than taking a turn of consensus.
            then(Within { is_alone: false, ..within }, node, responder);
        }),
        Err(error) => refuse(responder, error),
    }
}

/// Proposes once there is room in memory for the answer, estimated at `bytes`. `kept` then claims disk space and quota
/// for the entry. It runs after the wait, because there may be more to delete by then.
fn propose_within(
    bytes: u64,
    within: Within,
    node: &Arc<Node>,
    responder: Responder,
    kept: impl FnOnce(&Arc<Node>, Address) -> Result<Claims, Error> + Send + 'static,
) {
    with_room(node, within.client, within.message.len(), bytes, responder, move |node, claim, responder| {
        match kept(node, within.client) {
            Ok(claims) => {
                // After a wait this is a slow thread, which has other work than taking a turn of consensus.
                let is_alone = within.is_alone && claim.is_none();
                let done = answering(node, claims, claim, responder);
                send(node, within.author, within.kind, &within.message, is_alone, done);
            }
            Err(error) => refuse(responder, error),
        }
    });
}

/// The claims of a proposal until its outcome: headroom on the disks, space in the quota, and time for the keys that members look at.
#[derive(Default)]
struct Claims {
    headroom: Option<Claim>,
    space: Space,
    looks: Looked,
}

/// Sends an outcome to the client. Releases the claims of the proposal; the `memory` stays claimed with the answer.
fn answering(node: &Arc<Node>, claims: Claims, memory: Option<budget::Claim>, responder: Responder) -> node::Done {
    let own = node.clone();
    For::new(responder, move |responder: Responder, result| {
        let Claims { headroom, space, looks } = claims;
        drop((space, looks));
        if let Some(headroom) = headroom {
            headroom.end(&own, &result);
        }
        responder.send(outcome(&own, result).map(|reply| counted(&own, memory, reply)));
    })
}

fn send(node: &Arc<Node>, author: Author, kind: RaftRequest, request: &[u8], is_alone: bool, done: node::Done) {
    if is_alone { node.propose_here(author, kind, request, done) } else { node.propose(author, kind, request, done) }
}
