//! Which keys the operations of a transaction write, and whether one of them is written twice.
//!
//! Lists merge into those around them, up to 256 levels of them, and this is checked before anyone is asked who sends the transaction.
//! So what is merged or compared is always the smaller one of two sets: whatever the shape of a transaction, none of its keys is
//! looked at once for each level.

use crate::etcdserverpb::{RequestOp, request_op::Request};
use crate::{Error, KeyRange};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Refuses a list of operations that writes a key twice.
pub(crate) fn check(ops: &[RequestOp]) -> Result<(), Error> {
    writes(ops).map(drop)
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
            let mut puts = std::mem::take(&mut success.puts);
            merge(&mut puts, std::mem::take(&mut failure.puts));
            if all.touches_any(&puts) {
                return Err(Error::DuplicateKey);
            }
            merge(&mut all.puts, puts);
            // Only now: what one branch deletes the other may put, since one of them runs.
            for branch in [success, failure] {
                merge(&mut all.deletes, branch.deletes);
                all.merge_spans(branch.spans);
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

    fn merge_spans(&mut self, mut others: BTreeMap<&'a [u8], &'a [u8]>) {
        if others.len() > self.spans.len() {
            std::mem::swap(&mut self.spans, &mut others);
        }
        for (start, end) in others {
            step();
            self.delete_span(start, end);
        }
    }

    fn touches(&self, key: &[u8]) -> bool {
        self.puts.contains(key) || self.deletes.contains(key) || self.spans_touch(key)
    }

    fn spans_touch(&self, key: &[u8]) -> bool {
        let span = self.spans.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        span.is_some_and(|(_, &end)| key < end)
    }

    /// Whether one of `keys` is written.
    fn touches_any(&self, keys: &BTreeSet<&[u8]>) -> bool {
        let in_spans = if keys.len() <= self.spans.len() {
            keys.iter().inspect(|_| step()).any(|key| self.spans_touch(key))
        } else {
            let inside = |(start, end): (&&[u8], &&[u8])| {
                keys.range::<[u8], _>((Bound::Included(*start), Bound::Excluded(*end))).next().is_some()
            };
            self.spans.iter().inspect(|_| step()).any(inside)
        };
        in_spans || meet(&self.puts, keys) || meet(&self.deletes, keys)
    }

    fn put(&mut self, key: &'a [u8]) -> Result<(), Error> {
        if self.touches(key) {
            return Err(Error::DuplicateKey);
        }
        self.puts.insert(key);
        Ok(())
    }
}

/// Adds `other` to `set`.
fn merge<'a>(set: &mut BTreeSet<&'a [u8]>, mut other: BTreeSet<&'a [u8]>) {
    if other.len() > set.len() {
        std::mem::swap(set, &mut other);
    }
    set.extend(other.into_iter().inspect(|_| step()));
}

/// Whether two sets have a key in common.
fn meet(left: &BTreeSet<&[u8]>, right: &BTreeSet<&[u8]>) -> bool {
    let (less, more) = if left.len() <= right.len() { (left, right) } else { (right, left) };
    less.iter().inspect(|_| step()).any(|key| more.contains(key))
}

