//! When leases expire: kept by the leader only, never in the log.
//!
//! A new leader takes the leases over in pieces, because there may be millions of them and no other work of consensus is done during a
//! piece. It begins when its first entry is applied: until then its store may lack grants, revocations and checkpoints that were committed
//! before. A lease that is renewed before its turn comes is taken over by that; none expires before its turn.
//!
//! A renewal changes one number. The queue of deadlines is only consulted when its head is due, and an entry that was renewed
//! meanwhile goes back with its new deadline; so a keep-alive costs a lookup however many leases there are. All tables are trees: one that
//! moves its millions when it grows would do so while requests wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{Lease, Response};

/// Leases that were renewed and that one search for expired ones passes over: clients that began together, or a new
/// leader, give hundreds of thousands the same deadline, and no other request is served during a search.
const PASSED_OVER_MAX: usize = 4_096;

#[derive(Clone, Copy)]
struct Deadline {
    ttl_seconds: i64,
    expires_ms: u64,
    /// Where it is in the queue of deadlines, if it is there: never later than it expires; earlier if it was renewed since.
    queued_ms: Option<u64>,
    /// Its end is under way.
    is_ending: bool,
    /// The lease was taken over and not renewed since, and [`Spread`] has not said yet when it may end.
    is_inherited: bool,
}

/// How a new leader takes over the leases.
#[derive(Clone, Copy, Debug)]
pub struct Takeover {
    /// Every lease lives this much longer (an election timeout), since no member counted the time while there was no
    /// leader.
    pub extension_ms: u64,
    /// Limit of leases that were taken over and end within any second. Otherwise leases that were renewed together, or
    /// were due while there was no leader, would all end at once.
    pub per_second_max: usize,
    /// Leases in a piece.
    pub piece_max: usize,
}

/// Lets so many of the leases that were taken over end in a second, and postpones the others to the next second that has
/// room. Leases are taken over as of one moment and live for whole seconds, so all of them end at the beginning of a second.
#[derive(Clone, Copy, Default)]
struct Spread {
    per_second_max: usize,
    /// The beginning of the first second.
    origin_ms: u64,
    /// The last second in which any may end.
    second: u64,
    /// How many may end in that second.
    ends: usize,
}

impl Spread {
    /// When the next of the leases that are due may end.
    fn next_ms(&mut self, now_ms: u64) -> u64 {
        let current = now_ms.saturating_sub(self.origin_ms) / 1000;
        if current > self.second {
            (self.second, self.ends) = (current, 0);
        }
        if self.ends >= self.per_second_max {
            (self.second, self.ends) = (self.second.saturating_add(1), 0);
        }
        self.ends = self.ends.saturating_add(1);
        self.origin_ms.saturating_add(self.second.saturating_mul(1000))
    }
}

/// How far a takeover is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    /// All leases are taken over, or this member does not lead.
    #[default]
    Done,
    /// The first entry of the term is not applied yet.
    Waits,
    /// Leases with this id and higher ones are not taken over yet.
    From(i64),
}

/// Deadlines of all leases. Empty and inert on a member that does not lead.
#[derive(Default)]
pub struct Lessor {
    primary: bool,
    extension_ms: u64,
    takeover: Progress,
    /// Leases that are taken over in one piece.
    piece_max: usize,
    spread: Spread,
    /// When the last leadership confirmation that was answered was requested.
    confirmed_ms: Option<u64>,
    /// When a confirmation was last requested because of [`Lessor::wants_confirmation`].
    asked_ms: u64,
    deadlines: BTreeMap<i64, Deadline>,
    /// Leases by the time when they are to be looked at; those whose end is under way are in `retries`.
    due: BTreeSet<(u64, i64)>,
    /// When to ask again about leases that were named as expired, in order.
    retries: VecDeque<(u64, i64)>,
    /// Leases whose end is under way.
    ending: usize,
    /// Leases whose remaining time is in the log or on its way there, with the number of the checkpoint.
    noted: BTreeMap<i64, u64>,
    /// Number of checkpoints begun.
    checkpoints: u64,
}

impl Lessor {
    /// Begins to keep the deadlines. [`Lessor::take_over`] is to be called from when the first entry of the term is applied.
    pub fn promote(&mut self, takeover: Takeover) {
        self.demote();
        self.primary = true;
        self.extension_ms = takeover.extension_ms;
        self.takeover = Progress::Waits;
        self.piece_max = takeover.piece_max.max(1);
        self.spread.per_second_max = takeover.per_second_max.max(1);
    }

