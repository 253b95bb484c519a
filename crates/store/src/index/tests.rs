//! The tree against a map of vectors.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use api::KeyRange;
use proptest::collection::vec;
use proptest::prelude::*;

use super::keys::HEAP_BYTES_MAX;
use super::path::LEVELS_MAX;
use super::{FETCHED_TOGETHER, Index, NEWEST, Path, Scan};
use crate::types::{Loc, Revision, Version};

type Key = Vec<u8>;

/// The same contract, the slow way.
#[derive(Default, Clone)]
struct Model {
    keys: BTreeMap<Key, Vec<Version>>,
}

impl Model {
    fn range<'a>(&'a self, range: KeyRange<'a>) -> impl Iterator<Item = (&'a Key, &'a Vec<Version>)> {
        self.keys.iter().filter(move |(key, _)| range.contains(key))
    }

    fn get(&self, key: &[u8], at: i64) -> Option<Version> {
        live(self.keys.get(key)?.iter().rev().find(|version| version.rev.main <= at))
    }

    fn prune(&mut self, compact: i64) -> Vec<(Loc, bool)> {
        let mut dead = Vec::new();
        self.keys.retain(|_, versions| {
            let kept = versions.iter().rposition(|version| version.rev.main <= compact);
            let mut drop = kept.unwrap_or(0);
            if kept.is_some_and(|at| versions[at].is_tombstone() && versions[at].rev.main < compact) {
                drop += 1;
            }
            dead.extend(versions.drain(..drop).map(|version| (version.loc, version.is_tombstone())));
            !versions.is_empty()
        });
        dead
    }
}

fn live(version: Option<&Version>) -> Option<Version> {
    version.filter(|version| !version.is_tombstone()).copied()
}

/// Both, written to in step.
struct Pair {
    index: Index,
    model: Model,
    main: i64,
    sub: u32,
    next_offset: u32,
    /// The way to each key when it was last pushed.
    paths: BTreeMap<Key, Option<Path>>,
}

impl Pair {
    fn new() -> Pair {
        Pair { index: Index::new(), model: Model::default(), main: 1, sub: 0, next_offset: 0, paths: BTreeMap::new() }
    }

    fn push(&mut self, key: &[u8], tombstone: bool, same_revision: bool) {
        (self.main, self.sub) = if same_revision { (self.main, self.sub + 1) } else { (self.main + 1, 0) };
        let version = self.version(tombstone);
        let path = self.paths.get(key).copied().flatten();
        self.index.push_on(path, key, version);
        self.paths.insert(key.to_vec(), self.index.fetch(&[key])[0]);
        self.model.keys.entry(key.to_vec()).or_default().push(version);
    }

    fn version(&mut self, tombstone: bool) -> Version {
        self.next_offset += 8;
        let rev = Revision { main: self.main, sub: self.sub };
        let loc = Loc { segment: 1, offset: self.next_offset, len: 100 };
        let (create, version) = if tombstone { (0, 0) } else { (self.main, i64::from(self.next_offset)) };
        Version { rev, create, version, loc }
    }

    fn prune(&mut self, compact: i64, slice: usize) {
        let (mut dead, mut after) = (Vec::new(), None);
        loop {
            let mut count = 0;
            after = self.index.prune(compact, after.as_deref(), slice, &mut |loc, is_tombstone| {
                dead.push((loc, is_tombstone));
                count += 1;
            });
            assert!(count <= slice.max(1));
            if after.is_none() {
                break;
            }
        }
        let mut expected = self.model.prune(compact);
        expected.sort_by_key(|(loc, _)| loc.offset);
        dead.sort_by_key(|(loc, _)| loc.offset);
        assert_eq!(dead, expected);
    }