/// A key or span of one set was looked up in another, or went there.
#[inline]
fn step() {
    #[cfg(test)]
    tests::STEPS.set(tests::STEPS.get() + 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcdserverpb::{DeleteRangeRequest, PutRequest, TxnRequest};
    use proptest::prelude::*;
    use std::cell::Cell;

    thread_local! {
        pub(super) static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    fn op(request: Request) -> RequestOp {
        RequestOp { request: Some(request) }
    }

    fn put(key: impl Into<Vec<u8>>) -> RequestOp {
        op(Request::RequestPut(PutRequest { key: key.into().into(), ..Default::default() }))
    }

    fn delete(key: impl Into<Vec<u8>>, range_end: impl Into<Vec<u8>>) -> RequestOp {
        let (key, range_end) = (key.into().into(), range_end.into().into());
        op(Request::RequestDeleteRange(DeleteRangeRequest { key, range_end, prev_kv: false }))
    }

    fn nested(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
        op(Request::RequestTxn(TxnRequest { compare: vec![], success, failure }))
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

    const LEAVES: usize = 8_000;
    const LEVELS: usize = 100;

    /// Many operations, inside many transactions of one operation each beside `beside`.
    fn deep(leaf: impl Fn(usize) -> RequestOp, beside: impl Fn(usize) -> Vec<RequestOp>) -> Vec<RequestOp> {
        let lists: Vec<Vec<RequestOp>> =
            (0..LEAVES).map(leaf).collect::<Vec<_>>().chunks(80).map(<[_]>::to_vec).collect();
        let (left, right) = lists.split_at(lists.len() / 2);
        let list = |lists: &[Vec<RequestOp>]| lists.iter().map(|list| nested(list.clone(), vec![])).collect();
        let mut ops = vec![nested(list(left), list(right))];
        for level in 0..LEVELS {
            ops = if level % 2 == 0 { vec![nested(ops, beside(level))] } else { vec![nested(beside(level), ops)] };
            ops.extend(beside(LEVELS + level));
        }
        ops
    }

    #[test]
    fn no_key_is_looked_at_for_each_level() {
        let key = |number: usize| format!("{number:09}");
        let own = |level: usize| format!("own/{level}");
        let leaves: [&dyn Fn(usize) -> RequestOp; 3] =
            [&|number| put(key(number)), &|number| delete(key(number), ""), &|number| {
                delete(key(2 * number), key(2 * number + 1))
            }];
        let besides: [&dyn Fn(usize) -> Vec<RequestOp>; 4] =
            [&|_| vec![], &|level| vec![put(own(level))], &|level| vec![delete(own(level), "")], &|level| {
                vec![delete(own(level), own(level) + "x")]
            }];
        for (leaf_kind, leaf) in leaves.iter().enumerate() {
            for (beside_kind, beside) in besides.iter().enumerate() {
                let ops = deep(leaf, beside);
                STEPS.set(0);
                assert_eq!(check(&ops), Ok(()));
                // Each goes into a larger set about as many times as there are sizes to double: once for each level it is 800,000.
                let steps = STEPS.get();
                assert!(steps < 10 * LEAVES, "{steps} steps for leaves {leaf_kind} beside {beside_kind}");
            }
        }
    }

    /// What a list writes, with each key of a nested list put into the list around it.
    fn plainly(ops: &[RequestOp]) -> Result<Writes<'_>, Error> {
        let mut all = Writes::default();
        for op in ops {
            if let Some(Request::RequestDeleteRange(inner)) = &op.request {
                all.delete(KeyRange::new(&inner.key, &inner.range_end));
            }
        }
        for op in ops {
            if let Some(Request::RequestTxn(inner)) = &op.request {
                let mut success = plainly(&inner.success)?;
                let mut failure = plainly(&inner.failure)?;
                success.puts.append(&mut failure.puts);
                for key in std::mem::take(&mut success.puts) {
                    all.put(key)?;
                }
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

    /// A list of operations in which keys are rarely written twice: `few` keys of many, and short spans.
    fn any_list() -> impl Strategy<Value = Vec<RequestOp>> {
        let key = || (0..200_u8).prop_map(|key| vec![b'k', key]);
        let operation = prop_oneof![
            4 => key().prop_map(put),
            2 => key().prop_map(|key| delete(key, "")),
            2 => (key(), 0..8_u8).prop_map(|(key, more)| {
                let end = vec![b'k', key[1].saturating_add(more)];
                delete(key, end)
            }),
            1 => Just(delete("k", "\0")),
        ];
        let list = |operation| prop::collection::vec(operation, 0..5);
        let operation = operation.prop_recursive(5, 40, 5, move |inner| {
            (list(inner.clone()), list(inner)).prop_map(|(success, failure)| nested(success, failure)).boxed()
        });
        prop::collection::vec(operation, 0..5)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn agrees_with_the_plain_way(ops in any_list()) {
            let parts = |writes: Result<Writes<'_>, Error>| {
                writes.map(|writes| {
                    let owned = |keys: BTreeSet<&[u8]>| keys.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>();
                    let spans: Vec<_> = writes.spans.iter().map(|(start, end)| (start.to_vec(), end.to_vec())).collect();
                    (owned(writes.puts), owned(writes.deletes), spans)
                })
            };
            prop_assert_eq!(parts(writes(&ops)), parts(plainly(&ops)));
        }
    }
}
