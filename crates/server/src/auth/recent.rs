//! Tokens that a thread has just seen, and who had them.
//!
//! Whose a token is and what they may do stand behind locks, and behind counters of references that all threads change: under load
//! that costs more than the read that is asked for. A thread that has found it out knows it for a moment, for as long as no token
//! was taken away and no user or role was changed.

use super::Principal;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tokens that a thread remembers. Newer tokens replace older ones, so a hostile client only slows down the calls on
/// its own thread.
const SLOTS: usize = 64;
/// After this time a token is looked up again, which renews its lifetime.
const REMEMBERED_MS: u64 = 1_000;

/// Numbers the members whose tokens are remembered: a process may have several.
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

/// Tokens of one member that threads remember.
pub(super) struct Recent {
    number: u64,
    /// How long a token is remembered at most, in milliseconds.
    for_ms: u64,
}

impl Recent {
    /// For tokens that live `ttl_ms` after their last use.
    pub(super) fn new(ttl_ms: u64) -> Recent {
        Recent { number: NUMBERS.fetch_add(1, Ordering::Relaxed), for_ms: REMEMBERED_MS.min(ttl_ms / 4) }
    }

    /// The principal of a token, if this thread remembers it. `generation` is [`replica::Tokens::taken`] and
    /// `revision` the auth revision; the caller has read both before this call.
    pub(super) fn find(&self, token: &[u8], generation: u64, revision: u64, now_ms: u64) -> Option<Principal> {
        SEEN.with_borrow(|seen| {
            let seen = seen.get(slot(token))?.as_ref()?;
            let is_current = seen.whose == self.number && seen.generation == generation && &*seen.token == token;
            let is_young = now_ms.checked_sub(seen.from_ms).is_some_and(|age| age < self.for_ms);
            (is_current && is_young && seen.principal.revision() == Some(revision)).then(|| seen.principal.clone())
        })
    }

    /// Remembers the principal of a token, which was found under this `generation`.
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

/// The slot of a token: tokens begin with random letters.
fn slot(token: &[u8]) -> usize {
    let sum = token.iter().take(8).fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    sum % SLOTS
}
