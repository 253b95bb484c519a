//! The waiters of proposals, by request id.

use crate::Now;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Limit of classes of waiters that are counted separately.
pub const CLASSES_MAX: usize = 9;

/// The waiter of a proposal.
pub trait Waiter {
    /// Whether the client no longer wants the result. A member's own proposals are always waited for.
    fn is_gone(&self) -> bool {
        false
    }

    /// The waiter's class, one of [`CLASSES_MAX`].
    fn class(&self) -> usize {
        0
    }
}

/// A waiter, and since when it waits.
pub struct Waiting<W> {
    /// The waiter.
    pub waiter: W,
    /// When consensus took the proposal.
    pub taken: Now,
}

/// Proposals that are on their way through the log, by request id.
///
/// Each waiter is given back exactly once: by [`Pending::take`] when its entry is applied, or by one of the methods that give up on it.
/// A proposal without a waiter is not proposed any more, but may be in the log already.
pub struct Pending<W> {
    waiting: HashMap<u64, Waiting<W>, BuildHasherDefault<RequestIdHasher>>,
    depths: [usize; CLASSES_MAX],
}

impl<W> Default for Pending<W> {
    fn default() -> Pending<W> {
        Pending { waiting: HashMap::default(), depths: [0; CLASSES_MAX] }
    }
}

impl<W: Waiter> Pending<W> {
    /// Adds the waiter of a proposal that consensus has taken.
    pub fn add(&mut self, id: u64, waiter: W, taken: Now) {
        if let Some(depth) = self.depths.get_mut(waiter.class()) {
            *depth = depth.saturating_add(1);
        }
        self.waiting.insert(id, Waiting { waiter, taken });
    }

    /// Takes the waiter of this proposal. There is none for another member's proposal, or one that is replayed.
    pub fn take(&mut self, id: u64) -> Option<Waiting<W>> {
        let found = self.waiting.remove(&id)?;
        if let Some(depth) = self.depths.get_mut(found.waiter.class()) {
            *depth = depth.saturating_sub(1);
        }
        Some(found)
    }

    /// Takes the waiters of these proposals.
    pub fn withdraw(&mut self, ids: &[u64]) -> Vec<W> {
        ids.iter().filter_map(|id| Some(self.take(*id)?.waiter)).collect()
    }

    /// Takes the waiters of these proposals whose clients have gone.
    pub fn withdraw_gone(&mut self, ids: impl Iterator<Item = u64>) -> Vec<W> {
        let mut gone = Vec::new();
        for id in ids {
            if self.waiting.get(&id).is_some_and(|waiting| waiting.waiter.is_gone()) {
                gone.extend(self.take(id).map(|waiting| waiting.waiter));
            }
        }
        gone
    }

    /// Takes the waiters whose proposals were taken at or before `before_ms`: their time is over. The proposals may
    /// still be applied.
    pub fn expire(&mut self, before_ms: u64) -> Vec<Waiting<W>> {
        let late = self.waiting.iter().filter(|(_, waiting)| waiting.taken.ms <= before_ms);
        let mut ids: Vec<u64> = late.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| self.take(id)).collect()
    }

    /// Takes all waiters.
    pub fn take_all(&mut self) -> Vec<W> {
        let mut all: Vec<(u64, W)> = self.waiting.drain().map(|(id, waiting)| (id, waiting.waiter)).collect();
        self.depths = [0; CLASSES_MAX];
        all.sort_unstable_by_key(|(id, _)| *id);
        all.into_iter().map(|(_, waiter)| waiter).collect()
    }

    /// Whether this proposal has a waiter.
    pub fn waits(&self, id: u64) -> bool {
        self.waiting.contains_key(&id)
    }

    /// The number of waiters of each class.
    pub fn depths(&self) -> &[usize; CLASSES_MAX] {
        &self.depths
    }

    /// The number of waiters.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is no waiter.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Spreads request ids, which members number one by one. Clients do not choose them, so the hash need not be secret.
#[derive(Default)]
struct RequestIdHasher(u64);

impl Hasher for RequestIdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The map takes its place from the low bits and its tag from the high ones.
        let spread = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    struct Client {
        class: usize,
        is_gone: Rc<Cell<bool>>,
    }

    impl Waiter for Client {
        fn is_gone(&self) -> bool {
            self.is_gone.get()
        }

        fn class(&self) -> usize {
            self.class
        }
    }

    fn client(class: usize) -> Client {
        Client { class, is_gone: Rc::default() }
    }

    fn at(ms: u64) -> Now {
        Now { ms, ..Now::default() }
    }

    #[test]
    fn those_whose_clients_have_gone_are_withdrawn() {
        let mut pending = Pending::default();
        let goes = client(1);
        let gone = goes.is_gone.clone();
        for (id, client) in [(1, client(1)), (2, goes), (3, client(1))] {
            pending.add(id, client, at(10));
        }
        assert_eq!(pending.withdraw_gone([1, 2, 3, 4].into_iter()).len(), 0);
        gone.set(true);
        assert_eq!(pending.withdraw_gone([1, 2, 3, 4].into_iter()).len(), 1);
        assert_eq!([1, 2, 3].map(|id| pending.waits(id)), [true, false, true]);
        assert_eq!(pending.depths()[1], 2);
    }

    #[test]
    fn depths_are_those_of_the_classes() {
        let mut pending = Pending::default();
        for (id, class) in (0..).zip([1, 2, 1, 3, 1]) {
            pending.add(id, client(class), at(10));
        }
        assert_eq!(pending.depths()[1..4], [3, 1, 1]);
        assert!(pending.take(0).is_some() && pending.take(77).is_none());
        assert_eq!(pending.withdraw(&[1, 1, 78]).len(), 1);
        assert_eq!(pending.depths()[1..4], [2, 0, 1]);
        assert_eq!(pending.expire(9).len(), 0);
        assert_eq!(pending.expire(10).len(), 3);
        assert!(pending.is_empty() && *pending.depths() == [0; CLASSES_MAX]);
    }

    #[test]
    fn ids_one_after_the_other_are_spread() {
        let tags = (0..1000_u64).map(|id| {
            let mut hasher = RequestIdHasher::default();
            hasher.write_u64(0x7b00_0000_0000_0000 + id);
            (hasher.finish() & 1023, hasher.finish() >> 57)
        });
        let (mut places, mut highs) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        for (place, high) in tags {
            places.insert(place);
            highs.insert(high);
        }
        assert!(places.len() > 550 && highs.len() > 100, "{} {}", places.len(), highs.len());
    }
}
