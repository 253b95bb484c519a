//! Answers to deletions and transactions that are long: encoded as the client's window opens, and given back as they leave.

use api::Message;
use api::etcdserverpb::response_op::Response;
use api::etcdserverpb::{DeleteRangeResponse, RangeResponse, ResponseOp, TxnResponse};
use api::limits::TURN_BYTES_MAX;
use api::mvccpb::KeyValue;
use api::varint;
use budget::Claim;
use bytes::{Bytes, BytesMut};
use contain::contain;
use rpc::{Reply, Source};

/// A claim is made smaller when it is for this much more than what is left.
const RELEASE_BYTES: u64 = 1 << 20;

/// Field numbers of the messages that hold pairs or operations.
mod field {
    pub(super) const RANGE_KVS: u32 = 2;
    pub(super) const DELETED_PREV_KVS: u32 = 3;
    pub(super) const TXN_RESPONSES: u32 = 3;
    pub(super) const OP_RANGE: u32 = 1;
    pub(super) const OP_DELETE_RANGE: u32 = 3;
    pub(super) const OP_TXN: u32 = 4;
}

/// A part of an answer that is not encoded yet.
enum Rest {
    /// Pairs, in the field of this number.
    Pairs(u32, std::vec::IntoIter<KeyValue>),
    /// What the operations of a transaction answered.
    Ops(std::vec::IntoIter<ResponseOp>),
    /// The fields of a range behind its pairs.
    Tail(Vec<u8>),
}

/// What is still to be sent: encoded bytes, and what is behind them. The last part of `rest` comes first: an operation
/// stands before the others of its transaction.
struct Parts {
    ready: BytesMut,
    rest: Vec<Rest>,
}

impl Parts {
    /// A source of the encoded fields of `front` and the part behind them.
    fn new(front: &impl Message, rest: Rest) -> Box<Parts> {
        let mut parts = Parts { ready: BytesMut::new(), rest: vec![rest] };
        parts.put(front);
        Box::new(parts)
    }

    fn put(&mut self, message: &impl Message) {
        self.ready.reserve(message.encoded_len());
        // This cannot fail: the buffer grows.
        message.encode_raw(&mut self.ready);
    }

    fn put_delimited(&mut self, field: u32, len: usize) {
        self.ready.reserve(2 * varint::LEN_MAX);
        varint::put_delimited(&mut self.ready, field, len);
    }

    /// Encodes the next pair, or the beginning of an operation. False if there is none.
    fn encode_next(&mut self) -> bool {
        match self.rest.last_mut() {
            None => return false,
            Some(Rest::Pairs(field, pairs)) => {
                if let (field, Some(pair)) = (*field, pairs.next()) {
                    self.put_delimited(field, pair.encoded_len());
                    self.put(&pair);
                    return true;
                }
                self.rest.pop();
            }
            Some(Rest::Ops(ops)) => match ops.next() {
                Some(op) => self.begin(op),
                None => drop(self.rest.pop()),
            },
            Some(Rest::Tail(tail)) => {
                let tail = std::mem::take(tail);
                self.rest.pop();
                self.ready.extend_from_slice(&tail);
            }
        }
        true
    }

    /// Encodes what is before the pairs and operations in this one.
    fn begin(&mut self, op: ResponseOp) {
        self.put_delimited(field::TXN_RESPONSES, op.encoded_len());
        match op.response {
            Some(Response::ResponseRange(range)) => {
                self.put_delimited(field::OP_RANGE, range.encoded_len());
                let RangeResponse { header, kvs, more, count } = range;
                self.put(&RangeResponse { header, ..Default::default() });
                self.rest.push(Rest::Tail(RangeResponse { more, count, ..Default::default() }.encode_to_vec()));
                self.rest.push(Rest::Pairs(field::RANGE_KVS, kvs.into_iter()));
            }
            Some(Response::ResponseDeleteRange(deleted)) => {
                self.put_delimited(field::OP_DELETE_RANGE, deleted.encoded_len());
                let DeleteRangeResponse { header, deleted, prev_kvs } = deleted;
                self.put(&DeleteRangeResponse { header, deleted, prev_kvs: Vec::new() });
                self.rest.push(Rest::Pairs(field::DELETED_PREV_KVS, prev_kvs.into_iter()));
            }
            Some(Response::ResponseTxn(txn)) => {
                self.put_delimited(field::OP_TXN, txn.encoded_len());
                let TxnResponse { header, succeeded, responses } = txn;
                self.put(&TxnResponse { header, succeeded, responses: Vec::new() });
                self.rest.push(Rest::Ops(responses.into_iter()));
            }
            // One pair at most.
            response => self.put(&ResponseOp { response }),
        }
    }
}

impl Source for Parts {
    fn next(&mut self, bytes_max: usize) -> Option<Bytes> {
        // A panic ends the answer too soon, and that ends the connection.
        contain(|| {
            while self.ready.len() < bytes_max.min(TURN_BYTES_MAX) && self.encode_next() {}
            let piece = self.ready.split_to(self.ready.len().min(bytes_max)).freeze();
            #[cfg(test)]
            crate::planted::panic_over_answer(&piece);
            (!piece.is_empty()).then_some(piece)
        })
        .ok()
        .flatten()
    }
}

