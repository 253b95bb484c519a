//! The checks that need nothing but the request: what etcd's API layer refuses before anything is proposed.

use crate::etcdserverpb::{
    DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, range_request, request_op::Request,
};
use crate::{Error, KeyRange, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Refuses a range without a key or with a sort order or target outside the enums.
pub fn range(request: &RangeRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    let order = range_request::SortOrder::try_from(request.sort_order);
    let target = range_request::SortTarget::try_from(request.sort_target);
    if order.is_err() || target.is_err() { Err(Error::InvalidSortOption) } else { Ok(()) }
}

/// Refuses a put without a key, or with what it asks to keep.
pub fn put(request: &PutRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        Err(Error::EmptyKey)
    } else if request.ignore_value && !request.value.is_empty() {
        Err(Error::ValueProvided)
    } else if request.ignore_lease && request.lease != 0 {
        Err(Error::LeaseProvided)
    } else {
        Ok(())
    }
}

/// Refuses a delete without a key.
pub fn delete_range(request: &DeleteRangeRequest) -> Result<(), Error> {
    if request.key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

/// Conditions and operations that a transaction may have with all that are nested in it, where one list may have `ops_max`: lists that
/// are allowed on their own multiply when they are nested.
pub fn txn_tree_ops_max(ops_max: usize) -> usize {
    limits::TXN_TREE_OPS_MAX.max(ops_max.saturating_mul(3))
}

/// Refuses a transaction that is too large, malformed, or writes a key twice.
pub fn txn(request: &TxnRequest, ops_max: usize) -> Result<(), Error> {
    let mut tree = txn_tree_ops_max(ops_max);
    txn_shape(request, ops_max, 1, &mut tree)?;
    writes(&request.success)?;
    writes(&request.failure)?;
    Ok(())
}

/// `tree`: what the whole transaction may still have.
fn txn_shape(request: &TxnRequest, ops_max: usize, depth: usize, tree: &mut usize) -> Result<(), Error> {
    let ops = request.compare.len().max(request.success.len()).max(request.failure.len());
    if ops > ops_max || depth > limits::TXN_NESTING_MAX {
        return Err(Error::TooManyOps);
    }
    let all = request.compare.len().saturating_add(request.success.len()).saturating_add(request.failure.len());
    *tree = tree.checked_sub(all).ok_or(Error::TooManyOps)?;
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Request::RequestRange(inner)) => range(inner)?,
            Some(Request::RequestPut(inner)) => put(inner)?,
            Some(Request::RequestDeleteRange(inner)) => delete_range(inner)?,
            Some(Request::RequestTxn(inner)) => {
                txn_shape(inner, ops_max.saturating_sub(ops), depth.saturating_add(1), tree)?
            }
            None => return Err(Error::KeyNotFound),
        }
    }
    Ok(())
}

/// What one list of operations writes: the keys put, the keys deleted, and the spans deleted, merged so that no two overlap.
#[derive(Default)]
struct Writes<'a> {
    puts: BTreeSet<&'a [u8]>,
    deletes: BTreeSet<&'a [u8]>,
    /// Start of a span to its end.
    spans: BTreeMap<&'a [u8], &'a [u8]>,
}

impl<'a> Writes<'a> {
    fn delete(&mut self, range: KeyRange<'a>) {
        match range {
            KeyRange::One(key) => {
                self.deletes.insert(key);
            }
            _ if range.is_empty() => {}
            KeyRange::Span(start, end) => self.delete_span(start, end),
            // etcd takes `range_end` literally here, and no key is below a single zero byte: such a delete conflicts with nothing.
            KeyRange::From(_) => {}
        }
    }

    fn delete_span(&mut self, mut start: &'a [u8], mut end: &'a [u8]) {
        if let Some((&before, &before_end)) = self.spans.range(..=start).next_back()
            && before_end >= start
        {
            (start, end) = (before, end.max(before_end));
        }
        while let Some((&next, &next_end)) = self.spans.range(start..).next()
            && next <= end
        {
            self.spans.remove(next);
            end = end.max(next_end);
        }
        self.spans.insert(start, end);
    }

    fn touches(&self, key: &[u8]) -> bool {
        let span = self.spans.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        self.puts.contains(key) || self.deletes.contains(key) || span.is_some_and(|(_, &end)| key < end)
    }

    fn put(&mut self, key: &'a [u8]) -> Result<(), Error> {
        if self.touches(key) {
            return Err(Error::DuplicateKey);
        }
        self.puts.insert(key);
        Ok(())
    }
}

