//! The versions of the keys of a leaf, in the keys' order.
//!
//! Most keys were put once: the one version of such a key fits into 16 bytes. Only the other keys have an [`Entry`], which takes three
//! times as many.

use super::entry::{Entry, Pruned};
use super::keys::KEYS_MAX;
use crate::types::{Loc, Revision, Version};

/// Places that are made at a time.
const STEP: usize = 8;

/// Bits of each part of a [`Narrow`].
const MAIN_BITS: u32 = 46;
const SUB_BITS: u32 = 7;
const SEGMENT_BITS: u32 = 22;
const OFFSET_BITS: u32 = 32;
const LEN_BITS: u32 = 21;
const _: () = assert!(MAIN_BITS + SUB_BITS + SEGMENT_BITS + OFFSET_BITS + LEN_BITS == u128::BITS);

/// The only version of a key that was put once, none of whose numbers is very large.
#[derive(Clone, Copy)]
struct Narrow {
    /// Two halves, so that it is aligned to eight bytes.
    halves: [u64; 2],
}

impl Narrow {
    /// `None` if the version does not fit.
    fn of(version: &Version) -> Option<Narrow> {
        let Version { rev, create, version, loc } = *version;
        if version != 1 || create != rev.main {
            return None;
        }
        let mut bits = 0_u128;
        let parts = [
            (u64::try_from(rev.main).ok()?, MAIN_BITS),
            (rev.sub.into(), SUB_BITS),
            (loc.segment.into(), SEGMENT_BITS),
            (loc.offset.into(), OFFSET_BITS),
            (loc.len.into(), LEN_BITS),
        ];
        for (part, width) in parts {
            if part >> width != 0 {
                return None;
            }
            bits = bits << width | u128::from(part);
        }
        Some(Narrow { halves: [(bits >> 64) as u64, bits as u64] })
    }

    fn unpack(self) -> Version {
        let [high, low] = self.halves;
        let mut bits = u128::from(high) << 64 | u128::from(low);
        // From the last part to the first.
        let mut take = |width: u32| {
            let part = bits as u64 & ((1 << width) - 1);
            bits >>= width;
            part
        };
        let (len, offset, segment) = (take(LEN_BITS) as u32, take(OFFSET_BITS) as u32, take(SEGMENT_BITS) as u32);
        let (sub, main) = (take(SUB_BITS) as u32, take(MAIN_BITS) as i64);
        Version { rev: Revision { main, sub }, create: main, version: 1, loc: Loc { segment, offset, len } }
    }
}

/// One key's versions.
pub(super) enum Versions<'a> {
    One(Version),
    Full(&'a Entry),
}

impl Versions<'_> {
    pub(super) fn newest(&self) -> Version {
        match self {
            Versions::One(version) => *version,
            Versions::Full(entry) => entry.newest(),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        match self {
            Versions::One(_) => true,
            Versions::Full(entry) => entry.is_live(),
        }
    }

    /// The live version at main revision `at`.
    pub(super) fn at(&self, at: i64) -> Option<Version> {
        match self {
            Versions::One(version) => (version.rev.main <= at).then_some(*version),
            Versions::Full(entry) => entry.at(at),
        }
    }

    /// The version written at exactly `rev`, tombstone or not.
    pub(super) fn exact(&self, rev: Revision) -> Option<Version> {
        match self {
            Versions::One(version) => (version.rev == rev).then_some(*version),
            Versions::Full(entry) => entry.exact(rev),
        }
    }

    /// All versions, oldest first.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<Version> {
        match self {
            Versions::One(version) => vec![*version],
            Versions::Full(entry) => entry.versions(),
        }
    }
}

/// Up to [`KEYS_MAX`] keys' versions.
#[derive(Default)]
pub(super) struct Entries {
    /// Bit i: key i has an [`Entry`].
    full_at: u64,
    /// Of the keys without one, in order.
    narrow: Vec<Narrow>,
    full: Vec<Entry>,
}

