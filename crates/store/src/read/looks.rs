//! How many keys reads look at, which decides where they are answered.

use super::range::Plan;
use crate::index::Index;
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
    /// At the first `pairs` live keys of a range as it is now. Where these are fewer than `few`, nothing else matters.
    fn first(index: &Index, range: KeyRange<'_>, pairs: u64, few: u64) -> Looks {
        let held = index.count_live(range).min(pairs);
        let all = if held < few { held } else { index.count_keys_until(range, held) };
        Looks { held, all }
    }

    /// At all live keys of a range as it is now.
    pub(crate) fn now(index: &Index, range: KeyRange<'_>) -> Looks {
        Looks::first(index, range, u64::MAX, 0)
    }

    fn of(store: &Store, index: &Index, request: &RangeRequest, few: u64) -> Looks {
        let range = KeyRange::new(&request.key, &request.range_end);
        if matches!(range, KeyRange::One(_)) {
            return Looks { held: 1, all: 1 };
        }
        if request.revision > 0 && request.revision < store.revision() {
            // Keys that were deleted since are looked at too.
            let keys = index.count_keys(range);
            return Looks { held: keys, all: keys };
        }
        if request.count_only {
            return Looks::default();
        }
        let pairs = Plan::new(request).fetched_max().map_or(u64::MAX, |fetched| fetched as u64);
        Looks::first(index, range, pairs, few)
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
        !is_one && Looks::of(self, &read(&self.index), request, READ_STRIDE_KEYS as u64).are_many()
    }

    /// The same for the ranges and conditions of a read-only transaction together.
    pub fn is_heavy_txn(&self, request: &TxnRequest) -> bool {
        let index = read(&self.index);
        let conditions = request.compare.iter().map(|compare| KeyRange::new(&compare.key, &compare.range_end));
        let conditions = conditions.map(|range| Looks::now(&index, range));
        let ranges = request.success.iter().chain(&request.failure).map(|op| match &op.request {
            Some(Request::RequestRange(range)) => Looks::of(self, &index, range, 0),
            _ => Looks::default(),
        });
        conditions.chain(ranges).fold(Looks::default(), Looks::add).are_many()
    }
}
