//! How many keys reads look at, which decides where they are answered.

use super::range::Plan;
use crate::index::{Index, NEWEST};
use crate::log::read;
use crate::store::Store;
use api::KeyRange;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{RangeRequest, TxnRequest};
use api::limits::{INLINE_SORT_KEYS_MAX, READ_STRIDE_KEYS};
use std::ops::Add;

/// Keys that a read looks at.
#[derive(Clone, Copy, Default)]
pub(crate) struct Looks {
    /// As long as it holds the index: others than these are passed over at once.
    held: u64,
    /// At most, once it has let others write.
    all: u64,
}

impl Looks {
    /// At the first `pairs` live keys of a range at revision `at`. Where these are fewer than `few`, nothing else matters.
    fn first(store: &Store, index: &Index, range: KeyRange<'_>, at: i64, pairs: u64, few: u64) -> Looks {
        if store.index_revision(range, at) != NEWEST {
            // All are counted one by one, and keys that were deleted since are looked at too.
            let keys = index.count_keys(range);
            return Looks { held: keys, all: keys };
        }
        let held = index.count_live(range).min(pairs);
        let all = if held < few.max(1) { held } else { index.count_keys_until(range, held) };
        Looks { held, all }
    }

    /// At all live keys of a range as it is now.
    pub(crate) fn now(store: &Store, index: &Index, range: KeyRange<'_>) -> Looks {
        Looks::first(store, index, range, store.revision(), u64::MAX, 0)
    }

    fn of(store: &Store, index: &Index, request: &RangeRequest, few: u64) -> Looks {
        let range = KeyRange::new(&request.key, &request.range_end);
        if matches!(range, KeyRange::One(_)) {
            return Looks { held: 1, all: 1 };
        }
        let now = store.revision();
        let at = if request.revision > 0 { request.revision.min(now) } else { now };
        let fetched = || Plan::new(request).fetched_max().map_or(u64::MAX, |fetched| fetched as u64);
        Looks::first(store, index, range, at, if request.count_only { 0 } else { fetched() }, few)
    }

    /// Whether these are so many that a request thread should not look at them.
    pub(crate) fn are_many(self) -> bool {
        self.held >= READ_STRIDE_KEYS as u64 && self.all > INLINE_SORT_KEYS_MAX as u64
    }
}

impl Add for Looks {
    type Output = Looks;

    fn add(self, more: Looks) -> Looks {
        Looks { held: self.held.saturating_add(more.held), all: self.all.saturating_add(more.all) }
    }
}

impl Store {
    /// Whether a range looks at so many keys that it should not be answered on a request thread.
    pub fn is_heavy(&self, request: &RangeRequest) -> bool {
        let is_one = matches!(KeyRange::new(&request.key, &request.range_end), KeyRange::One(_));
        let are_many = !is_one && Looks::of(self, &read(&self.index), request, READ_STRIDE_KEYS as u64).are_many();
        are_many || self.range_sort_keys(request) > INLINE_SORT_KEYS_MAX as u64
    }

    /// The same for the ranges and conditions of a read-only transaction together.
    pub fn is_heavy_txn(&self, request: &TxnRequest) -> bool {
        let index = read(&self.index);
        let ranges = || {
            request.success.iter().chain(&request.failure).filter_map(|op| match &op.request {
                Some(Request::RequestRange(range)) => Some(range),
                _ => None,
            })
        };
        let conditions = request.compare.iter().map(|compare| KeyRange::new(&compare.key, &compare.range_end));
        let conditions = conditions.map(|range| Looks::now(self, &index, range));
        let looks = ranges().map(|range| Looks::of(self, &index, range, 0));
        let are_many = conditions.chain(looks).fold(Looks::default(), Looks::add).are_many();
        drop(index);
        let sorted = || ranges().map(|range| self.range_sort_keys(range)).fold(0, u64::saturating_add);
        are_many || sorted() > INLINE_SORT_KEYS_MAX as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::write;
    use crate::read::KeySpan;
    use crate::types::{Loc, Revision, Version};
    use crate::{Opened, Options};
    use api::etcdserverpb::{Compare, RequestOp};
    use disk::sim::SimDisk;
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn what_is_partly_in_the_index_is_looked_at_key_by_key() {
        let Opened { store, .. } =
            crate::open(Arc::new(SimDisk::new()), Path::new("store"), Options::default()).expect("a store");
        let many = INLINE_SORT_KEYS_MAX + 1;
        for key in 0..many {
            let rev = Revision { main: store.revision(), sub: key as u32 };
            let version = Version { rev, create: rev.main, version: 1, loc: Loc { segment: 1, offset: 1, len: 1 } };
            write(&store.index).push(format!("{key:05}").as_bytes(), version);
        }
        let all = RangeRequest { key: "0".into(), range_end: "z".into(), ..Default::default() };
        let first = RangeRequest { limit: 1, ..all.clone() };
        let count = RangeRequest { count_only: true, ..all.clone() };
        let few = RangeRequest { key: "00000".into(), range_end: "00009".into(), ..all.clone() };
        let of = |range: &RangeRequest| {
            let op = RequestOp { request: Some(Request::RequestRange(range.clone())) };
            TxnRequest { success: vec![op; 128], ..Default::default() }
        };
        let compare = Compare { key: first.key.clone(), range_end: first.range_end.clone(), ..Default::default() };
        let compares = TxnRequest { compare: vec![compare], ..Default::default() };
        let are_heavy = || {
            let ranges = [&first, &count, &few].map(|range| (store.is_heavy(range), store.is_heavy_txn(&of(range))));
            (ranges, store.is_heavy_txn(&compares))
        };
        assert_eq!(are_heavy(), ([(false, false); 3], true));
        // A transaction whose changes are not all in the index.
        store.unpublished.set(Some(KeySpan { first: "00003".into(), last: "00500".into() }));
        assert_eq!(are_heavy(), ([(true, true), (true, true), (false, false)], true), "counts come from a walk");
        store.unpublished.set(Some(KeySpan { first: "z".into(), last: "zz".into() }));
        assert_eq!(are_heavy(), ([(false, false); 3], true));
    }
}
