//! What a transaction puts itself, for the ranges in it that see it.

use api::KeyRange;
use api::etcdserverpb::RequestOp;
use api::etcdserverpb::request_op::Request;

/// Bytes of an encoded pair besides its key and its value, at most.
const PAIR_BYTES: u64 = 64;

/// The keys that the operations of a branch name one by one, in order, those of nested transactions included.
#[derive(Default)]
pub(super) struct OwnPuts<'a> {
    keys: Vec<&'a [u8]>,
    /// Bytes of the pairs of all keys up to each one. A deletion has none.
    sums: Vec<u64>,
    largest: u64,
}

impl<'a> OwnPuts<'a> {
    pub(super) fn of(ops: &'a [RequestOp]) -> OwnPuts<'a> {
        let mut pairs = Vec::new();
        gather(ops, &mut pairs);
        pairs.sort_unstable();
        let mut own = OwnPuts::default();
        let mut sum = 0_u64;
        for (key, bytes) in pairs {
            sum = sum.saturating_add(bytes);
            own.largest = own.largest.max(bytes);
            own.keys.push(key);
            own.sums.push(sum);
        }
        own
    }

    /// How many of them a range has.
    pub(super) fn count(&self, range: KeyRange<'_>) -> u64 {
        let (from, to) = self.places(range);
        to.saturating_sub(from) as u64
    }

    /// Bytes of the pairs put that a range shows, if it shows no more than `limit`.
    pub(super) fn bytes(&self, range: KeyRange<'_>, limit: u64) -> u64 {
        let (from, to) = self.places(range);
        let sum = |end: usize| end.checked_sub(1).and_then(|last| self.sums.get(last)).copied().unwrap_or(0);
        sum(to.max(from)).saturating_sub(sum(from)).min(self.largest.saturating_mul(limit))
    }

    fn places(&self, range: KeyRange<'_>) -> (usize, usize) {
        let from = self.keys.partition_point(|key| *key < range.start());
        (from, self.keys.partition_point(|key| *key < range.start() || range.before_end(key)))
    }
}

/// Recurses by nesting, at most `TXN_NESTING_MAX` deep.
fn gather<'a>(ops: &'a [RequestOp], pairs: &mut Vec<(&'a [u8], u64)>) {
    for op in ops {
        match &op.request {
            Some(Request::RequestPut(put)) => {
                pairs.push((&put.key, PAIR_BYTES + put.key.len() as u64 + put.value.len() as u64));
            }
            Some(Request::RequestDeleteRange(delete)) if delete.range_end.is_empty() => pairs.push((&delete.key, 0)),
            Some(Request::RequestTxn(nested)) => {
                gather(&nested.success, pairs);
                gather(&nested.failure, pairs);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::PutRequest;

    #[test]
    fn sums_of_ranges() {
        let put = |key: &'static str, bytes| {
            let put = PutRequest { key: key.into(), value: vec![0; bytes].into(), ..Default::default() };
            RequestOp { request: Some(Request::RequestPut(put)) }
        };
        let ops = [put("c", 300), put("a", 100), put("b", 200)];
        let own = OwnPuts::of(&ops);
        let pair = |bytes: u64| bytes + 1 + PAIR_BYTES;
        for (key, range_end, count, bytes) in [
            ("a", "", 1, pair(100)),
            ("aa", "", 0, 0),
            ("a", "c", 2, pair(100) + pair(200)),
            ("aa", "\0", 2, pair(200) + pair(300)),
            ("c", "a", 0, 0),
            ("\0", "\0", 3, pair(100) + pair(200) + pair(300)),
        ] {
            let range = KeyRange::new(key.as_bytes(), range_end.as_bytes());
            assert_eq!((own.count(range), own.bytes(range, 9)), (count, bytes), "{range:?}");
        }
        assert_eq!(own.bytes(KeyRange::From(b"\0"), 1), pair(300), "which one a limit leaves is unknown");
    }
}
