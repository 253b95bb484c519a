//! Which pairs a range request gets, and in which order.

use super::kvs::{Encoded, Held, Kvs};
use super::view::View;
use crate::log::{KvView, Segments, parse};
use crate::types::{Loc, Version};
use api::etcdserverpb::RangeRequest;
use api::etcdserverpb::range_request::{SortOrder, SortTarget};
use api::{Error, KeyRange};
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// An answer to a range request. Its values are references to the log, copied only when the response is encoded.
#[derive(Debug)]
pub struct RangeAnswer {
    /// The store's revision when it was read, whichever revision was asked for.
    pub revision: i64,
    /// Keys in the range at the revision read, whatever limit and filters say.
    pub count: i64,
    /// The limit cut the answer short.
    pub more: bool,
    /// The pairs.
    pub kvs: Kvs,
}

/// The revision that a request reads: its own, or the current one.
pub(crate) fn read_revision(requested: i64, current: i64, compact: i64) -> Result<i64, Error> {
    match requested {
        revision if revision > current => Err(Error::FutureRev),
        revision if revision <= 0 => Ok(current),
        revision if revision < compact => Err(Error::Compacted),
        revision => Ok(revision),
    }
}

/// How the pairs are chosen.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    range: KeyRange<'a>,
    /// Pairs in the answer at most.
    limit: Option<usize>,
    /// Pairs fetched at most, in key order.
    fetch: Option<usize>,
    filters: Option<Filters>,
    sort: Option<Sort>,
    keys_only: bool,
    count_only: bool,
}

/// Inclusive bounds; 0 is no bound.
#[derive(Clone, Copy)]
struct Filters {
    modified_min: i64,
    modified_max: i64,
    create_min: i64,
    create_max: i64,
}

impl Filters {
    fn pass(&self, version: &Version) -> bool {
        let within = |number, min, max| (min == 0 || number >= min) && (max == 0 || number <= max);
        within(version.rev.main, self.modified_min, self.modified_max)
            && within(version.create, self.create_min, self.create_max)
    }
}

