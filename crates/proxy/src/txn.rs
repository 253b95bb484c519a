//! Transactions as the proxy reads them.

use api::decode::Error;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{Compare, RequestOp, TxnRequest};
use api::limits::TXN_TREE_OPS_MAX;
use bytes::Bytes;

/// Conditions and operations of a transaction that the proxy reads, with all that are nested in it. What members take is for them to say,
/// but the proxy has no memory for all that fit into a message: two bytes are one, which takes more than a hundred when it is decoded.
/// Members with a `--max-txn-ops` of up to a third of it take no more.
pub(crate) const OPS_MAX: usize = 3 * TXN_TREE_OPS_MAX;

/// Decodes a transaction.
///
/// # Errors
/// That it has more than [`OPS_MAX`], is nested too deep, or is none.
pub(crate) fn decode(message: Bytes) -> Result<TxnRequest, Error> {
    api::decode::txn(message, OPS_MAX)
}

/// What a transaction takes in memory beside what it has of its message.
pub(crate) fn bytes(txn: &TxnRequest) -> usize {
    let (mut open, mut bytes) = (vec![txn], 0_usize);
    while let Some(txn) = open.pop() {
        let ops = txn.success.len().saturating_add(txn.failure.len()).saturating_mul(size_of::<RequestOp>());
        let compares = txn.compare.len().saturating_mul(size_of::<Compare>());
        bytes = bytes.saturating_add(ops).saturating_add(compares);
        open.extend(txn.success.iter().chain(&txn.failure).filter_map(|op| match &op.request {
            Some(Request::RequestTxn(inner)) => Some(inner),
            _ => None,
        }));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leasing::Change;
    use crate::namespace::Namespace;
    use crate::reads::{Reads, Written};
    use crate::single::TXN;
    use api::Message as _;
    use api::etcdserverpb::PutRequest;

    /// A put, and empty operations: two bytes each.
    fn with_ops(count: usize) -> Bytes {
        let put = PutRequest { key: "k".into(), ..PutRequest::default() };
        let mut success = vec![RequestOp { request: Some(Request::RequestPut(put)) }];
        success.resize(count, RequestOp::default());
        TxnRequest { success, ..TxnRequest::default() }.encode_to_vec().into()
    }

    #[test]
    fn nothing_decodes_all_the_operations_that_fit_into_a_message() {
        let (reads, namespace) = (Reads::default(), Namespace::new("n/"));
        let refused = api::Error::TooManyOps.message();
        let most = with_ops(OPS_MAX);
        assert_eq!(bytes(&decode(most.clone()).expect("as many as are read")), OPS_MAX * size_of::<RequestOp>());
        assert!(matches!(reads.writes(TXN, &most), Written::Keys(slots) if slots.len() == 1));
        assert!(namespace.request(TXN, most.clone()).is_ok());
        assert!(matches!(Change::of(TXN, &most, b"l/", false), Ok(Some(_))));
        let more = with_ops(OPS_MAX + 1);
        // It is passed on, and nothing that was read before is given again.
        assert!(matches!(reads.writes(TXN, &more), Written::Everything));
        let told = namespace.request(TXN, more.clone()).map_err(|status| status.message.into_owned());
        assert_eq!(told, Err(refused.to_string()), "its keys are not put into the namespace");
        let told = Change::of(TXN, &more, b"l/", false).map(drop).map_err(|status| status.message.into_owned());
        assert_eq!(told, Err(refused.to_string()), "it might write what others keep in memory");
    }
}
