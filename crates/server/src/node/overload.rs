//! How many wait for what, and who is refused.

use super::Node;
use crate::overload::Class;
use api::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Adds one to a counter for as long as it exists.
pub(super) struct Posted(Arc<AtomicUsize>);

impl Posted {
    pub(super) fn count(of: Arc<AtomicUsize>) -> Posted {
        of.fetch_add(1, Ordering::Relaxed);
        Posted(of)
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Node {
    /// How many requests of this class wait.
    pub(crate) fn depth(&self, class: Class) -> usize {
        match class {
            Class::Read => self.reads.count() + self.inbox.reads() + self.reads_posted.load(Ordering::Relaxed),
            Class::Slow => self.slow.depth(),
            Class::Forward => self.forwards.depth(),
            Class::Share => self.client_shares.as_ref().map_or(0, |shares| shares.waiting()),
            _ => self.pending.depth(class) + self.inbox.queued(class),
        }
    }

    /// How many requests of this class the inbox may hold: the limit of the class without those that wait elsewhere.
    pub(super) fn room(&self, class: Class) -> usize {
        let waiting = match class {
            Class::Read => self.reads.count() + self.reads_posted.load(Ordering::Relaxed),
            _ => self.pending.depth(class),
        };
        self.config.queues.of(class).saturating_sub(waiting)
    }

    /// Counts a refused request of this class and returns the error for it.
    pub(crate) fn refuse(&self, class: Class) -> Error {
        self.refusals.count(class);
        Error::TooManyRequests
    }

    /// How many requests of this class were refused.
    pub(crate) fn refused(&self, class: Class) -> u64 {
        let by_pool = match class {
            Class::Slow => self.slow.refused(),
            Class::Forward => self.forwards.refused(),
            _ => 0,
        };
        by_pool + self.refusals.of(class)
    }

    /// Checks whether a request of this class may be proposed.
    pub(super) fn admit(&self, class: Class) -> Result<(), Error> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        // The gap between committed and applied entries is limited because those entries are held in memory. Urgent
        // requests pass all the same: the keys of clients that have gone must go with their leases, or the work would
        // only grow.
        let is_behind = || self.status.committed() > self.status.applied() + api::limits::APPLY_GAP_MAX;
        if !class.is_urgent() && is_behind() { Err(self.refuse(class)) } else { Ok(()) }
    }
}
