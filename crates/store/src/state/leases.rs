//! The replicated part of leases: what was granted, the remaining time last written to the Raft log, and which keys are attached to
//! which lease. Deadlines are not replicated: only the leader has them.

use super::lease_pieces::{Piece, Pieces};
use crate::log::RwLock;
use crate::log::{read, write};
use api::Error;
use api::limits::{LEASE_TTL_SECONDS_MAX, READ_STRIDE_KEYS};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A lease as it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Chosen by the client, or by the server that proposed the grant. May be negative, never 0.
    pub id: i64,
    /// Time to live in seconds, as granted.
    pub ttl: i64,
    /// Seconds that were left at the last lease checkpoint; 0 when there was none.
    pub remaining_ttl: i64,
}

/// All leases.
pub struct Leases {
    table: RwLock<Table>,
    /// Keys on some lease, to keep puts away from the lock while there are none.
    attached: AtomicUsize,
    /// Number of leases, for the check at every write.
    granted: AtomicUsize,
}

/// The leases of one moment. Pieces are shared with the table until it changes them, so taking one costs some ten microseconds for a
/// million leases.
#[derive(Clone)]
pub(crate) struct LeaseCapture(Vec<Piece>);

/// The keys on a lease.
#[derive(Default)]
struct Attached {
    keys: BTreeSet<Arc<[u8]>>,
    /// Of all of them.
    bytes: u64,
    /// The number of the key that was added last.
    newest: u64,
}

/// What a lease has got of keys: while this is the same it has no others, perhaps fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Additions {
    state: u64,
    newest: u64,
}

struct Table {
    /// How many states were replaced before this one.
    state: u64,
    /// How many keys were added to leases.
    added: u64,
    granted: Pieces,
    keys: BTreeMap<i64, Attached>,
    lease_of: BTreeMap<Arc<[u8]>, i64>,
}

/// How far the span of keys goes that a key lies in.
pub(crate) enum Reach<'a> {
    /// It lies in none.
    Nowhere,
    /// To the last key before this one.
    Until(&'a [u8]),
    /// To the last key that there can be.
    End,
}

impl Table {
    fn add(&mut self, key: Arc<[u8]>, id: i64) {
        self.added = self.added.wrapping_add(1);
        self.keys.entry(id).or_default().add(key.clone(), self.added);
        self.lease_of.insert(key, id);
    }

    /// The first key from `from` on that is attached to a lease, or to any.
    fn first_key(&self, lease: Option<i64>, from: &[u8]) -> Option<&[u8]> {
        let bounds = (Bound::Included(from), Bound::Unbounded);
        match lease {
            Some(id) => self.keys.get(&id)?.keys.range::<[u8], _>(bounds).next().map(|key| &**key),
            None => self.lease_of.range::<[u8], _>(bounds).next().map(|(key, _)| &**key),
        }
    }
}

impl Attached {
    /// Adds a key, which is the `number`th of all leases.
    fn add(&mut self, key: Arc<[u8]>, number: u64) {
        self.newest = number;
        self.bytes += key.len() as u64;
        self.keys.insert(key);
    }
}

impl Leases {
    pub(crate) fn new(granted: impl IntoIterator<Item = Lease>) -> Leases {
        let mut pieces = Pieces::default();
        for lease in granted {
            pieces.insert(lease);
        }
        let count = pieces.count();
        let table = Table { state: 0, added: 0, granted: pieces, keys: BTreeMap::new(), lease_of: BTreeMap::new() };
        Leases { table: RwLock::new(table), attached: AtomicUsize::new(0), granted: AtomicUsize::new(count) }
    }

    /// Adds a lease of another member's state. False when there is one with this id.
    pub(crate) fn restore(&self, lease: Lease) -> bool {
        let mut table = write(&self.table);
        let is_new = table.granted.insert(lease);
        self.granted.store(table.granted.count(), Ordering::Relaxed);
        is_new
    }

    /// Whether the lease was granted and not yet revoked.
    pub fn exists(&self, id: i64) -> bool {
        self.get(id).is_some()
    }

