//! What a transaction that writes would answer, and how many keys it looks at: found out before it is proposed.
//!
//! Every member applies an entry before anything else, and its proposer builds the answer as a whole. So what one transaction takes of
//! time and memory must be known before it is in the log.

use super::compare::{Path, branch};
use super::delete_reserve::merged;
use super::own_puts::OwnPuts;
use crate::log::read;
use crate::read::{Plan, ReadView, View};
use crate::store::Store;
use api::KeyRange;
use api::etcdserverpb::range_request::SortOrder;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{PutRequest, RangeRequest, RequestOp, TxnRequest};
use api::limits::{INLINE_SORT_KEYS_MAX, TXN_ANSWER_BYTES_MAX, TXN_KEYS_TOGETHER_MAX};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

/// Keys that a request deletes and that count among those that requests under way look at: so that some may be of any length at a time.
const DELETED_KEYS_MAX: u64 = TXN_KEYS_TOGETHER_MAX / 8;
/// Pairs of a range that are looked at however many were before it.
const SAMPLE_KEYS_MIN: u64 = 64;

/// Pairs that may yet be looked at to find out how long an answer will be.
struct Samples {
    left: u64,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples { left: INLINE_SORT_KEYS_MAX as u64 }
    }
}

impl Store {
    /// Keys that applying a transaction looks at, in the dearer of its branches. The live keys that it deletes
    /// itself are left out once: a deletion of any length is allowed.
    pub fn txn_keys(&self, request: &TxnRequest) -> u64 {
        self.txn_looks(request, 0)
    }

    /// What a transaction counts for among those under way, of which another may delete the same keys before it. `keys` is what
    /// [`Store::txn_keys`] said of it.
    pub fn txn_share(&self, request: &TxnRequest, keys: u64) -> u64 {
        let deletes = has_span_deleted(&request.success) || has_span_deleted(&request.failure);
        if deletes { self.txn_looks(request, DELETED_KEYS_MAX) } else { keys }
    }

    /// Of the live keys that it deletes itself no more than `deleted_max` count.
    fn txn_looks(&self, request: &TxnRequest, deleted_max: u64) -> u64 {
        let branch = |ops: &[RequestOp]| {
            let own = OwnPuts::of(ops);
            let deleted = ops.iter().filter_map(|op| match &op.request {
                Some(Request::RequestDeleteRange(delete)) => Some(KeyRange::new(&delete.key, &delete.range_end)),
                _ => None,
            });
            let once = self.live_keys(&merged(deleted.collect())).saturating_sub(deleted_max);
            self.branch_keys(ops, &own, has_span_deleted(ops)).saturating_sub(once)
        };
        self.condition_keys(request).saturating_add(branch(&request.success).max(branch(&request.failure)))
    }

    fn condition_keys(&self, request: &TxnRequest) -> u64 {
        let keys = request.compare.iter().map(|compare| self.keys(KeyRange::new(&compare.key, &compare.range_end)));
        keys.fold(0, u64::saturating_add)
    }

    /// `deletes`: operations before these may have deleted any number of keys, which are passed over one by one.
    fn branch_keys(&self, ops: &[RequestOp], own: &OwnPuts<'_>, deletes: bool) -> u64 {
        // How deep transactions are nested is checked when they are decoded.
        let of_op = |op: &RequestOp| match &op.request {
            Some(Request::RequestRange(range)) => self.range_keys(range, own, deletes),
            Some(Request::RequestDeleteRange(delete)) => {
                let range = KeyRange::new(&delete.key, &delete.range_end);
                self.keys(range).saturating_add(own.count(range))
            }
            Some(Request::RequestTxn(nested)) => {
                let of = |ops| self.branch_keys(ops, own, deletes);
                self.condition_keys(nested).saturating_add(of(&nested.success).max(of(&nested.failure)))
            }
            Some(Request::RequestPut(_)) | None => 0,
        };
        ops.iter().map(of_op).fold(0, u64::saturating_add)
    }

    fn range_keys(&self, request: &RangeRequest, own: &OwnPuts<'_>, deletes: bool) -> u64 {
        let range = KeyRange::new(&request.key, &request.range_end);
        if matches!(range, KeyRange::One(_)) {
            return 1;
        }
        let all = self.keys(range);
        let is_short = request.revision <= 0 && !deletes;
        let index = match Plan::new(request).fetched_max() {
            _ if request.count_only && is_short => 0,
            // The first ones, and those that are passed over because they are not live.
            Some(fetched) if is_short => {
                all.min((fetched as u64).saturating_add(all.saturating_sub(read(&self.index).count_live(range))))
            }
            _ => all,
        };
        index.saturating_add(own.count(range))
    }

