//! Who waits for which proposal, behind a lock: consensus adds them, whoever applies takes them, and the timer ends those that are late.

use super::inbox::Waiter;
use crate::overload::Class;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const _: () = assert!(Class::COUNT <= replica::CLASSES_MAX);

/// Proposals that are on their way through the log.
#[derive(Default)]
pub(super) struct Pending {
    table: Mutex<replica::Pending<Waiter>>,
    /// The number of proposals of each class. Written under the lock, read without it.
    depths: [AtomicUsize; Class::COUNT],
}

impl Pending {
    /// Calls `look` with the table under its lock. `look` must not end a waiter.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut replica::Pending<Waiter>) -> T) -> T {
        let mut table = contain::lock(&self.table);
        let found = look(&mut table);
        for (depth, now) in self.depths.iter().zip(table.depths()) {
            depth.store(*now, Ordering::Relaxed);
        }
        found
    }

    /// Whether anybody waits for this proposal.
    pub(super) fn waits(&self, id: u64) -> bool {
        contain::lock(&self.table).waits(id)
    }

    /// How many proposals of this class wait.
    pub(super) fn depth(&self, class: Class) -> usize {
        self.depths[class as usize].load(Ordering::Relaxed)
    }

    /// How many proposals wait.
    pub(super) fn len(&self) -> usize {
        contain::lock(&self.table).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Done;

    #[test]
    fn those_whose_clients_have_gone_are_withdrawn() {
        let pending = Pending::default();
        let (stays, _receiver) = rpc::Responder::local();
        let (goes, gone) = rpc::Responder::local();
        let client = |responder| -> Done { crate::node::For::new(responder, |_, _: crate::node::Outcome| ()) };
        let member: Done = Box::new(|_: crate::node::Outcome| ());
        for (id, done) in [(1, client(stays)), (2, client(goes)), (3, member)] {
            let waiter = Waiter::new(done, Class::Write);
            pending.with(|table| table.add(id, waiter, replica::Now::default()));
        }
        let withdraw = || pending.with(|table| table.withdraw_gone([1, 2, 3, 4].into_iter())).len();
        assert_eq!(withdraw(), 0);
        drop(gone);
        assert_eq!(withdraw(), 1);
        assert_eq!([1, 2, 3].map(|id| pending.with(|table| table.waits(id))), [true, false, true]);
        assert_eq!((pending.depth(Class::Write), pending.depth(Class::Lease), pending.len()), (2, 0, 2));
    }
}
