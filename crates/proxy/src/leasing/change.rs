//! A write as a transaction that takes place only if nobody else keeps what it changes.

use api::etcdserverpb::compare::CompareResult;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response;
use api::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, ResponseHeader, TxnRequest, TxnResponse,
};
use api::mvccpb::KeyValue;
use api::{Message, decode};
use bytes::Bytes;
use rpc::Status;
use std::collections::BTreeSet;

use super::REVOKE;
use super::book::{Book, Range, Wrote};
use super::claim::{created, lease_key, op, pairs, read, revoking};
use super::mistake::Mistake;
use crate::txn;

/// Guards of one transaction. What changes more is guarded by a range that has all of it: members bound the comparisons of a transaction.
const GUARDS_MAX: usize = 16;
/// Lease keys of a guard that a refusal tells of; the next one tells of others.
const TOLD_MAX: i64 = 256;

/// A write of a client.
#[derive(Debug)]
pub(crate) struct Change {
    request: Request,
    guards: Vec<Guard>,
    /// What is written may not be for everybody: this proxy does not keep it.
    is_private: bool,
}

/// Lease keys that must be nobody else's.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Guard {
    /// That of a key.
    Key(Bytes),
    /// All of a range of lease keys; the second is a range's end on the wire. This proxy gives back what it has of them before.
    Range(Bytes, Bytes),
}

/// One try of a change. It has to be [settled](Change::settle).
#[derive(Debug)]
pub(crate) struct Attempt {
    /// What a member is asked.
    pub(crate) txn: TxnRequest,
    /// The keys that are this proxy's, and the revisions that created their lease keys.
    own: Vec<(Bytes, i64)>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The answer to the client's request.
    Done(Bytes),
    /// Others have lease keys. These transactions revoke those that nobody has revoked yet.
    Later(Vec<TxnRequest>),
    /// The answer cannot be understood.
    Unreadable,
}

impl Change {
    /// The write of a request; none if nothing is to be guarded: it changes nothing, or is for members to refuse.
    ///
    /// # Errors
    /// Too many operations: it cannot be guarded unread, and must not go on unguarded.
    pub(crate) fn of(path: &str, message: &Bytes, prefix: &[u8], is_private: bool) -> Result<Option<Change>, Status> {
        let message = message.clone();
        let request = match path {
            "/etcdserverpb.KV/Put" => PutRequest::decode(message).ok().map(Request::RequestPut),
            "/etcdserverpb.KV/DeleteRange" => DeleteRangeRequest::decode(message).ok().map(Request::RequestDeleteRange),
            "/etcdserverpb.KV/Txn" => match txn::decode(message) {
                Ok(txn) => Some(Request::RequestTxn(txn)),
                Err(decode::Error::TooManyOps) => return Err(api::Error::TooManyOps.into()),
                Err(_) => None,
            },
            _ => None,
        };
        let change = request.and_then(|request| {
            let guards = guards(&request, prefix)?;
            (!guards.is_empty()).then_some(Change { request, guards, is_private })
        });
        Ok(change)
    }

    /// What it takes in memory beside its message, as long as it is tried: each try is a copy.
    pub(crate) fn bytes(&self) -> usize {
        match &self.request {
            Request::RequestTxn(txn) => txn::bytes(txn).saturating_mul(2),
            _ => 0,
        }
    }

    /// What it changes, for [`Book::bar`].
    pub(crate) fn ranges(&self, prefix: &[u8]) -> Vec<Range> {
        let range = |guard: &Guard| match guard {
            Guard::Key(key) => (key.clone(), Some([key, &b"\0"[..]].concat().into())),
            Guard::Range(start, end) => keys_of(prefix, start, end),
        };
        self.guards.iter().map(range).collect()
    }