    /// The lease with this id.
    pub fn get(&self, id: i64) -> Option<Lease> {
        read(&self.table).granted.get(id).copied()
    }

    /// How many leases there are.
    pub fn count(&self) -> usize {
        self.granted.load(Ordering::Relaxed)
    }

    /// Every lease, in no particular order.
    pub fn list(&self) -> Vec<Lease> {
        self.capture().iter().collect()
    }

    /// Up to `max` leases in the order of their ids, the first of them with the id `from` or a higher one.
    pub fn list_from(&self, from: i64, max: usize) -> Vec<Lease> {
        read(&self.table).granted.some_from(from, max)
    }

    /// The keys attached to a lease, in key order.
    pub fn keys(&self, id: i64) -> Vec<Bytes> {
        let mut keys = Vec::new();
        let mut last: Option<Arc<[u8]>> = None;
        loop {
            let table = read(&self.table);
            let Some(attached) = table.keys.get(&id) else { return keys };
            let from = match &last {
                Some(last) => Bound::Excluded(last.clone()),
                None => Bound::Unbounded,
            };
            let before = keys.len();
            for key in attached.keys.range((from, Bound::Unbounded)).take(READ_STRIDE_KEYS) {
                keys.push(Bytes::copy_from_slice(key));
                last = Some(key.clone());
            }
            if keys.len() - before < READ_STRIDE_KEYS {
                return keys;
            }
        }
    }

    /// Whether all keys attached to a lease, or to any lease, lie in certain spans of keys. `reach` says how far the span goes that a key
    /// lies in: one question for each span, however many keys there are.
    pub(crate) fn are_within<'a>(&self, lease: Option<i64>, reach: impl Fn(&[u8]) -> Reach<'a>) -> bool {
        if self.attached.load(Ordering::Relaxed) == 0 {
            return true;
        }
        let mut from: &[u8] = &[];
        loop {
            let table = read(&self.table);
            for _ in 0..READ_STRIDE_KEYS {
                let Some(key) = table.first_key(lease, from) else { return true };
                match reach(key) {
                    Reach::Nowhere => return false,
                    Reach::Until(end) => from = end,
                    Reach::End => return true,
                }
            }
        }
    }

    /// What keys a lease has got; `None` if there is none on it.
    pub(crate) fn additions(&self, id: i64) -> Option<Additions> {
        if self.attached.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let table = read(&self.table);
        let attached = table.keys.get(&id)?;
        Some(Additions { state: table.state, newest: attached.newest })
    }

    /// How many keys are attached to a lease, and their bytes.
    pub fn attached(&self, id: i64) -> (u64, u64) {
        if self.attached.load(Ordering::Relaxed) == 0 {
            return (0, 0);
        }
        read(&self.table).keys.get(&id).map_or((0, 0), |attached| (attached.keys.len() as u64, attached.bytes))
    }

    /// The lease a key is attached to, 0 when it is on none.
    pub fn lease_of(&self, key: &[u8]) -> i64 {
        if self.attached.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        read(&self.table).lease_of.get(key).copied().unwrap_or(0)
    }

    /// Grants a lease and returns its effective time to live.
    pub(crate) fn grant(&self, id: i64, ttl: i64, ttl_min: i64) -> Result<i64, Error> {
        if id == 0 {
            // The proposer picks an id when the client gave none.
            return Err(Error::LeaseNotFound);
        }
        if ttl > LEASE_TTL_SECONDS_MAX {
            return Err(Error::LeaseTtlTooLarge);
        }
        let mut table = write(&self.table);
        if table.granted.get(id).is_some() {
            return Err(Error::LeaseExist);
        }
        let ttl = ttl.max(ttl_min);
        table.granted.insert(Lease { id, ttl, remaining_ttl: 0 });
        self.granted.store(table.granted.count(), Ordering::Relaxed);
        Ok(ttl)
    }

    /// Notes how many seconds a lease has left. An unknown lease was revoked meanwhile: nothing to note.
    pub(crate) fn checkpoint(&self, id: i64, remaining_ttl: i64) {
        let mut table = write(&self.table);
        if let Some(lease) = table.granted.get_mut(id) {
            lease.remaining_ttl = remaining_ttl;
        }
    }

    /// Forgets a lease. Its keys have been deleted, and with that detached, before.
    pub(crate) fn revoke(&self, id: i64) {
        let mut table = write(&self.table);
        if table.granted.remove(id) {
            self.granted.store(table.granted.count(), Ordering::Relaxed);
        }
        assert!(!table.keys.contains_key(&id), "lease {id} was revoked with keys attached");
    }

    /// Attaches a key to a lease, or to none (0), instead of the one it was on.
    pub(crate) fn attach(&self, key: &[u8], id: i64) {
        if id == 0 && self.attached.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut table = write(&self.table);
        let table = &mut *table;
        match table.lease_of.get_key_value(key) {
            Some((_, &old)) if old == id => return,
            Some((held, &old)) => {
                let held = held.clone();
                if let Some(attached) = table.keys.get_mut(&old) {
                    attached.keys.remove(&held);
                    attached.bytes = attached.bytes.saturating_sub(held.len() as u64);
                    if attached.keys.is_empty() {
                        table.keys.remove(&old);
                    }
                }
                if id == 0 {
                    table.lease_of.remove(&held);
                } else {
                    table.add(held, id);
                }
            }
            None if id == 0 => return,
            None => {
                // A copy: the caller's key keeps a whole Raft entry in memory.
                let held: Arc<[u8]> = key.into();
                table.add(held, id);
            }
        }
        self.attached.store(table.lease_of.len(), Ordering::Relaxed);
    }

    /// Puts other leases into the place of these, and returns these.
    pub(crate) fn replace(&self, other: Leases) -> Leases {
        let Leases { table, attached, granted } = other;
        let mut current = write(&self.table);
        let state = current.state.wrapping_add(1);
        std::mem::swap(&mut *current, &mut *write(&table));
        current.state = state;
        let before = self.attached.swap(attached.into_inner(), Ordering::Relaxed);
        let granted_before = self.granted.swap(granted.into_inner(), Ordering::Relaxed);
        Leases { table, attached: AtomicUsize::new(before), granted: AtomicUsize::new(granted_before) }
    }

    pub(crate) fn capture(&self) -> LeaseCapture {
        LeaseCapture(read(&self.table).granted.capture())
    }
}

