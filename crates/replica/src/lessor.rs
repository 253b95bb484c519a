//! When leases expire: kept by the leader only, never in the log.
//!
//! A renewal changes one number. The queue of deadlines is only consulted when its head is due, and an entry that was renewed
//! meanwhile goes back with its new deadline; so a keep-alive costs a hash lookup however many leases there are.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use store::Response;

/// Leases that were renewed, or ended otherwise, and that one search for expired ones passes over: clients that began together, or a new
/// leader, give hundreds of thousands the same deadline, and no other request is served during a search.
const PASSED_OVER_MAX: usize = 4_096;

#[derive(Clone, Copy)]
struct Deadline {
    ttl_seconds: i64,
    expires_ms: u64,
    /// Its end is under way.
    is_ending: bool,
}

/// How a new leader takes over the leases.
#[derive(Clone, Copy, Debug)]
pub struct Takeover {
    /// Every lease lives this much longer (an election timeout), since no member counted the time while there was no
    /// leader.
    pub extension_ms: u64,
    /// Limit of leases that end within any second. Otherwise leases that were renewed together, or were due while there
    /// was no leader, would all end at once.
    pub per_second_max: usize,
}

/// Deadlines of all leases. Empty and inert on a member that does not lead.
#[derive(Default)]
pub struct Lessor {
    primary: bool,
    extension_ms: u64,
    /// When the last leadership confirmation that was answered was requested.
    confirmed_ms: Option<u64>,
    /// When a confirmation was last requested because of [`Lessor::wants_confirmation`].
    asked_ms: u64,
    deadlines: HashMap<i64, Deadline>,
    due: BinaryHeap<Reverse<(u64, i64)>>,
    /// When to ask again about leases that were named as expired, in order.
    retries: VecDeque<(u64, i64)>,
    /// Leases whose end is under way.
    ending: usize,
    /// Leases whose remaining time is in the log or on its way there, with the number of the checkpoint.
    noted: HashMap<i64, u64>,
    /// Number of checkpoints begun.
    checkpoints: u64,
}

impl Lessor {
    /// Takes over the leases: every lease lives for its remaining time and the extension, and longer if too many would
    /// end together. `leases` yields id, granted and remaining seconds (0 for "all of it").
    pub fn promote(&mut self, leases: impl Iterator<Item = (i64, i64, i64)>, takeover: Takeover, now_ms: u64) {
        self.demote();
        self.primary = true;
        self.extension_ms = takeover.extension_ms;
        for (id, ttl_seconds, remaining_seconds) in leases {
            let seconds = if remaining_seconds > 0 { remaining_seconds } else { ttl_seconds };
            self.set(id, ttl_seconds, now_ms.saturating_add(takeover.extension_ms), seconds);
        }
        self.spread(takeover.per_second_max.max(1));
    }

    /// Postpones deadlines until no second has more than `per_second_max` of them.
    fn spread(&mut self, per_second_max: usize) {
        if self.deadlines.len() <= per_second_max {
            return;
        }
        let mut ends: Vec<(u64, i64)> =
            self.deadlines.iter().map(|(id, deadline)| (deadline.expires_ms, *id)).collect();
        ends.sort_unstable();
        for at in per_second_max..ends.len() {
            let before = at.checked_sub(per_second_max).and_then(|before| ends.get(before));
            let Some(earliest_ms) = before.map(|before| before.0.saturating_add(1000)) else { continue };
            let Some((end_ms, id)) = ends.get_mut(at).filter(|end| end.0 < earliest_ms) else { continue };
            *end_ms = earliest_ms;
            if let Some(deadline) = self.deadlines.get_mut(id) {
                deadline.expires_ms = earliest_ms;
            }
        }
        self.due = ends.into_iter().map(Reverse).collect();
    }

    /// Notes that this member leads, as confirmed by a read index that was requested at `asked_ms`.
    pub fn confirm(&mut self, asked_ms: u64) {
        if self.primary {
            self.confirmed_ms = self.confirmed_ms.max(Some(asked_ms));
        }
    }