    fn relocate(&mut self, nth: usize, stale: bool) {
        let versions =
            self.model.keys.iter_mut().flat_map(|(key, versions)| versions.iter_mut().map(move |v| (key, v)));
        let count = versions.count();
        let mut versions =
            self.model.keys.iter_mut().flat_map(|(key, versions)| versions.iter_mut().map(move |v| (key, v)));
        let Some((key, version)) = versions.nth(nth % count.max(1)) else { return };
        let loc = Loc { segment: 2, ..version.loc };
        if stale {
            assert!(!self.index.relocate(key, Revision { main: version.rev.main, sub: 9999 }, loc));
        } else {
            assert!(self.index.relocate(key, version.rev, loc));
            version.loc = loc;
        }
    }

    fn compare(&self, probes: &[Key], at: i64, slice: usize) {
        let shape = self.index.check();
        assert_eq!(shape.keys, self.model.keys.len());
        for key in probes.iter().chain(self.model.keys.keys()) {
            let versions = self.model.keys.get(key).map_or(&[][..], Vec::as_slice);
            assert_eq!(self.index.latest(key), versions.last().copied());
            assert_eq!(self.index.get(key, at), self.model.get(key, at));
            assert_eq!(self.index.entry(key).map(|versions| versions.all()).unwrap_or_default(), versions);
            let rev = Revision { main: at, sub: 1 };
            assert_eq!(self.index.version_at(key, rev), versions.iter().find(|v| v.rev == rev).copied());
            for version in versions.iter().take(20) {
                assert_eq!(self.index.version_at(key, version.rev), Some(*version));
                assert_eq!(self.index.get(key, version.rev.main), self.model.get(key, version.rev.main));
            }
        }
        let keys: Vec<&[u8]> = probes.iter().chain(self.model.keys.keys()).map(Vec::as_slice).collect();
        for keys in keys.chunks(FETCHED_TOGETHER) {
            let paths = self.index.fetch(keys);
            for (key, path) in keys.iter().zip(paths) {
                let is_here = self.model.keys.contains_key(*key);
                assert!(path.is_some() == is_here || is_here && shape.depth > LEVELS_MAX);
                assert_eq!(self.index.latest_on(path, key), self.index.latest(key));
            }
        }
        assert_eq!(self.index.fetch(&[]), [None; FETCHED_TOGETHER]);
        for (key, path) in &self.paths {
            assert_eq!(self.index.latest_on(*path, key), self.index.latest(key), "on an old way");
        }
        for pair in probes.windows(2) {
            for range in [KeyRange::One(&pair[0]), KeyRange::Span(&pair[0], &pair[1]), KeyRange::From(&pair[0])] {
                self.compare_range(range, at, slice);
            }
        }
        self.compare_range(KeyRange::From(b"\0"), at, slice);
    }

    fn compare_range(&self, range: KeyRange<'_>, at: i64, slice: usize) {
        let count = self.model.range(range).filter(|(_, versions)| live(versions.last()).is_some()).count();
        assert_eq!(self.index.count_live(range), count as u64, "{range:?}");
        if !matches!(range, KeyRange::One(_)) {
            assert_eq!(self.index.count_keys(range), self.model.range(range).count() as u64, "{range:?}");
            self.compare_looks(range, count);
        }
        self.compare_walk(range, at, slice);
        self.compare_walk(range, NEWEST, slice);
    }

    /// Keys up to the first live ones, and what a walk over the newest state looks at.
    fn compare_looks(&self, range: KeyRange<'_>, live_keys: usize) {
        let places = self.model.range(range).enumerate();
        let live_places = places.filter(|(_, (_, versions))| live(versions.last()).is_some()).map(|(place, _)| place);
        for (n, place) in live_places.enumerate() {
            assert_eq!(self.index.count_keys_until(range, n as u64 + 1), place as u64 + 1, "{range:?} {n}");
        }
        let all = self.model.range(range).count() as u64;
        assert_eq!(self.index.count_keys_until(range, live_keys as u64 + 1), all, "{range:?}");
        assert_eq!(self.index.count_keys_until(range, u64::MAX), all, "{range:?}");
        let most = live_keys + 1;
        let mut left = most;
        let walked = self.index.scan_within(range, NEWEST, None, &mut left, &mut |_, _| ControlFlow::Continue(()));
        assert_eq!((walked, most - left), (Scan::Done, live_keys), "{range:?}");
    }

