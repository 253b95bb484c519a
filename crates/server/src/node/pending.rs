//! Who waits for which proposal.

use super::Done;
use crate::overload::Class;
use api::Error;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Somebody who waits.
pub(super) struct Waiting {
    pub(super) done: Done,
    pub(super) class: Class,
    /// When the proposal came.
    pub(super) since: Instant,
    /// When consensus took it.
    pub(super) taken: Instant,
    taken_ms: u64,
}

/// Proposals that are on their way through the log, by request id.
#[derive(Default)]
pub(super) struct Pending {
    waiting: Mutex<HashMap<u64, Waiting>>,
    /// How many there are of each class. Written under the lock, read without.
    depths: [AtomicUsize; Class::COUNT],
}

impl Pending {
    /// Adds many under one lock.
    pub(super) fn add(
        &self,
        proposals: impl Iterator<Item = (u64, Class, Done, Instant)>,
        taken: Instant,
        taken_ms: u64,
    ) {
        let mut waiting = super::lock(&self.waiting);
        for (id, class, done, since) in proposals {
            waiting.insert(id, Waiting { done, class, since, taken, taken_ms });
            self.count(&waiting, class, 1);
        }
    }

    /// Not an atomic addition: whoever writes holds the lock.
    fn count(&self, _held: &MutexGuard<'_, HashMap<u64, Waiting>>, class: Class, by: isize) {
        let depth = &self.depths[class as usize];
        depth.store(depth.load(Ordering::Relaxed).wrapping_add_signed(by), Ordering::Relaxed);
    }

    /// How many of this class wait.
    pub(super) fn depth(&self, class: Class) -> usize {
        self.depths[class as usize].load(Ordering::Relaxed)
    }

    /// Who waits for which of the results, in their order. Nobody does for what another member proposed, or was replayed.
    pub(super) fn take<T>(&self, results: Vec<(u64, T)>) -> Vec<(Option<Waiting>, T)> {
        let mut waiting = super::lock(&self.waiting);
        let mut taken = Vec::with_capacity(results.len());
        for (id, result) in results {
            let found = waiting.remove(&id);
            if let Some(found) = &found {
                self.count(&waiting, found.class, -1);
            }
            taken.push((found, result));
        }
        taken
    }

    /// Who waits for these, and of which class they are.
    pub(super) fn withdraw(&self, ids: &[u64]) -> Vec<(Class, Done)> {
        let mut waiting = super::lock(&self.waiting);
        let mut taken = Vec::with_capacity(ids.len());
        for found in ids.iter().filter_map(|id| waiting.remove(id)).collect::<Vec<_>>() {
            self.count(&waiting, found.class, -1);
            taken.push((found.class, found.done));
        }
        taken
    }

    /// Whether anybody waits for this one.
    pub(super) fn waits(&self, id: u64) -> bool {
        super::lock(&self.waiting).contains_key(&id)
    }

    /// Withdraws those of the proposals whose clients have gone.
    pub(super) fn withdraw_gone(&self, ids: impl Iterator<Item = u64>) -> Vec<(Class, Done)> {
        let mut waiting = super::lock(&self.waiting);
        let is_gone = |id: &u64| waiting.get(id).is_some_and(|waiting| waiting.done.is_gone());
        let gone: Vec<u64> = ids.filter(is_gone).collect();
        let mut taken = Vec::with_capacity(gone.len());
        for found in gone.iter().filter_map(|id| waiting.remove(id)).collect::<Vec<_>>() {
            self.count(&waiting, found.class, -1);
            taken.push((found.class, found.done));
        }
        taken
    }

    /// Answers those who came before `before_ms`: their time is over. They may still be applied, and the error, which `why` finds
    /// for the time they came, is one that says so.
    pub(super) fn expire(&self, before_ms: u64, why: impl Fn(u64) -> Error) -> usize {
        let mut expired = Vec::new();
        let mut waiting = super::lock(&self.waiting);
        let ids: Vec<u64> =
            waiting.iter().filter(|(_, waiting)| waiting.taken_ms <= before_ms).map(|(id, _)| *id).collect();
        for late in ids.iter().filter_map(|id| waiting.remove(id)).collect::<Vec<_>>() {
            self.count(&waiting, late.class, -1);
            expired.push(late);
        }
        drop(waiting);
        let count = expired.len();
        for waiting in expired {
            waiting.done.end(Err(why(waiting.taken_ms)));
        }
        count
    }

    /// Answers everyone with `error`.
    pub(super) fn fail_all(&self, error: Error) {
        let mut waiting = super::lock(&self.waiting);
        let all = std::mem::take(&mut *waiting);
        self.depths.iter().for_each(|depth| depth.store(0, Ordering::Relaxed));
        drop(waiting);
        for waiting in all.into_values() {
            waiting.done.end(Err(error));
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        super::lock(&self.waiting).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_whose_clients_have_gone_are_withdrawn() {
        let pending = Pending::default();
        let now = Instant::now();
        let (stays, _receiver) = rpc::Responder::local();
        let (goes, gone) = rpc::Responder::local();
        let client = |responder| -> Done { crate::node::For::new(responder, |_, _: crate::node::Outcome| ()) };
        let member: Done = Box::new(|_: crate::node::Outcome| ());
        let all = [(1, client(stays)), (2, client(goes)), (3, member)];
        pending.add(all.into_iter().map(|(id, done)| (id, Class::Write, done, now)), now, 10);
        assert_eq!(pending.withdraw_gone([1, 2, 3, 4].into_iter()).len(), 0);
        drop(gone);
        assert_eq!(pending.withdraw_gone([1, 2, 3, 4].into_iter()).len(), 1);
        assert_eq!([1, 2, 3].map(|id| pending.waits(id)), [true, false, true]);
        assert_eq!(pending.depth(Class::Write), 2);
    }

    #[test]
    fn depths_are_those_of_the_classes() {
        let pending = Pending::default();
        let done = || -> Done { Box::new(|_: crate::node::Outcome| ()) };
        let classes = [Class::Write, Class::Lease, Class::Write, Class::Member, Class::Write];
        let now = Instant::now();
        pending.add((0..).zip(classes).map(|(id, class)| (id, class, done(), now)), now, 10);
        let depths = || [Class::Write, Class::Lease, Class::Member].map(|class| pending.depth(class));
        assert_eq!(depths(), [3, 1, 1]);
        assert_eq!(pending.take(vec![(0, ()), (77, ())]).iter().filter(|(done, ())| done.is_some()).count(), 1);
        assert_eq!(pending.withdraw(&[1, 1, 78]).len(), 1);
        assert_eq!(depths(), [2, 0, 1]);
        assert_eq!(pending.expire(9, |_| Error::Timeout), 0);
        assert_eq!(pending.expire(10, |_| Error::Timeout), 3);
        assert_eq!((depths(), pending.len()), ([0, 0, 0], 0));
    }
}
