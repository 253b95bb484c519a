//! Answers to deletions that are long: encoded as the client's window opens, and given back as they leave.

use api::Message;
use api::etcdserverpb::DeleteRangeResponse;
use api::limits::TURN_BYTES_MAX;
use api::mvccpb::KeyValue;
use api::varint;
use budget::Claim;
use bytes::{Bytes, BytesMut};
use contain::contain;
use rpc::{Reply, Source};

/// A claim is made smaller when it is for this much more than what is left.
const RELEASE_BYTES: u64 = 1 << 20;

/// The field `prev_kvs` of `DeleteRangeResponse`, its last.
const PREV_KVS: u32 = 3;

/// What is still to be sent: encoded bytes, and pairs behind them.
struct Parts {
    ready: BytesMut,
    pairs: std::vec::IntoIter<KeyValue>,
}

impl Parts {
    /// Encodes the next pair. False if there is none.
    fn encode_next(&mut self) -> bool {
        let Some(pair) = self.pairs.next() else { return false };
        let len = pair.encoded_len();
        self.ready.reserve(len.saturating_add(2 * varint::LEN_MAX));
        varint::put_delimited(&mut self.ready, PREV_KVS, len);
        // This cannot fail: the buffer grows.
        pair.encode_raw(&mut self.ready);
        true
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
    let ready = BytesMut::from(&front.encode_to_vec()[..]);
    Reply::Parts { len, source: Box::new(Parts { ready, pairs: prev_kvs.into_iter() }) }
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
    use api::etcdserverpb::ResponseHeader;

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
