//! Decoding transactions nested as deep as etcd accepts.
//!
//! prost stops at 100 messages inside each other, which is 50 levels of transactions; etcd takes as many levels as
//! `--max-txn-ops` has operations. Switching prost's bound off would let a client overflow the stack with nested groups of
//! any message. So the two message types that contain each other are decoded here, with a bound of their own, and everything inside
//! them by prost.

use crate::etcdserverpb::{RequestOp, TxnRequest, request_op::Request};
use crate::limits::TXN_NESTING_MAX;
use bytes::{Buf, Bytes};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};

/// Why a transaction cannot be decoded.
#[derive(Debug)]
pub enum Error {
    /// Not a valid message.
    Malformed(DecodeError),
    /// Transactions nested deeper than any server takes them.
    TooDeep,
    /// More conditions and operations than are taken.
    TooManyOps,
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Error::Malformed(error)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Malformed(error) => error.fmt(f),
            Error::TooDeep => f.write_str("transactions nested too deep"),
            Error::TooManyOps => f.write_str("too many operations in a transaction"),
        }
    }
}

impl std::error::Error for Error {}

/// Decodes a transaction with at most `ops_max` conditions and operations, those of nested transactions among them: two bytes of a
/// message make one of more than a hundred in memory, and who sends it is not known yet. Decoding stops at the first one too many.
pub fn txn(message: Bytes, ops_max: usize) -> Result<TxnRequest, Error> {
    let mut ops_left = ops_max;
    txn_at(message, 1, &mut ops_left)
}

fn txn_at(mut message: Bytes, depth: usize, ops_left: &mut usize) -> Result<TxnRequest, Error> {
    if depth > TXN_NESTING_MAX {
        return Err(Error::TooDeep);
    }
    let mut txn = TxnRequest::default();
    while let Some(field) = Field::next(&mut message)? {
        if let (1..=3, Some(_)) = (field.number, &field.content) {
            *ops_left = ops_left.checked_sub(1).ok_or(Error::TooManyOps)?;
        }
        match (field.number, field.content) {
            (2, Some(content)) => txn.success.push(op_at(content, depth, ops_left)?),
            (3, Some(content)) => txn.failure.push(op_at(content, depth, ops_left)?),
            _ => txn.merge(field.whole)?,
        }
    }
    Ok(txn)
}

fn op_at(mut message: Bytes, depth: usize, ops_left: &mut usize) -> Result<RequestOp, Error> {
    let mut op = RequestOp::default();
    while let Some(field) = Field::next(&mut message)? {
        match (field.number, field.content) {
            (4, Some(content)) => {
                let txn = txn_at(content, depth.saturating_add(1), ops_left)?;
                match &mut op.request {
                    // A field given twice adds to what it holds: protobuf's rule.
                    Some(Request::RequestTxn(before)) => {
                        before.compare.extend(txn.compare);
                        before.success.extend(txn.success);
                        before.failure.extend(txn.failure);
                    }
                    other => *other = Some(Request::RequestTxn(txn)),
                }
            }
            _ => op.merge(field.whole)?,
        }
    }
    Ok(op)
}

/// One field as it stands in a message.
struct Field {
    number: u32,
    /// Key and value.
    whole: Bytes,
    /// The value, if it has a length of its own.
    content: Option<Bytes>,
}