    fn compare_walk(&self, range: KeyRange<'_>, at: i64, slice: usize) {
        let expected: Vec<_> =
            self.model.range(range).filter_map(|(key, _)| Some((key.clone(), self.model.get(key, at)?))).collect();
        let (mut found, mut after) = (Vec::new(), None::<Box<[u8]>>);
        loop {
            let mut visited = 0;
            let scan = self.index.scan(range, at, after.as_deref(), slice, &mut |key, version| {
                visited += 1;
                found.push((key.to_vec(), *version));
                ControlFlow::Continue(())
            });
            assert!(visited <= slice.max(1));
            match scan {
                Scan::Done => break,
                Scan::More(last) => {
                    assert!(range.contains(&last) && after.is_none_or(|after| after < last));
                    after = Some(last);
                }
                Scan::Stopped => unreachable!("the visitor never stops"),
            }
        }
        assert_eq!(found, expected, "{range:?}");
        let stopped = self.index.scan(range, at, None, usize::MAX, &mut |_, _| ControlFlow::Break(()));
        assert_eq!(stopped, if expected.is_empty() { Scan::Done } else { Scan::Stopped });
    }
}

#[derive(Debug, Clone)]
enum Op {
    Push {
        key: Key,
        tombstone: bool,
        same_revision: bool,
    },
    /// Many keys from a small pattern, ascending, descending or scattered.
    Fill {
        prefix: Key,
        count: usize,
        step: u32,
        tombstones: bool,
    },
    /// Many versions of one key.
    Pile {
        key: Key,
        count: usize,
    },
    Prune {
        back: i64,
        slice: usize,
    },
    Relocate {
        nth: usize,
        stale: bool,
    },
    Rebuild,
}

fn key() -> impl Strategy<Value = Key> {
    let letter = prop_oneof![Just(b'a'), Just(b'b'), Just(0), Just(0xff)];
    prop_oneof![
        8 => vec(letter, 1..6),
        4 => (0..3000u32).prop_map(|n| format!("/registry/pods/{n:05}").into_bytes()),
        1 => (any::<u8>(), 1..20_000usize).prop_map(|(byte, len)| [vec![b'x'; len], vec![byte; 4]].concat()),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let prefix = prop_oneof![Just(b"/registry/pods/".to_vec()), Just(b"a".to_vec()), Just(vec![b'x'; 3000])];
    prop_oneof![
        12 => (key(), any::<bool>(), any::<bool>())
            .prop_map(|(key, tombstone, same_revision)| Op::Push { key, tombstone, same_revision }),
        3 => (prefix, 1..400usize, prop_oneof![Just(1u32), Just(u32::MAX), Just(0x9e37_79b1)], any::<bool>())
            .prop_map(|(prefix, count, step, tombstones)| Op::Fill { prefix, count, step, tombstones }),
        1 => (key(), 1..400usize).prop_map(|(key, count)| Op::Pile { key, count }),
        3 => (-1..300i64, prop_oneof![0..5usize, 50..1000usize]).prop_map(|(back, slice)| Op::Prune { back, slice }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(nth, stale)| Op::Relocate { nth, stale }),
        1 => Just(Op::Rebuild),
    ]
}

fn run(pair: &mut Pair, op: &Op) {
    match op {
        Op::Push { key, tombstone, same_revision } => {
            let newest = pair.model.keys.get(key).and_then(|versions| versions.last()).map(|version| version.rev);
            let same = *same_revision && newest.is_none_or(|rev| rev < Revision { main: pair.main, sub: pair.sub + 1 });
            pair.push(key, *tombstone, same);
        }
        Op::Fill { prefix, count, step, tombstones } => {
            let mut n = 5000u32;
            for _ in 0..*count {
                n = n.wrapping_add(*step);
                let key = [prefix, format!("{:05}", n % 100_000).as_bytes()].concat();
                pair.push(&key, *tombstones, false);
            }
        }
        Op::Pile { key, count } => (0..*count).for_each(|i| pair.push(key, i % 7 == 3, false)),
        Op::Prune { back, slice } => pair.prune(pair.main - back, *slice),
        Op::Relocate { nth, stale } => pair.relocate(*nth, *stale),
        Op::Rebuild => {
            let versions = pair.model.keys.iter();
            // A way is of one index.
            pair.paths.clear();
            pair.index = Index::build(versions.flat_map(|(key, versions)| versions.iter().map(move |v| (key, *v))));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 96 } else { 1000 }))]

    #[test]
    fn agrees_with_the_model(ops in vec(op(), 1..60), probes in vec(key(), 2..6), back in 0..200i64, slice in 0..100usize) {
        let mut pair = Pair::new();
        for op in &ops {
            run(&mut pair, op);
            pair.index.check();
        }
        pair.compare(&probes, pair.main - back, slice);
        pair.prune(pair.main, 7);
        pair.compare(&probes, pair.main, slice);
    }
}