    /// Whether leases may be renewed without asking other members.
    ///
    /// Another leader can only have been elected after the last confirmation was requested. It gives every lease its
    /// whole time and an extension from then on. So until an extension has passed, no promise made here is longer than
    /// the time that the other leader grants. Half of the extension is left for the answer's way to the client.
    pub fn is_confirmed(&self, now_ms: u64) -> bool {
        self.confirmed_ms.is_some_and(|asked_ms| now_ms.saturating_sub(asked_ms) <= self.extension_ms / 2)
    }

    /// Whether to request a confirmation, so that there is a new one before the last is too old. Returns true once for
    /// each.
    pub fn wants_confirmation(&mut self, now_ms: u64) -> bool {
        let last_ms = self.asked_ms.max(self.confirmed_ms.unwrap_or(0));
        let wants = self.primary && now_ms.saturating_sub(last_ms) >= self.extension_ms / 4;
        if wants {
            self.asked_ms = now_ms;
        }
        wants
    }

    /// Forgets all deadlines.
    pub fn demote(&mut self) {
        *self = Lessor::default();
    }

    /// Whether this member keeps the deadlines.
    pub fn is_primary(&self) -> bool {
        self.primary
    }

    /// Notes that a lease was granted.
    pub fn grant(&mut self, id: i64, ttl_seconds: i64, now_ms: u64) {
        if self.primary {
            self.set(id, ttl_seconds, ended(now_ms), ttl_seconds);
        }
    }

    /// Notes that a lease was revoked.
    pub fn revoke(&mut self, id: i64) {
        let removed = self.deadlines.remove(&id);
        self.count_ended(removed);
        self.noted.remove(&id);
    }

    fn count_ended(&mut self, deadline: Option<Deadline>) {
        if deadline.is_some_and(|deadline| deadline.is_ending) {
            self.ending = self.ending.saturating_sub(1);
        }
    }

    /// Notes an applied entry, which may have granted or revoked a lease.
    pub fn applied(&mut self, response: &Response, now_ms: u64) {
        match response {
            Response::LeaseGrant(grant) => self.grant(grant.id, grant.ttl, now_ms),
            Response::LeaseRevoke(lease, _) => self.revoke(*lease),
            _ => {}
        }
    }

    /// Whether this lease may be renewed at once: leadership is confirmed, and no checkpoint of its time is in the log.
    pub fn renews_at_once(&self, id: i64, now_ms: u64) -> bool {
        self.is_confirmed(now_ms) && self.noted(id).is_none()
    }

    /// Leases that were granted for more than `longer_than_seconds`.
    pub fn long_leases(&self, longer_than_seconds: i64) -> Vec<i64> {
        let long = self.deadlines.iter().filter(|(_, deadline)| deadline.ttl_seconds > longer_than_seconds);
        long.map(|(id, _)| *id).collect()
    }

    /// The seconds left of those leases that have not expired, for a checkpoint. It must be proposed before other
    /// threads use these leases: from now on a renewal finds its lease in [`Lessor::noted`], and revokes the checkpoint
    /// by a later entry of the log.
    pub fn note(&mut self, leases: &[i64], now_ms: u64) -> Vec<(i64, i64)> {
        self.checkpoints = self.checkpoints.saturating_add(1);
        let left = leases.iter().filter_map(|id| Some((*id, self.remaining_seconds(*id, now_ms)?)));
        let left: Vec<(i64, i64)> = left.filter(|(_, seconds)| *seconds > 0).collect();
        self.noted.extend(left.iter().map(|(id, _)| (*id, self.checkpoints)));
        left
    }

    /// The number of the last checkpoint with this lease that was begun and has not been revoked.
    pub fn noted(&self, id: i64) -> Option<u64> {
        // Most members never write a checkpoint.
        if self.noted.is_empty() { None } else { self.noted.get(&id).copied() }
    }

    /// Notes that a checkpoint of a lease was revoked in the log.
    pub fn forgotten(&mut self, id: i64, checkpoint: u64) {
        if self.noted.get(&id) == Some(&checkpoint) {
            self.noted.remove(&id);
        }
    }