    /// A try.
    pub(crate) fn attempt(&self, book: &mut Book, prefix: &[u8], now_ms: u64) -> Attempt {
        let (mut own, mut compare, mut failure) = (Vec::new(), Vec::new(), Vec::new());
        let mut success = vec![op(self.request.clone())];
        for guard in &self.guards {
            match guard {
                Guard::Key(key) => {
                    let lease_key = lease_key(prefix, key);
                    let kept = book.write(key);
                    if let Some(created) = kept {
                        own.push((key.clone(), created));
                        success.push(self.reading(key));
                    }
                    let is_skipped = kept.is_some() && Mistake::WritesWithoutLeaseKey.is_planted();
                    if !is_skipped {
                        compare.push(created(lease_key.clone(), CompareResult::Equal, kept.unwrap_or_default()));
                    }
                    failure.push(read(lease_key));
                }
                Guard::Range(start, end) => {
                    book.give_back_range(&keys_of(prefix, start, end), now_ms);
                    let guard = created(start.clone(), CompareResult::Less, 1);
                    if !Mistake::DeletesRangesUnguarded.is_planted() {
                        compare.push(Compare { range_end: end.clone(), ..guard });
                    }
                    let (key, range_end) = (start.clone(), end.clone());
                    let range = RangeRequest { key, range_end, limit: TOLD_MAX, ..RangeRequest::default() };
                    failure.push(op(Request::RequestRange(range)));
                }
            }
        }
        Attempt { txn: TxnRequest { compare, success, failure }, own }
    }

    /// Reads a key after it is written. What a put has written is known.
    fn reading(&self, key: &Bytes) -> RequestOp {
        let keys_only = self.written().is_some();
        op(Request::RequestRange(RangeRequest { key: key.clone(), keys_only, ..RangeRequest::default() }))
    }

    /// The value and the lease that a put writes: members tell neither with `keys_only`.
    fn written(&self) -> Option<(&Bytes, i64)> {
        match &self.request {
            Request::RequestPut(put) if !put.ignore_value && !put.ignore_lease => Some((&put.value, put.lease)),
            _ => None,
        }
    }

    /// A try is over, with the answer of a member or without any.
    pub(crate) fn settle(
        &self,
        book: &mut Book,
        prefix: &[u8],
        attempt: Attempt,
        answer: Option<TxnResponse>,
        now_ms: u64,
    ) -> Settled {
        let answer = answer.filter(|answer| !answer.responses.is_empty());
        let Some(answer) = answer else {
            for (key, created) in attempt.own {
                book.wrote(&key, created, Wrote::Unknown, now_ms);
            }
            return Settled::Unreadable;
        };
        let header = answer.header.unwrap_or_default();
        book.saw(header.revision);
        let mut responses = answer.responses.into_iter();
        if !answer.succeeded {
            let found = responses.filter_map(|op| pairs(Some(op))).flat_map(|range| range.kvs).collect();
            return Settled::Later(self.refused(book, prefix, &attempt.own, found, now_ms));
        }
        let done = responses.next().and_then(|op| op.response);
        for (key, created) in attempt.own {
            let how = match pairs(responses.next()) {
                _ if self.is_private => Wrote::Unknown,
                Some(range) => Wrote::State(range.kvs.into_iter().next().map(|kv| self.state(&kv)), header),
                None => Wrote::Unknown,
            };
            book.wrote(&key, created, how, now_ms);
        }
        done.and_then(|done| whole(done, header)).map_or(Settled::Unreadable, Settled::Done)
    }

    /// A pair as it is kept: copies, since the answer may hold a claim of the client.
    fn state(&self, kv: &KeyValue) -> KeyValue {
        let (value, lease) = self.written().unwrap_or((&kv.value, kv.lease));
        let (key, value) = (Bytes::copy_from_slice(&kv.key), Bytes::copy_from_slice(value));
        KeyValue { key, value, lease, ..kv.clone() }
    }

    /// These lease keys were found: what is to be revoked.
    fn refused(
        &self,
        book: &mut Book,
        prefix: &[u8],
        own: &[(Bytes, i64)],
        found: Vec<KeyValue>,
        now_ms: u64,
    ) -> Vec<TxnRequest> {
        let key_of = |lease_key: &KeyValue| lease_key.key.slice(prefix.len().min(lease_key.key.len())..);
        for (key, created) in own {
            let is_there = |kv: &KeyValue| kv.create_revision == *created && key_of(kv) == key;
            let how = if found.iter().any(is_there) { Wrote::Nothing } else { Wrote::Refused };
            book.wrote(key, *created, how, now_ms);
        }
        let mut revoked = Vec::new();
        for kv in found {
            let key = key_of(&kv);
            if own.iter().any(|(own, created)| *own == key && *created == kv.create_revision) {
                continue;
            }
            if self.guards.iter().any(|guard| matches!(guard, Guard::Key(of) if *of == key))
                && book.keeps(&key, kv.create_revision)
            {
                // It was acquired meanwhile: the next try writes it as its owner.
                continue;
            }
            if book.lease() == Some(kv.lease) {
                book.is_in_the_way(&key, kv.create_revision, now_ms);
            } else if kv.value != REVOKE {
                revoked.push(revoking(&kv));
            }
        }
        revoked
    }
}