fn number(n: u64) -> Key {
    format!("/k/{n:09}").into_bytes()
}

fn scattered(n: u64) -> Key {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

#[test]
fn empty() {
    let mut index = Index::new();
    assert_eq!((index.keys(), index.live(), index.count_live(KeyRange::From(b"\0"))), (0, 0, 0));
    assert_eq!(index.scan(KeyRange::From(b"\0"), 9, None, 9, &mut |_, _| ControlFlow::Continue(())), Scan::Done);
    assert_eq!(index.prune(9, None, 9, &mut |_, _| {}), None);
    assert_eq!(Index::build(std::iter::empty::<(Key, Version)>()).check().keys, 0);
    assert_eq!(index.latest(b"a"), None);
    assert!(!index.relocate(b"a", Revision::default(), Loc { segment: 0, offset: 0, len: 0 }));
}

#[test]
fn leaves_stay_full_in_order_and_half_full_otherwise() {
    const KEYS: u64 = 20_000;
    for (key, leaves_max) in
        [(number as fn(u64) -> Key, KEYS / 60), (|n| number(KEYS - n), KEYS / 31), (scattered, KEYS / 38)]
    {
        let mut pair = Pair::new();
        (0..KEYS).for_each(|n| pair.push(&key(n), false, false));
        let shape = pair.index.check();
        assert!(shape.leaves as u64 <= leaves_max && shape.depth <= 4, "{shape:?}");
    }
}

#[test]
fn shrinks_again() {
    let mut pair = Pair::new();
    (0..20_000).for_each(|n| pair.push(&scattered(n), false, false));
    (0..20_000).filter(|n| n % 50 != 0).for_each(|n| pair.push(&scattered(n), true, false));
    assert_eq!(pair.index.live(), 400);
    pair.prune(pair.main, 100);
    let shape = pair.index.check();
    assert_eq!(shape.keys, 401, "the tombstone at the compaction stays");
    assert!(shape.leaves <= 24 && shape.depth <= 2, "{shape:?}");
    pair.prune(pair.main + 1, 100);
    (0..20_000).filter(|n| n % 50 == 0).for_each(|n| pair.push(&scattered(n), true, false));
    pair.prune(pair.main + 1, 1);
    let shape = pair.index.check();
    assert_eq!((shape.keys, shape.leaves, shape.depth), (0, 1, 1));
}

#[test]
fn a_tombstone_at_the_compaction_stays() {
    let mut pair = Pair::new();
    pair.push(b"a", false, false);
    pair.push(b"a", true, false);
    pair.prune(3, 10);
    assert_eq!(pair.index.version_at(b"a", Revision { main: 3, sub: 0 }).map(|v| v.is_tombstone()), Some(true));
    pair.prune(4, 10);
    assert_eq!(pair.index.keys(), 0);
}

#[test]
fn a_key_with_many_versions_is_pruned_in_slices() {
    let mut pair = Pair::new();
    (0..10_000).for_each(|_| pair.push(b"hot", false, false));
    pair.push(b"later", false, false);
    let mut dead = 0;
    let resume = pair.index.prune(i64::MAX, None, 1000, &mut |_, _| dead += 1);
    assert_eq!((resume.as_deref(), dead), (Some(&b""[..]), 1000));
    pair.model.keys.get_mut(&b"hot"[..]).expect("pushed").drain(..1000);
    pair.compare(&[b"hot".to_vec(), b"z".to_vec()], 5000, 10);
    pair.prune(9000, 64);
    pair.compare(&[b"hot".to_vec(), b"z".to_vec()], 9500, 10);
}

/// Keys near the largest request size, which agree in all but a few bytes, and others that agree with none of them.
#[test]
fn huge_keys() {
    let mut pair = Pair::new();
    let huge = |first: u8, last: u32| [&[first][..], &[b'x'; 200_000], &last.to_be_bytes()].concat();
    for n in 0..70 {
        pair.push(&huge(b'm', n * 7 % 70), false, false);
    }
    for first in [b'a', b'z', b'n', b'b'] {
        pair.push(&[first], false, false);
        pair.push(&huge(first, 7), false, false);
    }
    pair.push(&huge(b'm', 35)[..1000], false, false);
    pair.index.check();
    pair.compare(&[b"a".to_vec(), b"n".to_vec()], pair.main, 10);
    for key in pair.model.keys.keys().cloned().collect::<Vec<_>>() {
        pair.push(&key, true, false);
    }
    pair.prune(pair.main + 1, 3);
    assert_eq!(pair.index.check().keys, 0);
}

#[test]
#[should_panic(expected = "not newer")]
fn an_old_version_is_refused() {
    let mut pair = Pair::new();
    pair.push(b"a", false, false);
    pair.main = 1;
    pair.push(b"a", false, false);
}

#[test]
#[should_panic(expected = "not in order")]
fn unsorted_keys_are_refused() {
    let version = Pair::new().version(false);
    Index::build([(b"b", version), (b"a", version)]);
}

/// The key that comes at a place of an order.
type Order<'a> = Box<dyn Fn(usize) -> Vec<u8> + 'a>;

#[test]
fn no_order_of_long_keys_makes_it_deep() {
    const KEYS: usize = 120;
    // Longer than a node should be, so that each leaf has one key and each separator is as long.
    let long = |first: usize, last: usize| {
        let mut key = vec![b'x'; HEAP_BYTES_MAX + 1000];
        key[..8].copy_from_slice(&(first as u64).to_be_bytes());
        key.extend_from_slice(&(last as u64).to_be_bytes());
        key
    };
    // From both ends inwards, and from the middle outwards.
    let inwards = |i: usize| if i.is_multiple_of(2) { i / 2 } else { KEYS - i / 2 };
    let orders: [(&str, Order<'_>); 8] = [
        ("up", Box::new(|i| long(0, i))),
        ("down, behind the first", Box::new(|i| long(0, if i == 0 { 0 } else { KEYS - i }))),
        ("inwards", Box::new(|i| long(0, inwards(i)))),
        ("outwards", Box::new(|i| long(0, inwards(KEYS - 1 - i)))),
        ("pairs up", Box::new(|i| long(i / 2, i % 2))),
        ("pairs down", Box::new(|i| long(KEYS - i / 2, i % 2))),
        ("pairs inwards", Box::new(|i| long(inwards(i / 2), i % 2))),
        ("pairs down, behind the first", Box::new(|i| long(if i < 2 { 0 } else { KEYS - i / 2 }, i % 2))),
    ];
    for (name, key) in orders {
        let mut index = Index::new();
        for i in 0..KEYS {
            let rev = Revision { main: i as i64 + 2, sub: 0 };
            let loc = Loc { segment: 1, offset: i as u32, len: 1 };
            index.push(&key(i), Version { rev, create: rev.main, version: 1, loc });
        }
        let shape = index.check();
        assert!(shape.depth <= 5, "{name}: {} levels of {} leaves", shape.depth, shape.leaves);
    }
}
