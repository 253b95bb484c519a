//! The lessor of a member: keep-alives that are answered at once, and the questions that allow it.

use crate::mistake::Mistake;
use crate::sync::{Mutex, lock};
use replica::Lessor;
use store::Lease;

/// Leases that are looked at under one hold of the lock.
const LOOK_LEASES: usize = 256;

/// A [`Lessor`] that consensus, whoever applies, and those who keep leases alive share.
#[derive(Default)]
pub struct SharedLessor(Mutex<Lessor>);

/// A lease that was renewed without a question to the other members.
pub struct RenewedAtOnce {
    /// Its time to live; none if it has expired already.
    pub ttl_seconds: Option<i64>,
    /// The others are to be asked now whether this member still leads.
    pub asks: bool,
}

impl SharedLessor {
    /// Looks at the deadlines under their lock.
    pub fn with<T>(&self, look: impl FnOnce(&mut Lessor) -> T) -> T {
        look(&mut lock(&self.0))
    }

    /// Looks at the deadlines of many leases, and calls `pause` now and then while nothing is locked: who keeps leases alive, and what ends
    /// them, does not wait for all of it.
    pub fn look_at_all<L>(&self, leases: &[L], mut look: impl FnMut(&mut Lessor, &L), mut pause: impl FnMut()) {
        for some in leases.chunks(LOOK_LEASES) {
            self.with(|lessor| some.iter().for_each(|lease| look(lessor, lease)));
            pause();
        }
    }

    /// Renews a lease where that needs neither a question to the others nor the log; `None` when it does. `granted` returns the lease if
    /// the store has it and it may be renewed so. It is called, and the time is read, under the lock: a change of leaders or leases comes
    /// before or after all of it.
    pub fn renew_at_once(
        &self,
        lease: i64,
        now_ms: impl FnOnce() -> u64,
        granted: impl FnOnce() -> Option<Lease>,
    ) -> Option<RenewedAtOnce> {
        let mut lessor = lock(&self.0);
        let now_ms = now_ms();
        if !lessor.renews_at_once(lease, now_ms) {
            return None;
        }
        let ttl_seconds = lessor.renew(&granted()?, now_ms);
        let asks = lessor.wants_confirmation(now_ms);
        if asks && Mistake::ConfirmsWhenAsked.is_planted() {
            lessor.confirm(now_ms);
        }
        Some(RenewedAtOnce { ttl_seconds, asks })
    }

    /// Renews leases that `granted` returns on the member that keeps the deadlines, 0 for any other lease; `None` on any other member.
    pub fn renew(
        &self,
        leases: &[i64],
        now_ms: impl FnOnce() -> u64,
        granted: impl Fn(i64) -> Option<Lease>,
    ) -> Option<Vec<i64>> {
        let mut lessor = lock(&self.0);
        lessor.is_primary().then(|| {
            let now_ms = now_ms();
            let mut renew = |lease: i64| granted(lease).and_then(|lease| lessor.renew(&lease, now_ms)).unwrap_or(0);
            leases.iter().map(|lease| renew(*lease)).collect()
        })
    }
}

#[cfg(all(test, not(feature = "schedules")))]
mod tests {
    use super::*;

    #[test]
    fn a_long_look_lets_others_in() {
        let lessor = SharedLessor::default();
        let leases: Vec<usize> = (0..10 * LOOK_LEASES).collect();
        let mut looked = Vec::new();
        let mut pauses = 0;
        // Who renews a lease needs the lock.
        let renew = || {
            assert!(lessor.0.try_lock().is_ok(), "the lock is held");
            pauses += 1;
        };
        lessor.look_at_all(&leases, |_, lease| looked.push(*lease), renew);
        assert_eq!((looked, pauses), (leases, 10));
    }
}