    /// The same for a deletion.
    pub fn delete_share(&self, range: KeyRange<'_>) -> u64 {
        let index = read(&self.index);
        let (keys, live) = (index.count_keys(range), index.count_live(range));
        keys.saturating_sub(live.saturating_sub(DELETED_KEYS_MAX))
    }

    /// Keys that a walk over a range looks at, live or not.
    pub(super) fn keys(&self, range: KeyRange<'_>) -> u64 {
        read(&self.index).count_keys(range)
    }

    /// Bytes of the pairs that a transaction would answer with now, in the longer of its branches, those nested in it and those that it
    /// puts itself included. An estimate: what they are is known when it is applied. Ends once it is known that they are too many to be
    /// answered.
    pub fn txn_answer_bytes(&self, request: &TxnRequest) -> u64 {
        let mut samples = Samples::default();
        let mut branch = |ops: &[RequestOp]| self.branch_bytes(ops, &OwnPuts::of(ops), &mut samples);
        branch(&request.success).max(branch(&request.failure))
    }

    fn branch_bytes(&self, ops: &[RequestOp], own: &OwnPuts<'_>, samples: &mut Samples) -> u64 {
        let mut bytes = 0_u64;
        for op in ops {
            bytes = bytes.saturating_add(self.op_answer_bytes(op, own, samples));
            if bytes > TXN_ANSWER_BYTES_MAX as u64 {
                break;
            }
        }
        bytes
    }

    fn op_answer_bytes(&self, op: &RequestOp, own: &OwnPuts<'_>, samples: &mut Samples) -> u64 {
        match &op.request {
            Some(Request::RequestRange(range)) => self.range_answer_bytes(range, own, samples),
            Some(Request::RequestPut(put)) if put.prev_kv => self.pair_bytes(&put.key),
            Some(Request::RequestDeleteRange(delete)) if delete.prev_kv => {
                let range = KeyRange::new(&delete.key, &delete.range_end);
                self.sampled_bytes(range, 0, u64::MAX, samples).saturating_add(own.bytes(range, u64::MAX))
            }
            Some(Request::RequestTxn(nested)) => {
                let success = self.branch_bytes(&nested.success, own, samples);
                success.max(self.branch_bytes(&nested.failure, own, samples))
            }
            _ => 0,
        }
    }

    fn range_answer_bytes(&self, request: &RangeRequest, own: &OwnPuts<'_>, samples: &mut Samples) -> u64 {
        let range = KeyRange::new(&request.key, &request.range_end);
        let limit = u64::try_from(request.limit).ok().filter(|&limit| limit > 0).unwrap_or(u64::MAX);
        // What sorting and filters leave of the pairs can be any.
        let is_first = !request.keys_only && request.sort_order() == SortOrder::None;
        let put = if request.revision > 0 { 0 } else { own.bytes(range, limit) };
        match range {
            _ if request.count_only => 0,
            KeyRange::One(key) if request.revision <= 0 => self.pair_bytes(key).max(put),
            range => {
                let limit = if is_first { limit } else { u64::MAX };
                self.sampled_bytes(range, request.revision, limit, samples).saturating_add(put)
            }
        }
    }

    /// Bytes of the pair that a key has now.
    pub fn pair_bytes(&self, key: &[u8]) -> u64 {
        let found = read(&self.index).get(key, self.revision());
        found.map_or(0, |version| u64::from(version.loc.len))
    }

    /// Bytes of the pairs of a range. Of a long one the beginning stands for the rest.
    pub fn pairs_bytes(&self, range: KeyRange<'_>) -> u64 {
        self.sampled_bytes(range, 0, u64::MAX, &mut Samples::default())
    }

    /// Bytes of the first `limit` pairs of a range at a revision, or now, by as many of them as `samples` has left.
    fn sampled_bytes(&self, range: KeyRange<'_>, revision: i64, limit: u64, samples: &mut Samples) -> u64 {
        let live = ReadView::open(self);
        let at = if revision > 0 { revision.min(live.current()) } else { live.current() };
        // How many were live at an old revision is not counted anywhere.
        let all = live.count(range, at).unwrap_or_else(|| self.keys(range)).min(limit);
        let (mut bytes, mut seen) = (0_u64, 0_u64);
        let most = all.min(samples.left.max(SAMPLE_KEYS_MIN));
        if most == 0 {
            return 0;
        }
        let mut is_cut = false;
        live.scan(range, at, &mut |_, version| {
            is_cut = seen >= most;
            if is_cut {
                return ControlFlow::Break(());
            }
            bytes = bytes.saturating_add(u64::from(version.loc.len));
            seen = seen.saturating_add(1);
            ControlFlow::Continue(())
        });
        samples.left = samples.left.saturating_sub(seen);
        if is_cut { bytes.saturating_mul(all.div_ceil(seen.max(1)).max(1)) } else { bytes }
    }

