//! A claim of bytes.

use crate::budget::Budget;
use crate::pool::Pool;
use bytes::Bytes;
use contain::lock;
use rpc::Address;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of the budget, released when it is dropped.
#[derive(Debug)]
pub struct Claim {
    budget: Arc<Budget>,
    pool: Pool,
    bytes: u64,
    /// The client that has them.
    client: Option<Address>,
    /// How many of them are on the client's account: those that were granted without looking at it are not.
    noted: u64,
}

impl Claim {
    /// For bytes that were taken out of the pool, `noted` of them on the account of `client`.
    pub(crate) fn new(budget: Arc<Budget>, pool: Pool, bytes: u64, client: Option<Address>, noted: u64) -> Claim {
        Claim { budget, pool, bytes, client, noted }
    }

    /// The pool that it was taken from.
    pub fn pool(&self) -> Pool {
        self.pool
    }

    /// Bytes that it is for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is the whole pool, so that its answer may take even more.
    pub fn is_whole_pool(&self) -> bool {
        self.bytes >= self.pool.part(self.budget.bytes_max)
    }

    /// Changes it to `bytes`. False if that is more and there is no room, or its client has its share: then it stays as it was.
    pub fn resize(&mut self, bytes: u64) -> bool {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            let noted = less.min(self.noted);
            self.noted = self.noted.saturating_sub(noted);
            self.budget.release(self.pool, less, noted, self.client);
        } else if !self.grow(bytes.saturating_sub(self.bytes)) {
            self.budget.figures(self.pool).refusals.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.bytes = bytes;
        true
    }

    /// Notes that a change to `bytes` was refused and will not be waited for, as [`Budget::refused`] does.
    pub fn refused(&self, bytes: u64) {
        if let Some(client) = self.client {
            self.budget.note_refusal(self.pool, bytes.saturating_sub(self.bytes), self.noted, client);
        }
    }

    fn grow(&mut self, more: u64) -> bool {
        let (budget, pool) = (&self.budget, self.pool);
        if budget.take_below(budget.unshared(pool), pool, more) {
            return true;
        }
        let Some(client) = self.client else { return budget.take(pool, more) };
        let shared = pool.shared(budget.bytes_max);
        let mut state = lock(&budget.state);
        if state.shares.used_up(pool, client, more, self.noted, shared).is_some() || !budget.take(pool, more) {
            return false;
        }
        state.shares.note(pool, client, more);
        self.noted = self.noted.saturating_add(more);
        true
    }

    /// Cuts a claim of `bytes` off this one, or of all that it has if that is less: together they are what it was.
    pub fn split(&mut self, bytes: u64) -> Claim {
        let bytes = bytes.min(self.bytes);
        let noted = bytes.min(self.noted);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.noted = self.noted.saturating_sub(noted);
        Claim::new(self.budget.clone(), self.pool, bytes, self.client, noted)
    }

    /// The same bytes, which hold the claim until the last reference to them is gone.
    pub fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _claim: self })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.budget.release(self.pool, self.bytes, self.noted, self.client);
    }
}

struct Held {
    bytes: Bytes,
    _claim: Claim,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