impl Field {
    /// Takes the next field off `rest`. A field that is not whole is handed on with all that follows, for prost to refuse. Of any other
    /// nothing that follows is handed on: prost would decode that without bounds on depth and number.
    fn next(rest: &mut Bytes) -> Result<Option<Field>, Error> {
        if rest.is_empty() {
            return Ok(None);
        }
        let start = rest.clone();
        let (number, wire_type) = decode_key(rest)?;
        let len = match wire_type {
            WireType::Varint => {
                decode_varint(rest)?;
                0
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => usize::try_from(decode_varint(rest)?).unwrap_or(usize::MAX),
            // prost knows where a group ends, bounds what it holds and refuses an end without a beginning.
            WireType::StartGroup | WireType::EndGroup => {
                skip_field(wire_type, number, rest, DecodeContext::default())?;
                0
            }
        };
        if len > rest.remaining() {
            *rest = Bytes::new();
            return Ok(Some(Field { number: 0, whole: start, content: None }));
        }
        let content = rest.split_to(len);
        let whole = start.slice(..start.len().saturating_sub(rest.len()));
        Ok(Some(Field { number, whole, content: (wire_type == WireType::LengthDelimited).then_some(content) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcdserverpb::{Compare, PutRequest};

    fn op(request: Request) -> RequestOp {
        RequestOp { request: Some(request) }
    }

    fn chain(depth: usize) -> TxnRequest {
        let put = PutRequest { key: "k".into(), value: "v".into(), ..Default::default() };
        let compare = vec![Compare { key: "c".into(), ..Default::default() }];
        let mut txn = TxnRequest { compare, success: vec![op(Request::RequestPut(put))], failure: vec![] };
        for _ in 1..depth {
            txn = TxnRequest { failure: vec![op(Request::RequestTxn(txn))], ..Default::default() };
        }
        txn
    }

    #[test]
    fn deep_transactions_are_read_back() {
        for depth in [1, 2, 60, TXN_NESTING_MAX] {
            let sent = chain(depth);
            assert_eq!(txn(sent.encode_to_vec().into(), usize::MAX).expect("valid"), sent);
        }
        assert!(matches!(txn(chain(TXN_NESTING_MAX + 1).encode_to_vec().into(), usize::MAX), Err(Error::TooDeep)));
    }

    #[test]
    fn agrees_with_prost_where_both_can() {
        let good = chain(3).encode_to_vec();
        for at in 0..good.len() {
            for byte in [0, 0x0b, 0x7f, 0x80, 0xff] {
                let mut changed = good.clone();
                changed[at] = byte;
                let ours = txn(changed.clone().into(), usize::MAX);
                let theirs = TxnRequest::decode(&changed[..]);
                assert_eq!(ours.ok(), theirs.ok(), "{changed:?}");
            }
            assert_eq!(txn(good[..at].to_vec().into(), usize::MAX).ok(), TxnRequest::decode(&good[..at]).ok());
        }
    }

    /// Decodes as many as may be, then one more: what stands behind that is not a message, and is not looked at.
    #[test]
    fn decoding_stops_at_the_first_operation_too_many() {
        const OPS_MAX: usize = 1_000;
        const FAULT: u8 = 0xff;
        // Each is an empty condition or operation; those in the third are in a nested transaction.
        let [compare, success, failure] = [[0x0a, 0], [0x12, 0], [0x1a, 0]];
        for head in [&[][..], &[0x7b, 0x7c], &[0x7b, 0x0a, 1, 7, 0x7c]] {
            for op in [compare, success, failure] {
                let sent = |ops: usize| [head, &op.repeat(ops), &[FAULT]].concat();
                let nested = |ops: usize| {
                    let inner = Bytes::from(sent(ops));
                    let mut op = head.to_vec();
                    prost::encoding::bytes::encode(4, &inner, &mut op);
                    let mut outer = head.to_vec();
                    prost::encoding::bytes::encode(2, &op, &mut outer);
                    outer
                };
                let txn = |message: Vec<u8>| txn(message.into(), OPS_MAX);
                assert!(matches!(txn(sent(OPS_MAX)), Err(Error::Malformed(_))), "{op:?} behind {head:?}");
                assert!(matches!(txn(sent(OPS_MAX + 1)), Err(Error::TooManyOps)), "{op:?} behind {head:?}");
                assert!(matches!(txn(nested(OPS_MAX - 1)), Err(Error::Malformed(_))), "{op:?} behind {head:?}");
                assert!(matches!(txn(nested(OPS_MAX)), Err(Error::TooManyOps)), "{op:?} behind {head:?}");
            }
        }
        let many = success.repeat(1 << 20);
        assert!(matches!(txn(many.into(), OPS_MAX), Err(Error::TooManyOps)));
    }

    #[test]
    fn groups_are_passed_over() {
        let good = chain(3).encode_to_vec();
        for group in [&[0x7b, 0x7c][..], &[0x7b, 0x83, 1, 0x84, 1, 0x0a, 1, 7, 0x7c]] {
            for message in [[group, &good].concat(), [&good, group].concat()] {
                let ours = txn(message.clone().into(), usize::MAX).expect("valid");
                assert_eq!(ours, TxnRequest::decode(&message[..]).expect("valid"));
            }
        }
        // In place of a condition, and without an end or a beginning.
        for wrong in [&[0x0b, 0x0c][..], &[0x13, 0x14], &[0x7b], &[0x7b, 0x84, 1], &[0x7c]] {
            assert!(TxnRequest::decode(wrong).is_err() && txn(wrong.to_vec().into(), usize::MAX).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn groups_do_not_overflow_the_stack() {
        let groups = vec![0x0b; 1_000_000];
        assert!(matches!(txn(groups.into(), usize::MAX), Err(Error::Malformed(_))));
    }
}
