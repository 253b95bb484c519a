//! How many watches one connection, and all of a member, may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::spec::{Reach, Spec};

/// Bytes of key and range end that a watch has for the price of one; each further started kilobyte counts as one watch more.
const WATCH_KEY_BYTES: usize = 1024;

/// Whose limit a watch was refused by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// That of its connection.
    Connection,
    /// That of the member.
    Member,
}

/// The watches that are allowed, and those that exist.
#[derive(Debug)]
pub struct Allowance {
    scope: Scope,
    limit: u64,
    taken: AtomicU64,
    /// What it is a part of.
    whole: Option<Arc<Allowance>>,
}

/// A watch too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full {
    pub(super) scope: Scope,
    limit: u64,
}

impl Allowance {
    /// Of all clients of a member.
    pub fn of_member(limit: u64) -> Arc<Allowance> {
        Arc::new(Allowance { scope: Scope::Member, limit, taken: AtomicU64::new(0), whole: None })
    }

    /// Of one connection. What it has, its member's allowance has less.
    pub fn of_connection(member: &Arc<Allowance>, limit: u64) -> Arc<Allowance> {
        let whole = Some(member.clone());
        Arc::new(Allowance { scope: Scope::Connection, limit, taken: AtomicU64::new(0), whole })
    }

    /// What is taken of it.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn claim(&self, cost: u32) -> Result<(), Full> {
        let more = |taken: u64| taken.checked_add(cost.into()).filter(|taken| *taken <= self.limit);
        if self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return Err(Full { scope: self.scope, limit: self.limit });
        }
        match self.whole.as_ref().map_or(Ok(()), |whole| whole.claim(cost)) {
            Ok(()) => Ok(()),
            Err(full) => {
                self.taken.fetch_sub(cost.into(), Ordering::Relaxed);
                Err(full)
            }
        }
    }

    /// Gives back what was claimed.
    pub(super) fn release(&self, cost: u64) {
        self.taken.fetch_sub(cost, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.release(cost);
        }
    }
}

impl Full {
    /// What the client is told, as Go prints a status: clients look for its end.
    pub(super) fn reason(self) -> String {
        let (flag, whose) = match self.scope {
            Scope::Connection => ("max-watches-per-connection", "of this connection"),
            Scope::Member => ("max-watches", "of this member"),
        };
        format!(
            "rpc error: code = ResourceExhausted desc = etcdserver: too many watches {whose} (--{flag}={})",
            self.limit
        )
    }
}

/// What a watch counts for: its keys stay in memory as long as it does.
pub(super) fn cost(spec: &Spec) -> u32 {
    let end = match &spec.reach {
        Reach::Until(end) => end.len(),
        Reach::One | Reach::Unbounded => 0,
    };
    let further = spec.key.len().saturating_add(end) / WATCH_KEY_BYTES;
    u32::try_from(further).unwrap_or(u32::MAX).saturating_add(1)
}