/// The answer to a deletion of `len` bytes.
pub(super) fn deletion(len: usize, answer: DeleteRangeResponse) -> Reply {
    let DeleteRangeResponse { header, deleted, prev_kvs } = answer;
    let front = DeleteRangeResponse { header, deleted, prev_kvs: Vec::new() };
    let rest = Rest::Pairs(field::DELETED_PREV_KVS, prev_kvs.into_iter());
    Reply::Parts { len, source: Parts::new(&front, rest) }
}

/// The answer to a transaction of `len` bytes.
pub(super) fn txn(len: usize, answer: TxnResponse) -> Reply {
    let TxnResponse { header, succeeded, responses } = answer;
    let front = TxnResponse { header, succeeded, responses: Vec::new() };
    Reply::Parts { len, source: Parts::new(&front, Rest::Ops(responses.into_iter())) }
}

/// A source with the memory that was claimed for it, which becomes less as the answer leaves.
pub(super) struct Claimed {
    source: Box<dyn Source>,
    claim: Claim,
    left: u64,
}

impl Claimed {
    pub(super) fn new(source: Box<dyn Source>, claim: Claim, len: usize) -> Claimed {
        Claimed { source, claim, left: len as u64 }
    }
}

impl Source for Claimed {
    fn next(&mut self, bytes_max: usize) -> Option<Bytes> {
        let piece = self.source.next(bytes_max)?;
        self.left = self.left.saturating_sub(piece.len() as u64);
        if self.claim.bytes().saturating_sub(self.left) >= RELEASE_BYTES {
            self.claim.resize(self.left);
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::{PutResponse, ResponseHeader};

    fn pairs(count: usize, len: usize) -> Vec<KeyValue> {
        let pair =
            |key: usize| KeyValue { key: key.to_string().into(), value: vec![7; len].into(), ..Default::default() };
        (0..count).map(pair).collect()
    }

    fn read(reply: Reply, bytes_max: usize) -> Vec<u8> {
        let Reply::Parts { len, mut source } = reply else { panic!("in parts") };
        let mut all = Vec::new();
        while let Some(piece) = source.next(bytes_max) {
            assert!(!piece.is_empty() && piece.len() <= bytes_max);
            all.extend_from_slice(&piece);
        }
        assert_eq!(all.len(), len);
        all
    }

    #[test]
    fn parts_are_the_whole() {
        let header = Some(ResponseHeader { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 });
        for (count, len) in [(0, 0), (1, 100_000), (3_000, 100), (20, 20_000)] {
            let deleted = DeleteRangeResponse { header, deleted: count as i64, prev_kvs: pairs(count, len) };
            for bytes_max in [1, 1_000, 65_536, usize::MAX] {
                assert!(read(deletion(deleted.encoded_len(), deleted.clone()), bytes_max) == deleted.encode_to_vec());
            }
        }
    }

    #[test]
    fn parts_of_a_transaction_are_the_whole() {
        let header = Some(ResponseHeader { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 });
        let range = |count, len, more| RangeResponse { header, kvs: pairs(count, len), more, count: count as i64 };
        let deleted = DeleteRangeResponse { header, deleted: 3, prev_kvs: pairs(3, 50_000) };
        let put = PutResponse { header, prev_kv: pairs(1, 10).pop() };
        let op = |response| ResponseOp { response };
        let txn = |succeeded, responses| TxnResponse { header, succeeded, responses };
        let inner = vec![
            op(Some(Response::ResponseRange(range(2_000, 100, true)))),
            op(Some(Response::ResponseTxn(txn(false, Vec::new())))),
            op(Some(Response::ResponsePut(put.clone()))),
        ];
        let all = txn(
            true,
            vec![
                op(Some(Response::ResponseDeleteRange(deleted))),
                op(Some(Response::ResponseTxn(txn(true, inner)))),
                op(None),
                op(Some(Response::ResponsePut(put))),
                op(Some(Response::ResponseRange(range(0, 0, false)))),
                op(Some(Response::ResponseRange(range(1, 100_000, false)))),
            ],
        );
        for bytes_max in [1, 1_000, 65_536, usize::MAX] {
            assert!(read(super::txn(all.encoded_len(), all.clone()), bytes_max) == all.encode_to_vec());
        }
    }

    #[test]
    fn memory_is_given_back_as_the_answer_leaves() {
        let budget = budget::Budget::new(64 << 20, std::time::Duration::MAX);
        let answer = DeleteRangeResponse { prev_kvs: pairs(100, 100_000), ..Default::default() };
        let len = answer.encoded_len();
        let claim = budget.try_claim(budget::Pool::Long, len as u64, None).expect("room");
        let Reply::Parts { source, .. } = deletion(len, answer) else { panic!("in parts") };
        let mut claimed = Claimed::new(source, claim, len);
        let mut left = len as u64;
        while let Some(piece) = claimed.next(65_536) {
            left -= piece.len() as u64;
            assert!((left..left + RELEASE_BYTES).contains(&budget.held(budget::Pool::Long)));
        }
        assert_eq!(left, 0);
        drop(claimed);
        assert_eq!(budget.held(budget::Pool::Long), 0);
    }
}