impl Entries {
    pub(super) fn with_capacity(keys: usize) -> Entries {
        Entries { full_at: 0, narrow: Vec::with_capacity(keys), full: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.narrow.len() + self.full.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn get(&self, i: usize) -> Versions<'_> {
        match self.place(i) {
            Place::Narrow(at) => Versions::One(self.narrow[at].unpack()),
            Place::Full(at) => Versions::Full(&self.full[at]),
        }
    }

    /// Fetches the newest version of key `i`.
    pub(super) fn fetch(&self, i: usize) {
        match self.place(i) {
            Place::Narrow(at) => disk::fetch(&self.narrow[at..=at]),
            Place::Full(at) => disk::fetch(&self.full[at..=at]),
        }
    }

    /// Fetches where its older versions are.
    pub(super) fn fetch_older(&self, i: usize) {
        if let Place::Full(at) = self.place(i) {
            self.full[at].fetch_older();
        }
    }

    /// Fetches the last of those.
    pub(super) fn fetch_last(&self, i: usize) {
        if let Place::Full(at) = self.place(i) {
            self.full[at].fetch_last();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Versions<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Puts a key with one version at position `i`.
    pub(super) fn insert(&mut self, i: usize, version: Version) {
        let (len, below) = (self.len(), low_bits(i));
        assert!(len < KEYS_MAX && i <= len, "the entries of a leaf overflow");
        let narrow = Narrow::of(&version);
        let bit = u64::from(narrow.is_none()) << i;
        let full_before = (self.full_at & below).count_ones() as usize;
        self.full_at = self.full_at & below | (self.full_at & !below) << 1 | bit;
        match narrow {
            Some(narrow) => insert(&mut self.narrow, i - full_before, narrow),
            None => insert(&mut self.full, full_before, Entry::new(version)),
        }
    }

    /// Adds a version to key `i`, which must be newer than those it has.
    pub(super) fn push(&mut self, i: usize, version: Version) {
        match self.place(i) {
            Place::Full(at) => self.full[at].push(version),
            Place::Narrow(at) => {
                let mut entry = Entry::new(remove(&mut self.narrow, at).unpack());
                entry.push(version);
                insert(&mut self.full, i - at, entry);
                self.full_at |= 1 << i;
            }
        }
    }

    /// Changes where the version of `rev` of key `i` is stored; false if there is no such version.
    pub(super) fn relocate(&mut self, i: usize, rev: Revision, loc: Loc) -> bool {
        match self.place(i) {
            Place::Full(at) => {
                let found = self.full[at].relocate(rev, loc);
                self.narrow_down(i, at);
                found
            }
            Place::Narrow(at) => {
                let version = self.narrow[at].unpack();
                if version.rev != rev {
                    return false;
                }
                let moved = Version { loc, ..version };
                match Narrow::of(&moved) {
                    Some(narrow) => self.narrow[at] = narrow,
                    None => {
                        remove(&mut self.narrow, at);
                        insert(&mut self.full, i - at, Entry::new(moved));
                        self.full_at |= 1 << i;
                    }
                }
                true
            }
        }
    }

    /// Drops at most `max` versions of key `i` that no read at `compact` or later needs, oldest first.
    pub(super) fn prune(&mut self, i: usize, compact: i64, max: usize, dead: &mut dyn FnMut(Loc, bool)) -> Pruned {
        let Place::Full(at) = self.place(i) else {
            return Pruned { visited: 1, finished: true, emptied: false };
        };
        let pruned = self.full[at].prune(compact, max, dead);
        self.narrow_down(i, at);
        pruned
    }

    /// Gives key `i`, which has the entry at `at`, as little room as it needs now.
    fn narrow_down(&mut self, i: usize, at: usize) {
        if let Some(narrow) = self.full[at].only().as_ref().and_then(Narrow::of) {
            remove(&mut self.full, at);
            insert(&mut self.narrow, i - at, narrow);
            self.full_at &= !(1 << i);
        }
    }

    /// Keeps the keys whose bit is set in `mask`.
    pub(super) fn retain(&mut self, mask: u64) {
        let (mut full_at, mut kept) = (0, 0);
        for i in (0..self.len()).filter(|i| mask >> i & 1 == 1) {
            full_at |= (self.full_at >> i & 1) << kept;
            kept += 1;
        }
        let (before, len) = (self.full_at, self.len());
        let mut places = (0..len).filter(|i| before >> i & 1 == 0);
        self.narrow.retain(|_| places.next().is_some_and(|i| mask >> i & 1 == 1));
        let mut places = (0..len).filter(|i| before >> i & 1 == 1);
        self.full.retain(|_| places.next().is_some_and(|i| mask >> i & 1 == 1));
        self.full_at = full_at;
        self.shrink_to_fit();
    }

    /// Takes over those of the leaf behind this one.
    pub(super) fn append(&mut self, right: &mut Entries) {
        let len = self.len();
        assert!(len + right.len() <= KEYS_MAX, "the entries of a leaf overflow");
        if !right.is_empty() {
            self.full_at |= right.full_at << len;
        }
        right.full_at = 0;
        self.narrow.append(&mut right.narrow);
        self.full.append(&mut right.full);
        self.shrink_to_fit();
    }

    /// Cuts off those from position `i` on.
    pub(super) fn split_off(&mut self, i: usize) -> Entries {
        let below = low_bits(i);
        let full_before = (self.full_at & below).count_ones() as usize;
        let right = Entries {
            full_at: self.full_at.checked_shr(i as u32).unwrap_or(0),
            narrow: self.narrow.split_off(i - full_before),
            full: self.full.split_off(full_before),
        };
        self.full_at &= below;
        self.shrink_to_fit();
        right
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.narrow.shrink_to_fit();
        self.full.shrink_to_fit();
    }

    fn place(&self, i: usize) -> Place {
        let full_before = (self.full_at & low_bits(i)).count_ones() as usize;
        if self.full_at >> i & 1 == 1 { Place::Full(full_before) } else { Place::Narrow(i - full_before) }
    }

    /// Panics unless the parts agree.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.full_at.count_ones() as usize, self.full.len());
        assert!(self.len() == KEYS_MAX || self.full_at >> self.len() == 0);
        let fits = |entry: &Entry| entry.only().as_ref().and_then(Narrow::of).is_some();
        assert!(!self.full.iter().any(fits), "a key takes more than it has to");
        let spare = [self.narrow.capacity() - self.narrow.len(), self.full.capacity() - self.full.len()];
        assert!(spare.iter().all(|spare| *spare <= STEP), "places for {spare:?} keys that are not there");
    }
}

/// Where the versions of a key are.
enum Place {
    Narrow(usize),
    Full(usize),
}

/// Grows by a few places at a time: there are very many leaves.
fn insert<T>(places: &mut Vec<T>, at: usize, place: T) {
    if places.len() == places.capacity() {
        places.reserve_exact(STEP);
    }
    places.insert(at, place);
}

/// Keeps few places without a key.
fn remove<T>(places: &mut Vec<T>, at: usize) -> T {
    let removed = places.remove(at);
    if places.capacity() - places.len() > STEP {
        places.shrink_to_fit();
    }
    removed
}

/// The bits below bit `n`.
pub(super) fn low_bits(n: usize) -> u64 {
    if n >= KEYS_MAX { u64::MAX } else { (1 << n) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_once(main: i64, sub: u32, loc: Loc) -> Version {
        Version { rev: Revision { main, sub }, create: main, version: 1, loc }
    }

    #[test]
    fn what_is_narrow() {
        assert_eq!(size_of::<Narrow>(), 16);
        assert_eq!(align_of::<Narrow>(), 8);
        let small = Loc { segment: 7, offset: 8, len: 9 };
        let large = Loc { segment: (1 << 22) - 1, offset: u32::MAX, len: (1 << 21) - 1 };
        for version in [
            put_once(2, 0, small),
            put_once((1 << 46) - 1, 127, large),
            put_once(0, 0, Loc { segment: 0, offset: 0, len: 0 }),
            put_once(1 << 45, 1, small),
        ] {
            assert_eq!(Narrow::of(&version).map(Narrow::unpack), Some(version));
        }
        for version in [
            put_once(1 << 46, 0, small),
            put_once(i64::MAX, 0, small),
            put_once(-1, 0, small),
            put_once(2, 128, small),
            put_once(2, u32::MAX, small),
            put_once(2, 0, Loc { segment: 1 << 22, ..small }),
            put_once(2, 0, Loc { len: 1 << 21, ..small }),
            Version { version: 2, ..put_once(2, 0, small) },
            Version { version: 0, create: 0, ..put_once(2, 0, small) },
            Version { create: 1, ..put_once(2, 0, small) },
        ] {
            assert!(Narrow::of(&version).is_none(), "{version:?}");
        }
    }

    /// Every operation, narrow and full entries mixed, against a list of lists.
    #[test]
    fn as_a_list() {
        let mut random = 1_u64;
        let mut next = move |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..300 {
            let (mut entries, mut list) = (Entries::default(), Vec::<Vec<Version>>::new());
            let mut main = 1_i64;
            for _ in 0..300 {
                main += 1;
                let loc =
                    Loc { segment: next(3) as u32, offset: main as u32, len: if next(9) == 0 { 1 << 21 } else { 5 } };
                let version = put_once(main, [0, 3, 200][next(3) as usize], loc);
                let len = list.len() as u64;
                match next(10) {
                    0..5 if list.len() < KEYS_MAX => {
                        let at = next(len + 1) as usize;
                        entries.insert(at, version);
                        list.insert(at, vec![version]);
                    }
                    5 | 6 if len > 0 => {
                        let at = next(len) as usize;
                        let version = match list[at].last().copied() {
                            Some(last) if last.version > 0 && next(3) > 0 => {
                                Version { create: last.create, version: last.version + 1, ..version }
                            }
                            Some(last) if last.version > 0 => Version { create: 0, version: 0, ..version },
                            _ => version,
                        };
                        entries.push(at, version);
                        list[at].push(version);
                    }
                    7 if len > 0 => {
                        let at = next(len) as usize;
                        let which = next(list[at].len() as u64) as usize;
                        let rev = list[at][which].rev;
                        list[at][which].loc = loc;
                        assert!(entries.relocate(at, rev, loc));
                        assert!(!entries.relocate(at, Revision { main: rev.main, sub: 99 }, loc));
                    }
                    8 if len > 0 => {
                        let at = next(len) as usize;
                        let compact = list[at].last().map_or(0, |last| last.rev.main) + 1;
                        let pruned = entries.prune(at, compact, usize::MAX, &mut |_, _| ());
                        let last = list[at].pop();
                        list[at] = last.into_iter().collect();
                        let is_gone = list[at].first().is_some_and(|last| last.version == 0);
                        assert_eq!((pruned.finished, pruned.emptied), (true, is_gone));
                        if is_gone {
                            entries.retain(!(1 << at));
                            list.remove(at);
                        }
                    }
                    9 if len > 0 => {
                        let cut = next(len + 1) as usize;
                        let mut right = entries.split_off(cut);
                        assert_eq!((entries.len(), right.len()), (cut, list.len() - cut));
                        entries.check();
                        right.check();
                        entries.append(&mut right);
                        assert!(right.is_empty());
                    }
                    _ => {
                        let mask = u64::MAX << 1 | next(2);
                        entries.retain(mask);
                        if mask & 1 == 0 && !list.is_empty() {
                            list.remove(0);
                        }
                    }
                }
                entries.check();
                assert_eq!(entries.iter().map(|versions| versions.all()).collect::<Vec<_>>(), list);
            }
        }
    }
}