/// The answer to the request inside of a transaction, as a member answers it alone.
fn whole(response: Response, header: ResponseHeader) -> Option<Bytes> {
    let header = Some(header);
    let bytes = match response {
        Response::ResponsePut(mut put) => {
            put.header = header;
            put.encode_to_vec()
        }
        Response::ResponseDeleteRange(mut delete) => {
            delete.header = header;
            delete.encode_to_vec()
        }
        Response::ResponseTxn(mut txn) => {
            txn.header = header;
            txn.encode_to_vec()
        }
        Response::ResponseRange(_) => return None,
    };
    Some(bytes.into())
}

/// The keys whose lease keys are in a range.
fn keys_of(prefix: &[u8], start: &Bytes, end: &Bytes) -> Range {
    let cut = |lease_key: &Bytes| lease_key.slice(prefix.len().min(lease_key.len())..);
    let is_whole = end.as_ref() == b"\0" || !end.starts_with(prefix);
    (cut(start), (!is_whole).then(|| cut(end)))
}

/// What guards a request; none if members refuse it.
fn guards(request: &Request, prefix: &[u8]) -> Option<Vec<Guard>> {
    let (mut keys, mut ranges, mut lease_keys) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    // A list instead of calls inside each other: clients choose how deep transactions are.
    let mut open = vec![request];
    while let Some(request) = open.pop() {
        match request {
            Request::RequestPut(put) => {
                keys.insert(put.key.clone());
            }
            Request::RequestDeleteRange(delete) if delete.range_end.is_empty() => {
                keys.insert(delete.key.clone());
                if delete.key.starts_with(prefix) {
                    // It may be the lease key of somebody who serves from memory what it stands for.
                    lease_keys.insert(delete.key.clone());
                }
            }
            Request::RequestDeleteRange(delete) => {
                ranges.insert((delete.key.clone(), delete.range_end.clone()));
            }
            Request::RequestTxn(txn) => {
                let ops = txn.success.iter().chain(&txn.failure);
                open.extend(ops.filter_map(|op| op.request.as_ref()));
            }
            Request::RequestRange(_) => {}
        }
    }
    if keys.iter().chain(ranges.iter().map(|(key, _)| key)).any(Bytes::is_empty) {
        return None;
    }
    let last = client::prefix_end(prefix);
    let mut guards: Vec<Guard> = keys.into_iter().map(Guard::Key).collect();
    guards.extend(lease_keys.into_iter().map(|key| {
        let end = [&key[..], b"\0"].concat().into();
        Guard::Range(key, end)
    }));
    for (start, end) in ranges {
        let is_open = end.as_ref() == b"\0";
        if !is_open && end <= start {
            // It deletes nothing.
            continue;
        }
        let lease_end = if is_open { last.clone() } else { lease_key(prefix, &end) };
        guards.push(Guard::Range(lease_key(prefix, &start), lease_end));
        // Whoever deletes lease keys deletes what they stand for.
        let first = start.max(Bytes::copy_from_slice(prefix));
        let end = if is_open || is_before(&last, &end) { last.clone() } else { end };
        if is_before(&first, &end) {
            guards.push(Guard::Range(first, end));
        }
    }
    Some(if guards.len() > GUARDS_MAX { vec![hull(&guards, prefix)] } else { guards })
}

/// Whether a key is before the end of a range.
fn is_before(key: &Bytes, end: &Bytes) -> bool {
    end.as_ref() == b"\0" || (key.as_ref() != b"\0" && key < end)
}

/// One range that has all of these.
fn hull(guards: &[Guard], prefix: &[u8]) -> Guard {
    let start = |guard: &Guard| match guard {
        Guard::Key(key) => lease_key(prefix, key),
        Guard::Range(start, _) => start.clone(),
    };
    let end = |guard: &Guard| match guard {
        Guard::Key(key) => [&lease_key(prefix, key)[..], b"\0"].concat().into(),
        Guard::Range(_, end) => end.clone(),
    };
    let last = guards.iter().map(end).reduce(|one, other| if is_before(&one, &other) { other } else { one });
    Guard::Range(guards.iter().map(start).min().unwrap_or_default(), last.unwrap_or_default())
}