#[derive(Clone, Copy)]
struct Sort {
    target: SortTarget,
    descending: bool,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(request: &'a RangeRequest) -> Plan<'a> {
        let target = request.sort_target();
        let order = request.sort_order();
        let filters = Filters {
            modified_min: request.min_mod_revision,
            modified_max: request.max_mod_revision,
            create_min: request.min_create_revision,
            create_max: request.max_create_revision,
        };
        let bounds = [filters.modified_min, filters.modified_max, filters.create_min, filters.create_max];
        let filtered = bounds.iter().any(|&bound| bound != 0);
        let sort = match (target, order) {
            (SortTarget::Key, SortOrder::None | SortOrder::Ascend) => None,
            (target, order) => Some(Sort { target, descending: order == SortOrder::Descend }),
        };
        let limit = usize::try_from(request.limit).ok().filter(|&limit| limit > 0);
        // A target without an order sorts only what the limit has let through, one more than it. Strange, but clients see it.
        let fetch_all = filtered || (sort.is_some() && order != SortOrder::None);
        Plan {
            range: KeyRange::new(&request.key, &request.range_end),
            limit,
            fetch: limit.filter(|_| !fetch_all).map(|limit| limit.saturating_add(1)),
            filters: filtered.then_some(filters),
            sort,
            keys_only: request.keys_only,
            count_only: request.count_only,
        }
    }

    /// Pairs that are looked for at most, if it is known how many there are.
    pub(crate) fn fetched_max(&self) -> Option<usize> {
        self.fetch
    }

    /// Selects the pairs at revision `at`. Looks at no stored bytes: those may have to come from the disk, and the view may hold
    /// the index.
    /// `None` if they take more than `bytes_max`.
    pub(crate) fn select(
        self,
        view: &impl View,
        segments: &Segments,
        at: i64,
        bytes_max: usize,
    ) -> Option<Selected<'a>> {
        let revision = view.current();
        if self.count_only {
            let count = view.count(self.range, at).unwrap_or_else(|| walk(view, self.range, at));
            return Some(Selected { plan: self, revision, count, picks: Picks::new(&self) });
        }
        let known = if self.fetch.is_some() { view.count(self.range, at) } else { None };
        let mut picks = Picks::new(&self);
        let mut visited = 0;
        let fetch = self.fetch.unwrap_or(usize::MAX);
        let kept = self.kept_max().filter(|_| self.sort.is_none()).unwrap_or(usize::MAX);
        view.scan(self.range, at, &mut |key, version| {
            visited += 1;
            if picks.len() >= fetch.min(kept) {
                // The rest is only counted.
                return ControlFlow::Continue(());
            }
            if self.filters.is_none_or(|filters| filters.pass(version)) {
                picks.push(key, version, &self, segments);
                if picks.bytes() > bytes_max {
                    return ControlFlow::Break(());
                }
            }
            if known.is_some() && picks.len() >= fetch { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let fits = picks.bytes() <= bytes_max;
        fits.then(|| Selected { plan: self, revision, count: known.unwrap_or(visited), picks })
    }

    /// Memory that each pair of the answer takes until it is sent, but for its bytes. Lists grow by doubling.
    fn pair_bytes(&self) -> usize {
        let place = size_of::<Loc>();
        2 * match (self.count_only, self.sort.is_some(), self.keys_only) {
            (true, ..) => 0,
            (_, true, _) => size_of::<Item>() + place,
            (_, _, true) => place + KEY_BYTES_GUESS,
            _ => place,
        }
    }

    /// Pairs that are kept while all are looked at: those that the answer needs, and one that tells of more. Which come first by value is
    /// not known before all are there.
    fn kept_max(&self) -> Option<usize> {
        let is_by_value = self.sort.is_some_and(|sort| sort.target == SortTarget::Value);
        self.limit.filter(|_| !is_by_value).map(|limit| limit.saturating_add(1))
    }

    /// Memory that an answer of `pairs` pairs is likely to take before it is sent.
    pub(crate) fn places_bytes(&self, pairs: u64) -> u64 {
        let kept = self.fetch.or_else(|| self.kept_max().map(prune_at));
        let pairs = kept.map_or(pairs, |kept| pairs.min(kept as u64));
        pairs.saturating_mul(self.pair_bytes() as u64)
    }

    /// Whether values are compared.
    pub(crate) fn sorts_by_value(&self) -> bool {
        let is_by_value = self.sort.is_some_and(|sort| sort.target == SortTarget::Value);
        is_by_value && !self.count_only && !matches!(self.range, KeyRange::One(_))
    }

    /// The keys that are looked at.
    pub(crate) fn keys(&self) -> KeyRange<'a> {
        self.range
    }
}

/// How many pairs there are when those that are not among the first `kept` are dropped.
fn prune_at(kept: usize) -> usize {
    kept.saturating_mul(2).max(PRUNED_MIN)
}

/// Fewer pairs are not worth it.
const PRUNED_MIN: usize = 256;
/// What a pair without its value is taken for before its key is seen.
const KEY_BYTES_GUESS: usize = 64;

/// The pairs that a plan found, not yet in order.
pub(crate) struct Selected<'a> {
    plan: Plan<'a>,
    revision: i64,
    count: u64,
    picks: Picks,
}

impl Selected<'_> {
    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.picks.bytes()
    }

    /// Sorts, and cuts off what is over the limit. Comparing values reads them.
    pub(crate) fn finish(self) -> RangeAnswer {
        let Selected { plan, revision, count, picks } = self;
        let more = plan.limit.is_some_and(|limit| picks.len() > limit);
        RangeAnswer { revision, count: count.cast_signed(), more, kvs: picks.into_kvs(&plan) }
    }
}

/// Counts the keys of a range one by one.
pub(crate) fn walk(view: &impl View, range: KeyRange<'_>, at: i64) -> u64 {
    let mut count = 0;
    view.scan(range, at, &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    });
    count
}

/// The pairs picked so far.
enum Picks {
    Stored(Held, Vec<Loc>),
    Encoded(Encoded, Vec<Loc>),
    /// With the place of the next one in key order.
    Sorted(Held, Vec<Item>, u32),
}

/// A pair that is to be sorted.
#[derive(Clone, Copy)]
struct Item {
    /// Orders as the target does; of a value its first eight bytes.
    rank: u64,
    loc: Loc,
    /// Place in key order.
    ordinal: u32,
}

impl Picks {
    fn new(plan: &Plan<'_>) -> Picks {
        if plan.sort.is_some() {
            Picks::Sorted(Held::default(), Vec::new(), 0)
        } else if plan.keys_only {
            Picks::Encoded(Encoded::default(), Vec::new())
        } else {
            Picks::Stored(Held::default(), Vec::new())
        }
    }

    /// Memory that they take, with what it takes to put them in order.
    fn bytes(&self) -> usize {
        let place = size_of::<Loc>();
        match self {
            Picks::Stored(_, locs) => locs.capacity() * place,
            Picks::Encoded(encoded, locs) => locs.capacity() * place + encoded.bytes(),
            Picks::Sorted(_, items, _) => items.capacity() * size_of::<Item>() + items.len() * place,
        }
    }

