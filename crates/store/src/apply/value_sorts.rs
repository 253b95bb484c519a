//! What it takes to sort pairs by their values: values that begin alike are compared to where they differ, and with large ones that takes
//! far longer than to look at their keys.

use super::own_puts::OwnPuts;
use crate::read::{Plan, ReadView, View};
use crate::store::Store;
use api::KeyRange;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{RangeRequest, RequestOp, TxnRequest};
use std::ops::ControlFlow;

/// Bytes of values that are compared in the time of a look at a key.
const SORTED_BYTES_PER_KEY: u64 = 512;

/// Whether a transaction, or one that is nested in it, sorts pairs by their values.
pub fn sorts_by_value(request: &TxnRequest) -> bool {
    request.success.iter().chain(&request.failure).any(|op| match &op.request {
        Some(Request::RequestRange(range)) => Plan::new(range).sorts_by_value(),
        // How deep transactions are nested is checked when they are decoded.
        Some(Request::RequestTxn(nested)) => sorts_by_value(nested),
        _ => false,
    })
}

impl Store {
    /// Keys that can be looked at in the time that it takes at most to sort by value in the dearer branch of a transaction. Looks at all keys
    /// that it sorts.
    pub fn txn_sort_keys(&self, request: &TxnRequest) -> u64 {
        let branch = |ops: &[RequestOp]| self.branch_sort_keys(ops, &OwnPuts::of(ops));
        branch(&request.success).max(branch(&request.failure))
    }

    fn branch_sort_keys(&self, ops: &[RequestOp], own: &OwnPuts<'_>) -> u64 {
        let of_op = |op: &RequestOp| match &op.request {
            Some(Request::RequestRange(range)) => self.sort_keys(range, own),
            Some(Request::RequestTxn(nested)) => {
                let of = |ops| self.branch_sort_keys(ops, own);
                of(&nested.success).max(of(&nested.failure))
            }
            _ => 0,
        };
        ops.iter().map(of_op).fold(0, u64::saturating_add)
    }

    /// The same for a range that is answered alone.
    pub(crate) fn range_sort_keys(&self, request: &RangeRequest) -> u64 {
        self.sort_keys(request, &OwnPuts::default())
    }

    fn sort_keys(&self, request: &RangeRequest, own: &OwnPuts<'_>) -> u64 {
        let plan = Plan::new(request);
        if !plan.sorts_by_value() {
            return 0;
        }
        let range = KeyRange::new(&request.key, &request.range_end);
        let most = plan.fetched_max().map_or(u64::MAX, |fetched| fetched as u64);
        let (mut pairs, mut bytes) = (own.count(range), own.bytes(range, u64::MAX));
        let view = ReadView::open(self);
        let at = if request.revision > 0 { request.revision.min(view.current()) } else { view.current() };
        let mut seen = 0;
        view.scan(range, at, &mut |_, version| {
            seen += 1;
            bytes = bytes.saturating_add(u64::from(version.loc.len));
            if seen < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        pairs = pairs.saturating_add(seen);
        let rounds = if pairs < 2 { 0 } else { u64::from(pairs.ilog2()) + 1 };
        bytes.saturating_mul(rounds) / SORTED_BYTES_PER_KEY
    }
}