    /// Takes over a piece of the leases, and tells whether there are more: every lease lives for its remaining time and the
    /// extension from the first piece on, and longer if too many end together. `list` lists some of the leases, from an id on
    /// and up to a number, in the order of their ids.
    pub fn take_over(&mut self, list: impl FnOnce(i64, usize) -> Vec<Lease>, now_ms: u64) -> bool {
        let from = match self.takeover {
            Progress::Done => return false,
            Progress::Waits => {
                self.spread.origin_ms = now_ms.saturating_add(self.extension_ms);
                i64::MIN
            }
            Progress::From(from) => from,
        };
        let leases = list(from, self.piece_max);
        let next = leases.last().filter(|_| leases.len() >= self.piece_max).and_then(|last| last.id.checked_add(1));
        self.takeover = next.map_or(Progress::Done, Progress::From);
        for Lease { id, ttl, remaining_ttl } in leases {
            // Leases that were granted or renewed in the meantime have their deadlines.
            if !self.deadlines.contains_key(&id) {
                let seconds = if remaining_ttl > 0 { remaining_ttl } else { ttl };
                let expires_ms = after(self.spread.origin_ms, seconds);
                self.set(id, ttl, expires_ms, true);
            }
        }
        next.is_some()
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

    /// How many deadlines this member keeps.
    pub fn count(&self) -> usize {
        self.deadlines.len()
    }

    /// Notes that a lease was granted.
    pub fn grant(&mut self, id: i64, ttl_seconds: i64, now_ms: u64) {
        // Before the takeover begins it may be a grant of another leader, which has renewed the lease since.
        if !self.primary || self.takeover == Progress::Waits {
            return;
        }
        // So is one that was taken over before it is noted: it keeps the extension.
        if !self.deadlines.get(&id).is_some_and(|deadline| deadline.is_inherited) {
            self.begin(id, ttl_seconds, now_ms);
        }
    }

    fn begin(&mut self, id: i64, ttl_seconds: i64, now_ms: u64) {
        let expires_ms = after(ended(now_ms), ttl_seconds);
        self.set(id, ttl_seconds, expires_ms, false);
    }

    /// Notes that a lease was revoked.
    pub fn revoke(&mut self, id: i64) {
        let removed = self.deadlines.remove(&id);
        self.forget(id, removed);
        self.noted.remove(&id);
    }

    /// Forgets what else there is of a lease whose deadline was taken out.
    fn forget(&mut self, id: i64, deadline: Option<Deadline>) {
        let Some(deadline) = deadline else { return };
        if deadline.is_ending {
            self.ending = self.ending.saturating_sub(1);
        }
        if let Some(queued_ms) = deadline.queued_ms {
            self.due.remove(&(queued_ms, id));
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

    /// Restarts the time to live of a lease that the store has; returns it in seconds, or `None` if it has expired.
    pub fn renew(&mut self, lease: &Lease, now_ms: u64) -> Option<i64> {
        let (origin_ms, begins) = (self.spread.origin_ms, self.takeover == Progress::Waits);
        let Some(deadline) = self.deadlines.get_mut(&lease.id) else {
            let is_next = self.primary && self.takeover != Progress::Done;
            return is_next.then(|| {
                self.begin(lease.id, lease.ttl, now_ms.saturating_add(self.extension_ms));
                lease.ttl
            });
        };
        if deadline.expires_ms <= now_ms && !deadline.is_inherited {
            return None;
        }
        // Within the extension a former leader that does not know yet may have promised another client more. Nobody was promised the end to
        // which a lease was postponed.
        let most_ms = after(origin_ms, deadline.ttl_seconds);
        let promised_ms = if begins { deadline.expires_ms } else { deadline.expires_ms.min(most_ms) };
        deadline.expires_ms = promised_ms.max(after(ended(now_ms), deadline.ttl_seconds));
        deadline.is_inherited = false;
        // It was postponed to later than that.
        if let Some(queued_ms) = deadline.queued_ms.filter(|queued_ms| *queued_ms > deadline.expires_ms) {
            self.due.remove(&(queued_ms, lease.id));
            deadline.queued_ms = None;
            deadline.queue(lease.id, &mut self.due);
        }
        Some(deadline.ttl_seconds)
    }

    /// Whole seconds until a lease that the store has expires, rounded down; as it will be taken over if it is not yet.
    pub fn seconds_left(&self, lease: &Lease, now_ms: u64) -> i64 {
        let granted = if lease.remaining_ttl > 0 { lease.remaining_ttl } else { lease.ttl };
        self.remaining_seconds(lease.id, now_ms).unwrap_or(granted)
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
            deadline.queue(id, &mut self.due);
        }
        let mut passed_over = 0;
        while let Some(&(due_ms, id)) = self.due.first() {
            if due_ms > now_ms || self.ending >= ending_max || passed_over >= PASSED_OVER_MAX {
                break;
            }
            self.due.pop_first();
            let Some(deadline) = self.deadlines.get_mut(&id) else { continue };
            deadline.queued_ms = None;
            if deadline.expires_ms <= now_ms && std::mem::take(&mut deadline.is_inherited) {
                deadline.expires_ms = self.spread.next_ms(now_ms);
            }
            if deadline.expires_ms > now_ms {
                deadline.queue(id, &mut self.due);
                passed_over = passed_over.saturating_add(1);
            } else if !deadline.is_ending {
                deadline.is_ending = true;
                self.ending = self.ending.saturating_add(1);
                expired.push(id);
            }
        }
        self.retries.extend(expired.iter().map(|id| (again_ms, *id)));
        expired
    }

    /// Leases that were named as expired and have not ended.
    pub fn ending(&self) -> usize {
        self.ending
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
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    fn set(&mut self, id: i64, ttl_seconds: i64, expires_ms: u64, is_inherited: bool) {
        let queued_ms = Some(expires_ms);
        let deadline = Deadline { ttl_seconds, expires_ms, queued_ms, is_ending: false, is_inherited };
        let before = self.deadlines.insert(id, deadline);
        self.forget(id, before);
        self.due.insert((expires_ms, id));
    }
}

impl Deadline {
    /// Puts the lease into the queue of deadlines, unless it is there.
    fn queue(&mut self, id: i64, due: &mut BTreeSet<(u64, i64)>) {
        if self.queued_ms.is_none() {
            self.queued_ms = Some(self.expires_ms);
            due.insert((self.expires_ms, id));
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

    const TAKEOVER: Takeover = Takeover { extension_ms: 1_000, per_second_max: 10, piece_max: 1_000 };

    fn lease(id: i64, ttl: i64) -> Lease {
        Lease { id, ttl, remaining_ttl: 0 }
    }

    /// The store's answer to a question of [`Lessor::take_over`].
    fn list(leases: &[Lease], from: i64, max: usize) -> Vec<Lease> {
        let first = leases.partition_point(|lease| lease.id < from);
        leases[first..].iter().take(max).copied().collect()
    }

    /// A lessor that has taken these leases over.
    fn taken_over(leases: &[Lease], now_ms: u64) -> Lessor {
        let mut lessor = Lessor::default();
        lessor.promote(TAKEOVER);
        while lessor.take_over(|from, max| list(leases, from, max), now_ms) {}
        lessor
    }

    fn primary() -> Lessor {
        taken_over(&[], 0)
    }

    #[test]
    fn renewed_leases_live_on() {
        let mut lessor = primary();
        lessor.grant(7, 2, 0);
        assert_eq!(lessor.renew(&lease(7, 2), 1_500), Some(2));
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
        assert_eq!(lessor.renew(&lease(7, 2), 6_500), None);
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
        assert!(lessor.due.is_empty());
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
        (1..count).for_each(|id| assert_eq!(lessor.renew(&lease(id, 1), 500), Some(1)));
        // The one that was not renewed is among the first, and leaves room for another.
        let overdue = |lessor: &Lessor| lessor.due.iter().filter(|(due_ms, _)| *due_ms <= 1_001).count();
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
        let mut lessor = taken_over(&[Lease { remaining_ttl: 10, ..lease(1, 60) }, lease(2, i64::MAX)], 5_000);
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
        assert_eq!(lessor.renew(&lease(7, 600), 101_000), Some(600));
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
        let together = (0..35).map(|id| lease(id, 5));
        let later = [lease(100, 60), lease(101, 7)];
        let mut lessor = taken_over(&together.chain(later).collect::<Vec<_>>(), 0);
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
        let mut few = taken_over(&(0..10).map(|id| lease(id, 5)).collect::<Vec<_>>(), 0);
        assert_eq!(few.expired(6_000, usize::MAX, 1).len(), 10, "as many as may end in a second");
    }

    #[test]
    fn a_renewal_takes_no_time_away() {
        let mut lessor = Lessor::default();
        lessor.promote(TAKEOVER);
        let leases = [lease(1, 5), lease(2, 5)];
        assert_eq!(lessor.renew(&leases[0], 100), Some(5));
        lessor.take_over(|from, max| list(&leases, from, max), 200);
        assert_eq!(lessor.renew(&leases[0], 250), Some(5));
        assert_eq!(lessor.renew(&leases[1], 250), Some(5));
        // The former leader could renew them without a question for half of the extension.
        assert_eq!(lessor.remaining_seconds(2, 1_300), Some(4), "a checkpoint says so");
        assert_eq!(lessor.expired(5_750, 10, 1), [0i64; 0]);
        assert_eq!((lessor.expired(6_101, 10, 10_000), lessor.expired(6_200, 10, 10_000)), (vec![1], vec![2]));
    }

    #[test]
    fn postponed_leases_can_be_renewed() {
        let mut lessor = taken_over(&(0..25).map(|id| lease(id, 5)).collect::<Vec<_>>(), 0);
        assert_eq!(lessor.expired(6_050, 4, 100_000), [0, 1, 2, 3], "others wait for room");
        assert_eq!(lessor.renew(&lease(3, 5), 6_060), None);
        assert_eq!(lessor.renew(&lease(4, 5), 6_060), Some(5), "it may be postponed");
        assert_eq!(lessor.expired(6_100, 100, 100_000).len(), 6);
        assert_eq!((lessor.remaining_seconds(24, 6_100), lessor.is_late(6_100)), (Some(1), false));
        assert_eq!(lessor.renew(&lease(24, 5), 6_100), Some(5));
        assert_eq!(lessor.expired(7_000, 100, 100_000).len(), 10);
        // The leader was stopped for a minute: still no more than so many end within a second.
        lessor.promote(TAKEOVER);
        let leases: Vec<Lease> = (0..60).map(|id| lease(id, 1 + id)).collect();
        assert!(!lessor.take_over(|from, max| list(&leases, from, max), 10_000));
        assert_eq!(lessor.expired(71_500, 100, 100_000).len(), 10);
        assert_eq!(lessor.expired(71_999, 100, 100_000).len(), 0);
        assert_eq!(lessor.expired(72_000, 100, 100_000).len(), 10);
    }

    #[test]
    fn a_renewal_ends_a_postponement() {
        let leases: Vec<Lease> = (0..1_000).map(|id| lease(id, 5)).collect();
        let mut lessor = taken_over(&leases, 0);
        assert_eq!(lessor.expired(6_000, 10_000, 100_000).len(), TAKEOVER.per_second_max);
        assert!(lessor.remaining_seconds(999, 6_000) > Some(50));
        assert_eq!(lessor.renew(&leases[999], 6_100), Some(5));
        assert_eq!(lessor.remaining_seconds(999, 6_100), Some(5));
        assert!(lessor.expired(11_101, 10_000, 100_000).contains(&999), "it ends when its time is over");
    }

    #[test]
    fn a_grant_that_is_noted_late_keeps_the_extension() {
        let mut lessor = taken_over(&[lease(1, 5)], 0);
        lessor.grant(1, 5, 10);
        assert_eq!(lessor.expired(5_999, 10, 1), [0i64; 0], "a former leader may have renewed it");
        assert_eq!(lessor.expired(6_000, 10, 1), [1]);
    }

    #[test]
    fn millions_are_taken_over_in_pieces() {
        const COUNT: i64 = 2_000_000;
        let mut lessor = Lessor::default();
        lessor.promote(TAKEOVER);
        let mut now_ms = 0;
        let (mut pieces, mut most) = (0, 0);
        loop {
            let before = lessor.deadlines.len();
            let ids = |from: i64, max: usize| (from.max(0)..COUNT).take(max).map(|id| lease(id, 60)).collect();
            let mut asked = 0;
            let note = |from, max| {
                asked = max;
                ids(from, max)
            };
            let has_more = lessor.take_over(note, now_ms);
            pieces += 1;
            now_ms += 5;
            most = most.max(asked).max(lessor.deadlines.len() - before);
            if !has_more {
                break;
            }
        }
        assert_eq!((lessor.deadlines.len(), lessor.due.len()), (COUNT as usize, COUNT as usize));
        assert_eq!((pieces, most), (COUNT / TAKEOVER.piece_max as i64 + 1, TAKEOVER.piece_max));
        assert!(lessor.deadlines.values().all(|deadline| deadline.expires_ms == 61_000), "as of the first piece");
        assert!(!lessor.take_over(|_, _| panic!("there is nothing left to list"), now_ms));
        // All of them end together: one search postpones so many.
        assert_eq!(lessor.expired(61_000, usize::MAX, 3_000).len(), TAKEOVER.per_second_max);
        let postponed = lessor.deadlines.values().filter(|deadline| deadline.expires_ms > 61_000).count();
        assert!(postponed <= PASSED_OVER_MAX && lessor.is_late(61_000), "{postponed}");
    }

    #[test]
    fn leases_change_while_they_are_taken_over() {
        let count = 3 * TAKEOVER.piece_max as i64 - 1;
        let mut leases: Vec<Lease> = (0..count).map(|id| lease(id, 10)).collect();
        let last = count - 1;
        let mut lessor = Lessor::default();
        lessor.promote(TAKEOVER);
        // Another leader's grant is applied, and a client renews another lease: it knows of the takeover before the turn does.
        lessor.grant(5, 10, 100);
        assert_eq!((lessor.remaining_seconds(5, 100), lessor.expired(50_000, 10, 1).len()), (None, 0));
        assert_eq!(lessor.renew(&lease(last, 10), 200), Some(10));
        let take_over = |lessor: &mut Lessor, leases: &[Lease], now_ms| {
            lessor.take_over(|from, max| list(leases, from, max), now_ms)
        };
        assert!(take_over(&mut lessor, &leases, 1_000));
        assert_eq!(lessor.remaining_seconds(5, 1_000), Some(11), "the former leader may have renewed it");
        // Of those that come later one is renewed, one revoked, one revoked and granted again; a new one is granted.
        let [renewed, revoked, again, new] = [count - 2, count - 3, count - 4, count];
        assert_eq!(lessor.seconds_left(&Lease { remaining_ttl: 3, ..lease(renewed, 10) }, 3_000), 3);
        assert_eq!(lessor.renew(&lease(renewed, 10), 3_000), Some(10));
        leases.retain(|lease| ![revoked, again].contains(&lease.id));
        lessor.revoke(revoked);
        lessor.revoke(again);
        leases.extend([lease(new, 20)]);
        leases.insert(leases.partition_point(|lease| lease.id < again), lease(again, 30));
        lessor.grant(new, 20, 3_000);
        lessor.grant(again, 30, 3_000);
        // And one of those that came before is revoked.
        lessor.revoke(0);
        assert!(take_over(&mut lessor, &leases, 4_000) && !take_over(&mut lessor, &leases, 5_000));
        assert_eq!(lessor.deadlines.len(), leases.len() - 1);
        let left = [last, renewed, revoked, again, new, 0, 1, count - 5].map(|id| lessor.remaining_seconds(id, 5_000));
        assert_eq!(left, [Some(6), Some(9), None, Some(28), Some(18), None, Some(7), Some(7)]);
        assert_eq!(lessor.renew(&lease(revoked, 10), 5_000), None, "all are taken over");
        // A leader that is demoted on the way takes nothing over, and the next time begins anew.
        lessor.promote(TAKEOVER);
        assert!(take_over(&mut lessor, &leases, 6_000));
        lessor.demote();
        assert_eq!((lessor.renew(&lease(last, 10), 6_000), take_over(&mut lessor, &leases, 6_000)), (None, false));
        lessor.promote(TAKEOVER);
        assert!(take_over(&mut lessor, &leases, 7_000));
        assert_eq!(lessor.remaining_seconds(1, 7_000), Some(11));
        assert_eq!(lessor.long_leases(0).len(), TAKEOVER.piece_max);
    }

    #[test]
    fn a_confirmation_lasts_for_half_of_the_extension() {
        let mut lessor = Lessor::default();
        lessor.confirm(10);
        assert!(!lessor.is_confirmed(10), "it does not lead");
        lessor.promote(TAKEOVER);
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