    fn len(&self) -> usize {
        match self {
            Picks::Stored(_, locs) | Picks::Encoded(_, locs) => locs.len(),
            Picks::Sorted(_, items, _) => items.len(),
        }
    }

    fn push(&mut self, key: &[u8], version: &Version, plan: &Plan<'_>, segments: &Segments) {
        match self {
            Picks::Stored(held, locs) => {
                held.hold(segments, version.loc);
                locs.push(version.loc);
            }
            // From the index alone, which knows nothing of leases: etcd's answer lacks the lease too.
            Picks::Encoded(encoded, locs) => locs.push(encoded.push(&KvView {
                key,
                create: version.create,
                modified: version.rev.main,
                version: version.version,
                ..KvView::default()
            })),
            Picks::Sorted(held, items, next) => {
                held.hold(segments, version.loc);
                let rank = plan.sort.map_or(0, |sort| sort.rank(version));
                items.push(Item { rank, loc: version.loc, ordinal: *next });
                *next = next.saturating_add(1);
                if let (Some(kept), Some(sort)) = (plan.kept_max(), plan.sort)
                    && items.len() >= prune_at(kept)
                {
                    items.select_nth_unstable_by(kept, |a, b| sort.compare(a, b, held));
                    items.truncate(kept);
                }
            }
        }
    }

    fn into_kvs(self, plan: &Plan<'_>) -> Kvs {
        let limit = plan.limit.unwrap_or(usize::MAX);
        match (self, plan.sort) {
            (Picks::Stored(held, mut locs), _) => {
                locs.truncate(limit);
                Kvs::stored(held, locs)
            }
            (Picks::Encoded(encoded, mut locs), _) => {
                locs.truncate(limit);
                Kvs::encoded(encoded, locs)
            }
            (Picks::Sorted(held, items, _), Some(sort)) => {
                let locs = sort.order(items, limit, &held);
                if plan.keys_only { sort.without_values(&held, &locs) } else { Kvs::stored(held, locs) }
            }
            (Picks::Sorted(..), None) => Kvs::none(),
        }
    }
}

impl Sort {
    /// The first `limit` items in order. Values are compared where they are mapped, never copied.
    fn order(&self, mut items: Vec<Item>, limit: usize, held: &Held) -> Vec<Loc> {
        if self.target == SortTarget::Value {
            for item in &mut items {
                item.rank = leading(parse(held.stored(item.loc)).value);
            }
        }
        if items.len() > limit {
            items.select_nth_unstable_by(limit, |a, b| self.compare(a, b, held));
            items.truncate(limit);
        }
        items.sort_unstable_by(|a, b| self.compare(a, b, held));
        items.into_iter().map(|item| item.loc).collect()
    }

    fn rank(&self, version: &Version) -> u64 {
        let number = match self.target {
            SortTarget::Key | SortTarget::Value => 0,
            SortTarget::Version => version.version,
            SortTarget::Create => version.create,
            SortTarget::Mod => version.rev.main,
        };
        number.cast_unsigned() ^ (1 << 63)
    }

    fn compare(&self, a: &Item, b: &Item, held: &Held) -> Ordering {
        let order = match self.target {
            SortTarget::Key => a.ordinal.cmp(&b.ordinal),
            SortTarget::Value => a.rank.cmp(&b.rank).then_with(|| {
                let value = |item: &Item| parse(held.stored(item.loc)).value;
                value(a).cmp(value(b))
            }),
            SortTarget::Version | SortTarget::Create | SortTarget::Mod => a.rank.cmp(&b.rank),
        };
        let order = if self.descending { order.reverse() } else { order };
        order.then(a.ordinal.cmp(&b.ordinal))
    }

    /// Sorting by value is the one case where etcd reads the pairs for `keys_only`, so only there the lease is known.
    fn without_values(&self, held: &Held, locs: &[Loc]) -> Kvs {
        let mut encoded = Encoded::default();
        let locs = locs.iter().map(|&loc| {
            let stored = parse(held.stored(loc));
            let lease = if self.target == SortTarget::Value { stored.lease } else { 0 };
            encoded.push(&KvView { value: &[], lease, ..stored })
        });
        let locs = locs.collect();
        Kvs::encoded(encoded, locs)
    }
}

/// The first eight bytes, so that most comparisons need no value.
fn leading(value: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = value.len().min(8);
    first[..len].copy_from_slice(&value[..len]);
    u64::from_be_bytes(first)
}
