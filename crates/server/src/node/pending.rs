//! Who waits for which proposal.

use super::Done;
use api::Error;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

/// Somebody who waits.
pub(super) struct Waiting {
    pub(super) done: Done,
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
}

impl Pending {
    /// Adds many under one lock.
    pub(super) fn add(&self, proposals: impl Iterator<Item = (u64, Done, Instant)>, taken: Instant, taken_ms: u64) {
        let mut waiting = super::lock(&self.waiting);
        for (id, done, since) in proposals {
            waiting.insert(id, Waiting { done, since, taken, taken_ms });
        }
    }

    /// Who waits for which of the results, in their order. Nobody does for what another member proposed, or was replayed.
    pub(super) fn take<T>(&self, results: Vec<(u64, T)>) -> Vec<(Option<Waiting>, T)> {
        let mut waiting = super::lock(&self.waiting);
        let mut taken = Vec::with_capacity(results.len());
        for (id, result) in results {
            taken.push((waiting.remove(&id), result));
        }
        taken
    }

    /// Whether anybody waits for this one.
    pub(super) fn waits(&self, id: u64) -> bool {
        super::lock(&self.waiting).contains_key(&id)
    }

    /// Answers those who came before `before_ms`: their time is over. They may still be applied, and the error, which `why` finds
    /// for the time they came, is one that says so.
    pub(super) fn expire(&self, before_ms: u64, why: impl Fn(u64) -> Error) -> usize {
        let mut expired = Vec::new();
        let mut waiting = super::lock(&self.waiting);
        let ids: Vec<u64> =
            waiting.iter().filter(|(_, waiting)| waiting.taken_ms <= before_ms).map(|(id, _)| *id).collect();
        for id in ids {
            expired.extend(waiting.remove(&id));
        }
        drop(waiting);
        let count = expired.len();
        for waiting in expired {
            (waiting.done)(Err(why(waiting.taken_ms)));
        }
        count
    }

    /// Answers everyone with `error`.
    pub(super) fn fail_all(&self, error: Error) {
        let all = std::mem::take(&mut *super::lock(&self.waiting));
        for waiting in all.into_values() {
            (waiting.done)(Err(error));
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        super::lock(&self.waiting).len()
    }
}