    /// Restarts the time to live; returns it in seconds, or `None` for a lease that does not exist or has expired.
    pub fn renew(&mut self, id: i64, now_ms: u64) -> Option<i64> {
        let deadline = self.deadlines.get_mut(&id).filter(|deadline| deadline.expires_ms > now_ms)?;
        deadline.expires_ms = after(ended(now_ms), deadline.ttl_seconds);
        Some(deadline.ttl_seconds)
    }

    /// Whole seconds until the lease expires, rounded down.
    pub fn remaining_seconds(&self, id: i64, now_ms: u64) -> Option<i64> {
        let deadline = self.deadlines.get(&id)?;
        Some((deadline.expires_ms.saturating_sub(now_ms) / 1000) as i64)
    }

    /// Leases whose time is over, as many as may end at once: `ending_max`, with those named before that are still there. Each is
    /// named again after `retry_ms`, unless it was revoked by then.
    pub fn expired(&mut self, now_ms: u64, ending_max: usize, retry_ms: u64) -> Vec<i64> {
        let again_ms = now_ms.saturating_add(retry_ms.max(1));
        let mut expired = Vec::new();
        while let Some((_, id)) = self.retries.pop_front_if(|(due_ms, _)| *due_ms <= now_ms) {
            let Some(deadline) = self.deadlines.get_mut(&id) else { continue };
            if deadline.is_ending && deadline.expires_ms <= now_ms {
                expired.push(id);
                continue;
            }
            // It has not ended, and others were let go first; or it was renewed in the moment before it was named.
            if std::mem::take(&mut deadline.is_ending) {
                self.ending = self.ending.saturating_sub(1);
            }
            self.due.push(Reverse((deadline.expires_ms, id)));
        }
        let mut passed_over = 0;
        while let Some(&Reverse((due_ms, id))) = self.due.peek() {
            if due_ms > now_ms || self.ending >= ending_max || passed_over >= PASSED_OVER_MAX {
                break;
            }
            self.due.pop();
            passed_over = passed_over.saturating_add(1);
            match self.deadlines.get_mut(&id) {
                Some(deadline) if deadline.expires_ms > now_ms => self.due.push(Reverse((deadline.expires_ms, id))),
                Some(deadline) if !deadline.is_ending => {
                    deadline.is_ending = true;
                    self.ending = self.ending.saturating_add(1);
                    expired.push(id);
                    passed_over = passed_over.saturating_sub(1);
                }
                Some(_) | None => {}
            }
        }
        self.retries.extend(expired.iter().map(|id| (again_ms, *id)));
        expired
    }

    /// A lease that was named as expired does not end now: another one may.
    pub fn stays(&mut self, id: i64) {
        if let Some(deadline) = self.deadlines.get_mut(&id)
            && std::mem::take(&mut deadline.is_ending)
        {
            self.ending = self.ending.saturating_sub(1);
        }
    }

    /// Whether a lease may be over that [`Lessor::expired`] has not named: for want of room, or because it passed over enough others.
    pub fn is_late(&self, now_ms: u64) -> bool {
        self.next_due_ms().is_some_and(|due_ms| due_ms <= now_ms)
    }

    /// Time of the next deadline that may be over, if there is one.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((due_ms, _))| *due_ms)
    }

    fn set(&mut self, id: i64, ttl_seconds: i64, from_ms: u64, seconds: i64) {
        let expires_ms = after(from_ms, seconds);
        let before = self.deadlines.insert(id, Deadline { ttl_seconds, expires_ms, is_ending: false });
        self.count_ended(before);
        self.due.push(Reverse((expires_ms, id)));
        // The entries of revoked leases stay in the queue; it is rebuilt before they outnumber the live ones.
        if self.due.len() > self.deadlines.len().saturating_mul(2).saturating_add(1024) {
            let waiting = self.deadlines.iter().filter(|(_, deadline)| !deadline.is_ending);
            self.due = waiting.map(|(id, deadline)| Reverse((deadline.expires_ms, *id))).collect();
        }
    }
}

/// The end of a millisecond that has begun: what is promised in it lasts from there, so that no promise is cut short by a part of it.
fn ended(now_ms: u64) -> u64 {
    now_ms.saturating_add(1)
}