    /// Whether the answer to a transaction would surely be too large now. It is applied all the same, so it is better not proposed. Looks
    /// at all that the transaction looks at.
    pub fn txn_answer_is_too_large(&self, request: &TxnRequest) -> bool {
        let view = ReadView::open(self);
        let path = Path::choose(&view, request);
        let mut rehearsal = Rehearsal { view, path, puts: BTreeMap::new(), deleted: Vec::new(), bytes: 0 };
        rehearsal.branch(request);
        rehearsal.is_too_large()
    }
}

/// Whether a branch, or what is nested in it, deletes more than single keys.
fn has_span_deleted(ops: &[RequestOp]) -> bool {
    ops.iter().any(|op| match &op.request {
        Some(Request::RequestDeleteRange(delete)) => !delete.range_end.is_empty(),
        Some(Request::RequestTxn(nested)) => has_span_deleted(&nested.success) || has_span_deleted(&nested.failure),
        _ => false,
    })
}

/// A transaction that is gone through as if it were applied now, for the bytes of its answer. Counts only what is sure.
struct Rehearsal<'a, 'v> {
    view: ReadView<'v>,
    path: Path,
    /// Bytes of the pairs put so far, and not deleted.
    puts: BTreeMap<&'a [u8], u64>,
    /// What was deleted so far.
    deleted: Vec<KeyRange<'a>>,
    bytes: u64,
}

impl<'a> Rehearsal<'a, '_> {
    fn is_too_large(&self) -> bool {
        self.bytes > TXN_ANSWER_BYTES_MAX as u64
    }

    /// Recurses by nesting, at most `TXN_NESTING_MAX` deep.
    fn branch(&mut self, request: &'a TxnRequest) {
        let succeeded = self.path.step();
        for op in branch(request, succeeded) {
            if self.is_too_large() {
                return;
            }
            match &op.request {
                Some(Request::RequestRange(range)) => self.range(range),
                Some(Request::RequestPut(put)) => self.put(put),
                Some(Request::RequestDeleteRange(delete)) => {
                    let range = KeyRange::new(&delete.key, &delete.range_end);
                    if delete.prev_kv {
                        self.show(range, false);
                    }
                    self.puts.retain(|key, _| !range.contains(key));
                    self.deleted.push(range);
                }
                Some(Request::RequestTxn(nested)) => self.branch(nested),
                None => {}
            }
        }
    }

    fn put(&mut self, put: &'a PutRequest) {
        if put.prev_kv {
            self.show(KeyRange::One(&put.key), false);
        }
        // One that keeps its value is as long as before, which is not looked up.
        let bytes = if put.ignore_value { 0 } else { put.key.len() + put.value.len() };
        self.puts.insert(&put.key, bytes as u64);
    }

    fn range(&mut self, request: &RangeRequest) {
        let range = KeyRange::new(&request.key, &request.range_end);
        let filters = [
            request.min_mod_revision,
            request.max_mod_revision,
            request.min_create_revision,
            request.max_create_revision,
        ];
        // Which pairs a limit or a filter leaves, and how long those are, is not looked at.
        let pairs = self.view.count_keys(range).saturating_add(self.puts.len() as u64);
        let is_cut = u64::try_from(request.limit).is_ok_and(|limit| limit > 0 && limit < pairs);
        if request.count_only || is_cut || request.revision > 0 || filters.iter().any(|bound| *bound != 0) {
            return;
        }
        self.show(range, request.keys_only);
    }

    /// Adds the pairs of a range, or their keys.
    fn show(&mut self, range: KeyRange<'_>, keys_only: bool) {
        let Rehearsal { view, puts, deleted, .. } = self;
        let mut bytes = self.bytes;
        if !deleted.iter().any(|deleted| deleted.contains(range.start()) || range.contains(deleted.start())) {
            view.scan(range, view.current(), &mut |key, version| {
                if !puts.contains_key(key) {
                    let pair = if keys_only { key.len() as u64 } else { u64::from(version.loc.len) };
                    bytes = bytes.saturating_add(pair);
                }
                if bytes > TXN_ANSWER_BYTES_MAX as u64 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        }
        if !range.is_empty() {
            let bounds = (Bound::Included(range.start()), range.upper());
            let own = puts.range::<[u8], _>(bounds);
            let own = own.map(|(key, bytes)| if keys_only { key.len() as u64 } else { *bytes });
            bytes = bytes.saturating_add(own.fold(0, u64::saturating_add));
        }
        self.bytes = bytes;
    }
}
