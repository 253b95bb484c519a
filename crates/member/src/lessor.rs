//! When leases expire: kept by the leader only, never in the log.
//!
//! A renewal changes one number. The queue of deadlines is only consulted when its head is due, and an entry that was renewed
//! meanwhile goes back with its new deadline; so a keep-alive costs a hash lookup however many leases there are.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

#[derive(Clone, Copy)]
struct Deadline {
    ttl_seconds: i64,
    expires_ms: u64,
}

/// Deadlines of all leases. Empty and inert on a member that does not lead.
#[derive(Default)]
pub struct Lessor {
    primary: bool,
    deadlines: HashMap<i64, Deadline>,
    due: BinaryHeap<Reverse<(u64, i64)>>,
}

impl Lessor {
    /// Takes over: every lease lives for its remaining time and `extension_ms` (an election timeout) more, since nobody counted
    /// while there was no leader. `leases` yields id, granted and remaining seconds (0 for "all of it").
    pub fn promote(&mut self, leases: impl Iterator<Item = (i64, i64, i64)>, extension_ms: u64, now_ms: u64) {
        self.demote();
        self.primary = true;
        for (id, ttl_seconds, remaining_seconds) in leases {
            let seconds = if remaining_seconds > 0 { remaining_seconds } else { ttl_seconds };
            self.set(id, ttl_seconds, now_ms.saturating_add(extension_ms), seconds);
        }
    }

    /// Forgets all deadlines.
    pub fn demote(&mut self) {
        *self = Lessor::default();
    }

    /// Whether deadlines are kept here.
    pub fn is_primary(&self) -> bool {
        self.primary
    }

    /// A lease was granted.
    pub fn grant(&mut self, id: i64, ttl_seconds: i64, now_ms: u64) {
        if self.primary {
            self.set(id, ttl_seconds, now_ms, ttl_seconds);
        }
    }

    /// A lease was revoked.
    pub fn revoke(&mut self, id: i64) {
        self.deadlines.remove(&id);
    }

    /// Seconds left of each lease that was granted for more than `longer_than_seconds` and is not expired.
    pub fn time_left(&self, now_ms: u64, longer_than_seconds: i64) -> Vec<(i64, i64)> {
        let long = self.deadlines.iter().filter(|(_, deadline)| deadline.ttl_seconds > longer_than_seconds);
        let left = long.map(|(id, deadline)| (*id, (deadline.expires_ms.saturating_sub(now_ms) / 1000) as i64));
        left.filter(|(_, seconds)| *seconds > 0).collect()
    }

    /// Starts the time to live anew; answers it in seconds, or `None` for a lease that is not there or already expired.
    pub fn renew(&mut self, id: i64, now_ms: u64) -> Option<i64> {
        let deadline = self.deadlines.get_mut(&id).filter(|deadline| deadline.expires_ms > now_ms)?;
        deadline.expires_ms = after(now_ms, deadline.ttl_seconds);
        Some(deadline.ttl_seconds)
    }

    /// Whole seconds until the lease expires, rounded down.
    pub fn remaining_seconds(&self, id: i64, now_ms: u64) -> Option<i64> {
        let deadline = self.deadlines.get(&id)?;
        Some((deadline.expires_ms.saturating_sub(now_ms) / 1000) as i64)
    }

    /// Leases whose time is over, at most `max`. Each is named again after `retry_ms`, unless it was revoked by then.
    pub fn expired(&mut self, now_ms: u64, max: usize, retry_ms: u64) -> Vec<i64> {
        let mut expired = Vec::new();
        while let Some(&Reverse((due_ms, id))) = self.due.peek() {
            if due_ms > now_ms || expired.len() >= max {
                break;
            }
            self.due.pop();
            match self.deadlines.get(&id) {
                Some(deadline) if deadline.expires_ms > now_ms => self.due.push(Reverse((deadline.expires_ms, id))),
                Some(_) => {
                    expired.push(id);
                    self.due.push(Reverse((now_ms.saturating_add(retry_ms.max(1)), id)));
                }
                None => {}
            }
        }
        expired
    }

    /// Time of the next deadline that may be over, if there is one.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((due_ms, _))| *due_ms)
    }

    fn set(&mut self, id: i64, ttl_seconds: i64, from_ms: u64, seconds: i64) {
        let expires_ms = after(from_ms, seconds);
        self.deadlines.insert(id, Deadline { ttl_seconds, expires_ms });
        self.due.push(Reverse((expires_ms, id)));
        // Revoked leases leave their place in the queue behind; it is rebuilt before those outnumber the live ones.
        if self.due.len() > 2 * self.deadlines.len() + 1024 {
            self.due = self.deadlines.iter().map(|(id, deadline)| Reverse((deadline.expires_ms, *id))).collect();
        }
    }
}

fn after(now_ms: u64, seconds: i64) -> u64 {
    now_ms.saturating_add(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary() -> Lessor {
        let mut lessor = Lessor::default();
        lessor.promote(std::iter::empty(), 0, 0);
        lessor
    }

    #[test]
    fn renewed_leases_live_on() {
        let mut lessor = primary();
        lessor.grant(7, 2, 0);
        assert_eq!(lessor.renew(7, 1_500), Some(2));
        assert_eq!(lessor.expired(2_500, 10, 3_000), [0i64; 0]);
        assert_eq!(lessor.expired(3_500, 10, 3_000), [7]);
        assert_eq!(lessor.expired(3_600, 10, 3_000), [0i64; 0], "asked again only after the retry time");
        assert_eq!(lessor.expired(6_500, 10, 3_000), [7]);
        assert_eq!(lessor.renew(7, 6_500), None);
        lessor.revoke(7);
        assert_eq!(lessor.expired(60_000, 10, 3_000), [0i64; 0]);
    }

    #[test]
    fn revoked_leases_leave_nothing_behind() {
        let mut lessor = primary();
        for id in 0..100_000 {
            lessor.grant(id, i64::MAX, 0);
            lessor.revoke(id);
        }
        assert!(lessor.due.len() < 2_000);
    }

    #[test]
    fn a_new_leader_extends() {
        let mut lessor = Lessor::default();
        lessor.grant(1, 5, 0);
        assert_eq!(lessor.remaining_seconds(1, 0), None, "a follower keeps no deadlines");
        lessor.promote([(1, 60, 10), (2, i64::MAX, 0)].into_iter(), 1_000, 5_000);
        assert_eq!(lessor.remaining_seconds(1, 5_000), Some(11));
        let mut left = lessor.time_left(6_000, 59);
        left.sort_unstable();
        assert_eq!(left[0], (1, 10));
        assert_eq!(lessor.time_left(6_000, 60).len(), 1);
        assert_eq!(lessor.expired(15_999, 10, 1), [0i64; 0]);
        assert_eq!(lessor.expired(16_000, 10, 1), [1]);
    }
}