impl LeaseCapture {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Lease> {
        self.0.iter().flat_map(|piece| piece.values().copied())
    }

    /// The leases that follow the first `skipped` ones.
    pub(crate) fn iter_from(&self, mut skipped: u64) -> impl Iterator<Item = Lease> {
        let mut pieces = self.0.iter();
        let mut first = None;
        for piece in pieces.by_ref() {
            match skipped.checked_sub(piece.len() as u64) {
                Some(left) => skipped = left,
                None => {
                    first = Some(piece);
                    break;
                }
            }
        }
        let first = first.into_iter().flat_map(move |piece| piece.values().skip(skipped as usize).copied());
        first.chain(pieces.flat_map(|piece| piece.values().copied()))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|piece| piece.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(capture: &LeaseCapture) -> Vec<i64> {
        let mut ids: Vec<i64> = capture.iter().map(|lease| lease.id).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn grant_rules() {
        let leases = Leases::new([]);
        assert_eq!(leases.grant(0, 10, 2), Err(Error::LeaseNotFound));
        assert_eq!(leases.grant(1, LEASE_TTL_SECONDS_MAX + 1, 2), Err(Error::LeaseTtlTooLarge));
        assert_eq!(leases.grant(1, i64::MAX, 2), Err(Error::LeaseTtlTooLarge));
        assert_eq!(leases.grant(1, LEASE_TTL_SECONDS_MAX, 2), Ok(LEASE_TTL_SECONDS_MAX));
        assert_eq!(leases.grant(1, 5, 2), Err(Error::LeaseExist));
        assert_eq!(leases.grant(-7, i64::MIN, 2), Ok(2));
        assert_eq!(leases.grant(i64::MIN, 0, 2), Ok(2));
        leases.checkpoint(-7, 1);
        leases.checkpoint(99, 1);
        assert_eq!(leases.get(-7), Some(Lease { id: -7, ttl: 2, remaining_ttl: 1 }));
        assert_eq!((leases.count(), leases.exists(99)), (3, false));
        leases.revoke(-7);
        assert_eq!((leases.count(), leases.exists(-7)), (2, false));
    }

    #[test]
    fn a_key_is_on_one_lease() {
        let leases = Leases::new([1, 2].map(|id| Lease { id, ttl: 9, remaining_ttl: 0 }));
        leases.attach(b"a", 1);
        leases.attach(b"b", 1);
        leases.attach(b"a", 2);
        assert_eq!((leases.keys(1), leases.keys(2)), (vec![Bytes::from("b")], vec![Bytes::from("a")]));
        leases.attach(b"long key", 2);
        assert_eq!([1, 2, 3].map(|id| leases.attached(id)), [(1, 1), (2, 9), (0, 0)]);
        leases.attach(b"long key", 1);
        assert_eq!([1, 2].map(|id| leases.attached(id)), [(2, 9), (1, 1)]);
        leases.attach(b"long key", 0);
        assert_eq!((leases.lease_of(b"a"), leases.lease_of(b"c")), (2, 0));
        leases.attach(b"a", 0);
        leases.attach(b"b", 0);
        leases.attach(b"b", 0);
        assert_eq!((leases.keys(1).len(), leases.keys(2).len(), leases.lease_of(b"a")), (0, 0, 0));
    }

    #[test]
    fn keys_are_looked_at_span_by_span() {
        let leases = Leases::new([1, 2].map(|id| Lease { id, ttl: 9, remaining_ttl: 0 }));
        for key in 0..3000u32 {
            leases.attach(&key.to_be_bytes(), 1);
        }
        leases.attach(b"z", 2);
        let ends = [1000u32, 2000, 3000].map(u32::to_be_bytes);
        let within = |lease, spans: usize| {
            let asked = std::cell::Cell::new(0);
            let found = leases.are_within(lease, |key| {
                asked.set(asked.get() + 1);
                let end = ends[..spans].iter().find(|end| key < &end[..]);
                end.map_or(Reach::Nowhere, |end| Reach::Until(end))
            });
            (found, asked.get())
        };
        assert_eq!(within(Some(1), 3), (true, 3));
        assert_eq!(within(Some(1), 2), (false, 3));
        assert_eq!(within(None, 3), (false, 4));
        assert_eq!(within(Some(3), 0), (true, 0));
        assert!(leases.are_within(None, |_| Reach::End));
    }

    #[test]
    fn many_keys_come_in_order() {
        let leases = Leases::new([Lease { id: 1, ttl: 9, remaining_ttl: 0 }]);
        for key in 0..3000u32 {
            leases.attach(&key.to_be_bytes(), 1);
        }
        assert!(leases.keys(1).iter().map(|key| key.to_vec()).eq((0..3000u32).map(|key| key.to_be_bytes().to_vec())));
    }

    #[test]
    fn a_change_copies_little_of_what_a_capture_has() {
        // The ids that had one place among 256 by the product with this number: a client may choose them.
        let factor = 0x9e37_79b9_7f4a_7c15_u64;
        let ids = (1i64..).filter(|id| id.cast_unsigned().wrapping_mul(factor) >> 56 == 7).take(20_000);
        let leases = Leases::new(ids.map(|id| Lease { id, ttl: 9, remaining_ttl: 0 }));
        let capture = leases.capture();
        assert_eq!(capture.count(), 20_000);
        let largest = capture.0.iter().map(|piece| piece.len()).max();
        assert!(largest <= Some(1024), "a change copies {largest:?} leases while the applier waits");
    }

    #[test]
    fn a_capture_stays_as_it_was() {
        let leases = Leases::new([]);
        for id in 1..=1000 {
            assert_eq!(leases.grant(id, 10, 2), Ok(10));
        }
        let capture = leases.capture();
        leases.revoke(500);
        assert_eq!(leases.grant(2000, 10, 2), Ok(10));
        assert_eq!(ids(&capture), (1..=1000).collect::<Vec<_>>());
        assert_eq!(leases.list().len(), 1000);
    }
}