/// Collects the writes of one list and refuses a key that is put twice, or put and deleted. Deletes may overlap each other. Of a
/// nested transaction both branches count, but they may put the same key, since only one of them runs.
fn writes(ops: &[RequestOp]) -> Result<Writes<'_>, Error> {
    let mut all = Writes::default();
    for op in ops {
        if let Some(Request::RequestDeleteRange(inner)) = &op.request {
            all.delete(KeyRange::new(&inner.key, &inner.range_end));
        }
    }
    for op in ops {
        if let Some(Request::RequestTxn(inner)) = &op.request {
            let mut success = writes(&inner.success)?;
            let mut failure = writes(&inner.failure)?;
            success.puts.append(&mut failure.puts);
            for key in std::mem::take(&mut success.puts) {
                all.put(key)?;
            }
            // Only now: what one branch deletes the other may put, since one of them runs.
            for branch in [success, failure] {
                all.deletes.extend(branch.deletes);
                for (start, end) in branch.spans {
                    all.delete_span(start, end);
                }
            }
        }
    }
    for op in ops {
        if let Some(Request::RequestPut(inner)) = &op.request {
            all.put(&inner.key)?;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(request: Request) -> RequestOp {
        RequestOp { request: Some(request) }
    }

    fn put_op(key: &'static str) -> RequestOp {
        op(Request::RequestPut(PutRequest { key: key.into(), ..Default::default() }))
    }

    fn delete_op(key: &'static str, range_end: &'static str) -> RequestOp {
        let request = DeleteRangeRequest { key: key.into(), range_end: range_end.into(), prev_kv: false };
        op(Request::RequestDeleteRange(request))
    }

    fn nested(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
        op(Request::RequestTxn(TxnRequest { compare: vec![], success, failure }))
    }

    fn list(success: Vec<RequestOp>) -> Result<(), Error> {
        txn(&TxnRequest { compare: vec![], success, failure: vec![] }, limits::TXN_OPS_MAX)
    }

    #[test]
    fn a_key_is_written_once() {
        assert_eq!(list(vec![put_op("a"), put_op("a")]), Err(Error::DuplicateKey));
        assert_eq!(list(vec![put_op("b"), delete_op("a", "c")]), Err(Error::DuplicateKey));
        assert_eq!(list(vec![put_op("c"), delete_op("a", "c"), delete_op("b", "c")]), Ok(()));
        assert_eq!(list(vec![put_op("c"), delete_op("a", "\0")]), Ok(()), "etcd's rule, taken literally");
        assert_eq!(list(vec![nested(vec![put_op("a")], vec![put_op("a")])]), Ok(()));
        assert_eq!(list(vec![nested(vec![put_op("a")], vec![]), put_op("a")]), Err(Error::DuplicateKey));
        assert_eq!(list(vec![nested(vec![], vec![delete_op("a", "")]), put_op("a")]), Err(Error::DuplicateKey));
        assert_eq!(list(vec![nested(vec![put_op("a")], vec![delete_op("a", "")])]), Ok(()));
        assert_eq!(list(vec![delete_op("a", ""), nested(vec![put_op("a")], vec![])]), Err(Error::DuplicateKey));
        assert_eq!(list(vec![nested(vec![put_op("a")], vec![]), nested(vec![delete_op("a", "")], vec![])]), Ok(()));
    }

    #[test]
    fn spans_merge() {
        let mut writes = Writes::default();
        for (start, end) in [("b", "d"), ("f", "h"), ("c", "g"), ("x", "z")] {
            writes.delete_span(start.as_bytes(), end.as_bytes());
        }
        assert_eq!(writes.spans.len(), 2);
        assert!(writes.touches(b"e") && writes.touches(b"y") && !writes.touches(b"h") && !writes.touches(b"a"));
    }

    #[test]
    fn nesting_is_bounded() {
        let mut inner = nested(vec![], vec![]);
        for _ in 0..limits::TXN_NESTING_MAX {
            inner = nested(vec![inner], vec![]);
        }
        assert_eq!(list(vec![inner]), Err(Error::TooManyOps));
    }

    #[test]
    fn nested_lists_do_not_multiply() {
        let ranges = |count| {
            let range = RangeRequest { key: "k".into(), ..Default::default() };
            nested(vec![op(Request::RequestRange(range)); count], vec![])
        };
        assert_eq!(list(vec![ranges(64); 64]), Ok(()));
        let quarter = nested(vec![ranges(32); 32], vec![ranges(32); 32]);
        assert_eq!(list(vec![quarter.clone(); 4]), Ok(()));
        assert_eq!(list(vec![quarter; 5]), Err(Error::TooManyOps));
    }
}
