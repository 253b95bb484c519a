//! The lessor of a member: keep-alives that are answered at once, and the questions that allow it.

use crate::mistake::Mistake;
use crate::sync::{Mutex, lock};
use replica::Lessor;

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

    /// Renews a lease where that needs neither a question to the others nor the log; `None` when it does. `may_renew` is asked, and the
    /// time is looked at, under the lock: whatever changes leaders or leases comes before or after all of it.
    pub fn renew_at_once(
        &self,
        lease: i64,
        now_ms: impl FnOnce() -> u64,
        may_renew: impl FnOnce() -> bool,
    ) -> Option<RenewedAtOnce> {
        let mut lessor = lock(&self.0);
        let now_ms = now_ms();
        if !lessor.renews_at_once(lease, now_ms) || !may_renew() {
            return None;
        }
        let ttl_seconds = lessor.renew(lease, now_ms);
        let asks = lessor.wants_confirmation(now_ms);
        if asks && Mistake::ConfirmsWhenAsked.is_planted() {
            lessor.confirm(now_ms);
        }
        Some(RenewedAtOnce { ttl_seconds, asks })
    }

    /// Renews leases that `exists` knows on the member that keeps the deadlines, 0 for any other lease; `None` on any other member.
    pub fn renew(
        &self,
        leases: &[i64],
        now_ms: impl FnOnce() -> u64,
        exists: impl Fn(i64) -> bool,
    ) -> Option<Vec<i64>> {
        let mut lessor = lock(&self.0);
        lessor.is_primary().then(|| {
            let now_ms = now_ms();
            let mut renew = |lease: i64| exists(lease).then(|| lessor.renew(lease, now_ms)).flatten().unwrap_or(0);
            leases.iter().map(|lease| renew(*lease)).collect()
        })
    }
}