fn after(now_ms: u64, seconds: i64) -> u64 {
    now_ms.saturating_add(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKEOVER: Takeover = Takeover { extension_ms: 1_000, per_second_max: 10 };

    fn primary() -> Lessor {
        let mut lessor = Lessor::default();
        lessor.promote(std::iter::empty(), TAKEOVER, 0);
        lessor
    }

    #[test]
    fn renewed_leases_live_on() {
        let mut lessor = primary();
        lessor.grant(7, 2, 0);
        assert_eq!(lessor.renew(7, 1_500), Some(2));
        assert_eq!(lessor.expired(2_500, 10, 3_000), [0i64; 0]);
        assert_eq!(
            lessor.expired(3_500, 10, 3_000),
            [0i64; 0],
            "it may have been renewed at the end of its millisecond"
        );
        assert_eq!(lessor.expired(3_501, 10, 3_000), [7]);
        assert_eq!(lessor.expired(3_600, 10, 3_000), [0i64; 0], "asked again only after the retry time");
        assert_eq!(lessor.expired(6_500, 10, 3_000), [0i64; 0]);
        assert_eq!(lessor.expired(6_501, 10, 3_000), [7]);
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
    fn only_so_many_end_at_once() {
        let mut lessor = primary();
        (0..10).for_each(|id| lessor.grant(id, 1, 0));
        assert_eq!(lessor.expired(1_000, 4, 3_000), [0i64; 0]);
        let first = lessor.expired(1_001, 4, 3_000);
        assert_eq!((first.len(), lessor.expired(1_002, 4, 3_000).len(), lessor.is_late(1_002)), (4, 0, true));
        // One is gone, one cannot end now: two others may.
        lessor.revoke(first[0]);
        lessor.stays(first[1]);
        lessor.stays(first[1]);
        let second = lessor.expired(1_010, 4, 3_000);
        assert_eq!(second.len(), 2);
        assert!(!second.contains(&first[1]), "the others come first");
        // Those whose end was lost are asked again although none of the others may begin.
        let mut again = lessor.expired(4_500, 4, 3_000);
        again.sort_unstable();
        let mut named = [&first[2..], &second[..]].concat();
        named.sort_unstable();
        assert_eq!(again, named);
        // An ID that is granted anew is another lease.
        named.iter().for_each(|id| lessor.grant(*id, 1, 4_500));
        let third = lessor.expired(4_600, 4, 3_000);
        assert!(third.len() == 4 && third.iter().all(|id| !named.contains(id)) && lessor.is_late(4_600));
        (0..10).for_each(|id| lessor.revoke(id));
        assert_eq!((lessor.ending, lessor.expired(60_000, 4, 3_000).len(), lessor.is_late(60_000)), (0, 0, false));
        assert!(lessor.due.is_empty() && lessor.retries.is_empty());
    }

    #[test]
    fn one_search_passes_over_so_many_renewed_leases() {
        let mut lessor = primary();
        let count = 2 * PASSED_OVER_MAX as i64 + 10;
        (0..count).for_each(|id| lessor.grant(id, 1, 0));
        (1..count).for_each(|id| assert_eq!(lessor.renew(id, 500), Some(1)));
        // The one that was not renewed is among the first, and leaves room for another.
        let overdue = |lessor: &Lessor| lessor.due.iter().filter(|due| due.0.0 <= 1_001).count();
        assert_eq!((lessor.expired(1_001, 10, 3_000), overdue(&lessor)), (vec![0], PASSED_OVER_MAX + 9));
        assert!(lessor.is_late(1_001), "it goes on soon");
        assert_eq!((lessor.expired(1_002, 10, 3_000), overdue(&lessor)), (vec![], 9));
        assert_eq!((lessor.expired(1_003, 10, 3_000), overdue(&lessor)), (vec![], 0));
        assert!(!lessor.is_late(1_003));
        // Of those that do end none is passed over.
        assert_eq!(lessor.expired(1_501, usize::MAX, 3_000).len() as i64, count - 1);
    }

    #[test]
    fn a_new_leader_extends() {
        let mut lessor = Lessor::default();
        lessor.grant(1, 5, 0);
        assert_eq!(lessor.remaining_seconds(1, 0), None, "a follower keeps no deadlines");
        lessor.promote([(1, 60, 10), (2, i64::MAX, 0)].into_iter(), TAKEOVER, 5_000);
        assert_eq!(lessor.remaining_seconds(1, 5_000), Some(11));
        let mut long = lessor.long_leases(59);
        long.sort_unstable();
        assert_eq!((long.clone(), lessor.long_leases(60).len()), (vec![1, 2], 1));
        assert_eq!(lessor.note(&long, 6_000)[0], (1, 10));
        assert_eq!(lessor.note(&[1, 3], 16_000), [], "one is expired, one is not there");
        assert_eq!(lessor.expired(15_999, 10, 1), [0i64; 0]);
        assert_eq!(lessor.expired(16_000, 10, 1), [1]);
    }

    #[test]
    fn a_renewal_behind_a_checkpoint_takes_it_back() {
        let mut lessor = primary();
        lessor.grant(7, 600, 0);
        assert_eq!(lessor.noted(7), None);
        assert_eq!(lessor.note(&[7], 100_000), [(7, 500)]);
        // The checkpoint is not in the log yet, but a renewal must already know of it.
        assert_eq!(lessor.renew(7, 101_000), Some(600));
        let first = lessor.noted(7).expect("it is on its way");
        // A later checkpoint has the renewed time, but must be revoked by the next renewal.
        assert_eq!(lessor.note(&[7], 102_000), [(7, 599)]);
        lessor.forgotten(7, first);
        let second = lessor.noted(7).expect("the second checkpoint");
        lessor.forgotten(7, second);
        assert_eq!(lessor.noted(7), None);
        lessor.note(&[7], 102_000);
        lessor.revoke(7);
        assert_eq!(lessor.noted(7), None);
    }

    #[test]
    fn leases_that_would_end_together_are_spread() {
        let mut lessor = Lessor::default();
        let together = (0..35).map(|id| (id, 5, 0));
        let later = [(100, 60, 0), (101, 7, 0)];
        lessor.promote(together.chain(later), TAKEOVER, 0);
        let mut ended = Vec::new();
        for now_ms in (0..70_000).step_by(100) {
            let expired = lessor.expired(now_ms, usize::MAX, 100_000);
            ended.extend(expired.into_iter().map(|id| (now_ms, id)));
        }
        assert_eq!(ended.len(), 37);
        assert_eq!(ended.iter().filter(|(now_ms, _)| *now_ms == 6_000).count(), 10);
        for window in ended.windows(11) {
            assert!(window[10].0 >= window[0].0 + 1_000, "{window:?}");
        }
        let end_of = |lease: i64| ended.iter().find(|(_, id)| *id == lease).map(|(now_ms, _)| *now_ms);
        assert_eq!(end_of(100), Some(61_000), "nothing is in its way");
        assert!(end_of(101) >= Some(8_000));
        let mut few = Lessor::default();
        few.promote((0..10).map(|id| (id, 5, 0)), TAKEOVER, 0);
        assert_eq!(few.expired(6_000, usize::MAX, 1).len(), 10, "as many as may end in a second");
    }

    #[test]
    fn a_confirmation_lasts_for_half_of_the_extension() {
        let mut lessor = Lessor::default();
        lessor.confirm(10);
        assert!(!lessor.is_confirmed(10), "it does not lead");
        lessor.promote(std::iter::empty(), TAKEOVER, 1_000);
        assert!(!lessor.is_confirmed(1_000), "nobody was asked");
        lessor.confirm(1_100);
        lessor.confirm(1_050);
        assert!(lessor.is_confirmed(1_600) && !lessor.is_confirmed(1_601));
        assert!(!lessor.wants_confirmation(1_349));
        assert!(lessor.wants_confirmation(1_350) && !lessor.wants_confirmation(1_351), "once");
        assert!(lessor.wants_confirmation(1_600), "the answer does not come");
        lessor.demote();
        assert!(!lessor.is_confirmed(1_200));
    }
}
