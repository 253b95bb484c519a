//! The checks that need nothing but the request: what etcd's API layer refuses before anything is proposed.

use crate::etcdserverpb::{
    DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest, range_request, request_op::Request,
};
use crate::{Error, limits, writes};

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
    writes::check(&request.success)?;
    writes::check(&request.failure)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcdserverpb::RequestOp;

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
