//! Tokens that a thread has just seen, and who had them.
//!
//! Whose a token is and what they may do stand behind locks, and behind counters of references that all threads change: under load
//! that costs more than the read that is asked for. A thread that has found it out knows it for a moment, for as long as no token
//! was taken away and no user or role was changed.

use super::Principal;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tokens that a thread remembers. Others take their place: a hostile client only makes it slower for those of its thread.
const SLOTS: usize = 64;
/// A token is looked up again after this, which gives it its time anew.
const REMEMBERED_MS: u64 = 1_000;

/// Numbers those whose tokens are remembered: there may be several members in a process.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static SEEN: RefCell<[Option<Seen>; SLOTS]> = const { RefCell::new([const { None }; SLOTS]) };
}

struct Seen {
    whose: u64,
    generation: u64,
    from_ms: u64,
    token: Box<[u8]>,
    principal: Principal,
}

/// What the threads remember of one member's tokens.
pub(super) struct Recent {
    number: u64,
    /// How long, at most.
    for_ms: u64,
}

impl Recent {
    /// For tokens that live `ttl_ms` after their last use.
    pub(super) fn new(ttl_ms: u64) -> Recent {
        Recent { number: NUMBERS.fetch_add(1, Ordering::Relaxed), for_ms: REMEMBERED_MS.min(ttl_ms / 4) }
    }

    /// Whose token this is, if this thread knows. `generation` counts how often tokens were taken away, `revision` how often users and
    /// roles were changed: both were read before.
    pub(super) fn find(&self, token: &[u8], generation: u64, revision: u64, now_ms: u64) -> Option<Principal> {
        SEEN.with_borrow(|seen| {
            let seen = seen.get(slot(token))?.as_ref()?;
            let is_current = seen.whose == self.number && seen.generation == generation && &*seen.token == token;
            let is_young = now_ms.checked_sub(seen.from_ms).is_some_and(|age| age < self.for_ms);
            (is_current && is_young && seen.principal.revision() == Some(revision)).then(|| seen.principal.clone())
        })
    }

    /// Remembers what was found out while tokens were of this `generation`.
    pub(super) fn note(&self, token: &[u8], generation: u64, now_ms: u64, principal: &Principal) {
        let seen =
            Seen { whose: self.number, generation, from_ms: now_ms, token: token.into(), principal: principal.clone() };
        SEEN.with_borrow_mut(|all| {
            if let Some(place) = all.get_mut(slot(token)) {
                *place = Some(seen);
            }
        });
    }
}

/// Tokens begin with letters that were drawn by lot.
fn slot(token: &[u8]) -> usize {
    let sum = token.iter().take(8).fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    sum % SLOTS
}
