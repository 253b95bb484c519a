//! The delete headroom of the cluster: the disk space that deletions may fill, on the fullest disk of the members.
//!
//! Every member applies a committed entry, so the fullest disk decides which deletions may be proposed, not the proposer's own. Each
//! Cairn member reports its headroom, and the applied entry as of which it holds, in its heartbeat responses. The leader sends the
//! least of them to all members in its next heartbeats. A member that is down, or that reports nothing, is left out.
//!
//! A reservation counts until every reporting member has applied its entry: until then the reported headroom still includes it.

use api::raftpb;
use contain::lock;
use raftpb::MessageType;
use replica::{Role, Status};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use store::{Reservation, Share, Store};

/// The headroom that members have reported, and the reservations of it.
pub(crate) struct Headroom {
    own: AtomicU64,
    /// Everything up to this entry is part of `own`.
    own_index: AtomicU64,
    told: Mutex<BTreeMap<u64, Told>>,
    /// The least reported headroom, `u64::MAX` when no member reports.
    least: AtomicU64,
    least_index: AtomicU64,
    members: AtomicU64,
    /// Reservations of entries that not every member may have applied.
    recent: Mutex<Vec<Recent>>,
    has_recent: AtomicBool,
    /// Leases whose end is proposed, or may be.
    ending: Arc<Mutex<HashSet<i64>>>,
}

/// The last report of one member; a leader's is the least of all.
#[derive(Clone, Copy)]
struct Told {
    bytes: u64,
    index: u64,
    at_ms: u64,
}

/// The headroom that one message reports: a follower's own, or from a leader the least of all.
#[derive(Clone, Copy)]
pub(super) struct HeadroomReport {
    pub(super) from: u64,
    term: u64,
    /// Sent by a follower, not by a leader.
    is_answer: bool,
    bytes: u64,
    index: u64,
}

impl HeadroomReport {
    /// The report in a heartbeat or a heartbeat response. Members of etcd send none.
    pub(super) fn of(message: &raftpb::Message) -> Option<HeadroomReport> {
        let is_answer = match message.r#type() {
            MessageType::MsgHeartbeat => false,
            MessageType::MsgHeartbeatResp => true,
            _ => return None,
        };
        let (bytes, index) = (message.headroom?, message.headroom_index?);
        Some(HeadroomReport { from: message.from(), term: message.term(), is_answer, bytes, index })
    }
}

struct Recent {
    _reservation: Reservation,
    _ending: Option<Ending>,
    /// Until this time the reservation is kept in any case: the proposal may still be on its way to the leader.
    after_ms: u64,
    /// Once this entry is applied, the proposal has been applied or never will be.
    index: Option<u64>,
}

impl Default for Headroom {
    fn default() -> Headroom {
        Headroom {
            own: AtomicU64::new(u64::MAX),
            own_index: AtomicU64::new(0),
            told: Mutex::default(),
            least: AtomicU64::new(u64::MAX),
            least_index: AtomicU64::new(u64::MAX),
            members: AtomicU64::new(1),
            recent: Mutex::default(),
            has_recent: AtomicBool::new(false),
            ending: Arc::default(),
        }
    }
}

impl Headroom {
    /// Notes that this member's disk has `bytes` of headroom after everything up to the entry `index`.
    pub(super) fn note_own(&self, bytes: u64, index: u64) {
        self.own.store(bytes, Ordering::Relaxed);
        // The index is stored last: a thread that reads this index then reads this headroom or a newer one.
        self.own_index.store(index, Ordering::Release);
    }

    /// The headroom of this member's disk.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    /// The least headroom that other members report; `None` if none does.
    pub(crate) fn least_told_bytes(&self) -> Option<u64> {
        Some(self.least.load(Ordering::Relaxed)).filter(|least| *least != u64::MAX)
    }

    /// Puts the headroom into heartbeats and heartbeat responses.
    pub(crate) fn tell(&self, messages: &mut [raftpb::Message]) {
        for message in messages {
            // The index is loaded first: an older headroom with a later index would release reservations too early.
            let index = self.own_index.load(Ordering::Acquire);
            let own = self.own.load(Ordering::Relaxed);
            let (bytes, index) = match message.r#type() {
                MessageType::MsgHeartbeatResp => (own, index),
                MessageType::MsgHeartbeat => {
                    let least = self.least.load(Ordering::Relaxed);
                    (own.min(least), index.min(self.least_index.load(Ordering::Relaxed)))
                }
                _ => continue,
            };
            message.headroom = Some(bytes);
            message.headroom_index = Some(index);
        }
    }

    /// Notes a report once Raft has taken its message: a response counts if this member leads, a heartbeat if this member follows its
    /// sender. `status` is this member's status then. One that `observes` takes its source's leader in an older term, too.
    pub(super) fn hear(&self, report: HeadroomReport, status: &Status, observes: bool, now_ms: u64) {
        let is_due = if report.is_answer { status.role == Role::Leader } else { status.leader == report.from };
        if is_due && (observes || report.term == status.term) {
            lock(&self.told).insert(report.from, Told { bytes: report.bytes, index: report.index, at_ms: now_ms });
        }
    }

    /// Drops the reports of non-members and those older than `since_ms`, and takes the least of the rest.
    pub(super) fn look_around(&self, members: u64, is_member: impl Fn(u64) -> bool, since_ms: u64) {
        let mut told = lock(&self.told);
        told.retain(|id, told| is_member(*id) && told.at_ms >= since_ms);
        let least = told.values().map(|told| told.bytes).min().unwrap_or(u64::MAX);
        let least_index = told.values().map(|told| told.index).min().unwrap_or(u64::MAX);
        drop(told);
        self.least.store(least, Ordering::Relaxed);
        self.least_index.store(least_index, Ordering::Relaxed);
        self.members.store(members, Ordering::Relaxed);
    }

    /// Releases the reservations whose entries every reporting member has applied. This member's log ends at `last`,
    /// and it has applied everything up to `applied`. Without a leader the log may still change: `retry_ms` is then the
    /// time until the next attempt.
    pub(super) fn release(&self, last: u64, applied: u64, now_ms: u64, retry_ms: Option<u64>) {
        if !self.has_recent.load(Ordering::Relaxed) {
            return;
        }
        let everywhere = applied.min(self.least_index.load(Ordering::Relaxed));
        let mut recent = lock(&self.recent);
        // An entry that a new leader cut off the log is never applied, and an idle cluster may never reach its index.
        for index in recent.iter_mut().filter_map(|claim| claim.index.as_mut()) {
            *index = last.min(*index);
        }
        for claim in recent.iter_mut().filter(|claim| claim.index.is_none() && claim.after_ms <= now_ms) {
            match retry_ms {
                None => claim.index = Some(last),
                Some(retry_ms) => claim.after_ms = now_ms + retry_ms,
            }
        }
        recent.retain(|claim| claim.index.is_none_or(|index| index > everywhere));
        self.has_recent.store(!recent.is_empty(), Ordering::Relaxed);
    }

    pub(super) fn share(&self) -> Share {
        Share { members: self.members.load(Ordering::Relaxed), others_bytes: self.least.load(Ordering::Relaxed) }
    }

    pub(super) fn claim_lease_end(self: &Arc<Self>, store: &Arc<Store>, lease: i64, cost: u64) -> Result<Claim, NoEnd> {
        let all = self.ending.clone();
        if !lock(&all).insert(lease) {
            return Err(NoEnd::UnderWay);
        }
        let ending = Ending { lease, all };
        let share = self.share();
        // The caller holds the lock of consensus, so this must not call the file system.
        match store.reserve_known(cost, share) {
            Ok(reservation) => {
                Ok(Claim { reservation: Some(reservation), headroom: self.clone(), ending: Some(ending) })
            }
            Err(_) if store.has_headroom(cost, share) => Err(NoEnd::HeadroomReserved),
            Err(_) => Err(NoEnd::HeadroomMissing),
        }
    }

    pub(super) fn keep(&self, reservation: Reservation, ending: Option<Ending>, after_ms: u64) {
        lock(&self.recent).push(Recent { _reservation: reservation, _ending: ending, after_ms, index: None });
        self.has_recent.store(true, Ordering::Relaxed);
    }
}

/// The reservation of a proposal until [`Claim::end`] gets its outcome.
pub(crate) struct Claim {
    pub(super) reservation: Option<Reservation>,
    pub(super) headroom: Arc<Headroom>,
    pub(super) ending: Option<Ending>,
}

/// A lease whose end is proposed. Until that proposal is applied or lost, no second one is made and no headroom is
/// reserved twice.
pub(super) struct Ending {
    lease: i64,
    all: Arc<Mutex<HashSet<i64>>>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.lease);
    }
}

/// Why a lease whose time is over does not end yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoEnd {
    /// The end of the lease is already proposed.
    UnderWay,
    /// Other proposals have reserved the headroom. They release it once they are applied.
    HeadroomReserved,
    /// The end of the lease needs more than the whole headroom.
    HeadroomMissing,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat(kind: MessageType, from: u64) -> raftpb::Message {
        raftpb::Message { r#type: Some(kind as i32), from: Some(from), term: Some(5), ..Default::default() }
    }

    /// A member of term 5 that leads, or follows member 2.
    fn stands(leads: bool) -> Status {
        let (role, leader) = if leads { (Role::Leader, 1) } else { (Role::Follower, 2) };
        let (committed, applied, transferee) = (0, 0, 0);
        let (serves_reads, sole_voter, alone, voter, learner) = (leads, false, false, true, false);
        Status {
            role,
            leader,
            term: 5,
            committed,
            applied,
            serves_reads,
            sole_voter,
            alone,
            voter,
            learner,
            transferee,
        }
    }

    fn hear(headroom: &Headroom, message: &raftpb::Message, now_ms: u64) {
        let leads = message.r#type() == MessageType::MsgHeartbeatResp;
        if let Some(report) = HeadroomReport::of(message) {
            headroom.hear(report, &stands(leads), false, now_ms);
        }
    }

    fn told(headroom: &Headroom, kind: MessageType) -> (Option<u64>, Option<u64>) {
        let mut messages = [heartbeat(kind, 9)];
        headroom.tell(&mut messages);
        (messages[0].headroom, messages[0].headroom_index)
    }

    #[test]
    fn the_fullest_disk_decides() {
        let leader = Headroom::default();
        leader.note_own(1_000, 50);
        for (id, bytes, index) in [(2, 700, 60), (3, 900, 40)] {
            let follower = Headroom::default();
            follower.note_own(bytes, index);
            let mut answer = [heartbeat(MessageType::MsgHeartbeatResp, id)];
            follower.tell(&mut answer);
            hear(&leader, &answer[0], 100 * id);
        }
        // One of etcd's.
        hear(&leader, &heartbeat(MessageType::MsgHeartbeatResp, 4), 100);
        leader.look_around(4, |_| true, 0);
        assert_eq!((leader.share().members, leader.share().others_bytes), (4, 700));
        assert_eq!(told(&leader, MessageType::MsgHeartbeat), (Some(700), Some(40)));
        assert_eq!(told(&leader, MessageType::MsgHeartbeatResp), (Some(1_000), Some(50)));
        assert_eq!(told(&leader, MessageType::MsgApp), (None, None));
        leader.look_around(4, |_| true, 300);
        assert_eq!(leader.share().others_bytes, 900, "the other is down");
        leader.look_around(3, |id| id != 3, 0);
        assert_eq!(leader.least_told_bytes(), None);
        assert_eq!(told(&leader, MessageType::MsgHeartbeat), (Some(1_000), Some(50)));
    }

    #[test]
    fn only_the_leader_that_is_followed_and_followers_of_this_term_are_heard() {
        let counts_for = |observes, kind, from, term, leads| {
            let headroom = Headroom::default();
            let message = raftpb::Message {
                term: Some(term),
                headroom: Some(0),
                headroom_index: Some(1),
                ..heartbeat(kind, from)
            };
            headroom.hear(HeadroomReport::of(&message).expect("it tells"), &stands(leads), observes, 0);
            headroom.look_around(3, |_| true, 0);
            headroom.least_told_bytes() == Some(0)
        };
        let counts = |kind, from, term, leads| counts_for(false, kind, from, term, leads);
        use MessageType::{MsgHeartbeat, MsgHeartbeatResp};
        assert!(counts(MsgHeartbeat, 2, 5, false), "the leader");
        assert!(!counts(MsgHeartbeat, 2, 4, false), "a late report of it");
        assert!(counts_for(true, MsgHeartbeat, 2, 4, false), "an observer was in a later term than its members");
        assert!(!counts_for(true, MsgHeartbeat, 3, 4, false), "not the leader that its source knows of");
        assert!(!counts(MsgHeartbeat, 3, 5, false), "another member");
        assert!(!counts(MsgHeartbeat, 2, 5, true), "this member leads");
        assert!(counts(MsgHeartbeatResp, 2, 5, true), "a follower");
        assert!(!counts(MsgHeartbeatResp, 2, 4, true), "its answer to an earlier leader");
        assert!(!counts(MsgHeartbeatResp, 2, 5, false), "this member does not lead");
        let others =
            raftpb::Message { headroom: Some(0), headroom_index: Some(1), ..heartbeat(MessageType::MsgAppResp, 2) };
        assert!(HeadroomReport::of(&others).is_none());
    }

    #[test]
    fn a_reservation_ends_with_what_was_cut_off_the_log() {
        let headroom = Headroom::default();
        let left = || lock(&headroom.recent).len();
        headroom.keep(Reservation::default(), None, 0);
        headroom.release(30, 20, 0, None);
        assert_eq!(left(), 1, "its entry may be applied yet");
        headroom.release(25, 24, 0, None);
        assert_eq!(left(), 1);
        headroom.release(25, 25, 0, None);
        assert_eq!(left(), 0, "there is nothing behind what is applied");
    }

    #[test]
    fn the_end_of_a_lease_waits_for_reserved_headroom_and_reserves_once() {
        let disk = disk::sim::SimDisk::new();
        let opened = store::open(Arc::new(disk.clone()), std::path::Path::new("store"), store::Options::default());
        let store = opened.expect("an empty store").store;
        disk.set_capacity(Some(1 << 30));
        store.look_at_disk();
        let room = store.headroom_bytes();
        assert!(room > 1 << 20 && room < 2 << 30, "{room}");
        let headroom = Arc::new(Headroom::default());
        let claim = |lease, cost| headroom.claim_lease_end(&store, lease, cost).map(|claim| claim.reservation);
        let missing = |lease, cost| claim(lease, cost).err();
        let others = store.reserve_delete(room / 4 * 3, headroom.share()).expect("there is room");
        assert_eq!(missing(7, room / 2), Some(NoEnd::HeadroomReserved), "others have claimed it");
        assert_eq!(missing(8, room + 1), Some(NoEnd::HeadroomMissing));
        drop(others);
        assert_eq!(missing(7, room / 4 * 3), Some(NoEnd::HeadroomReserved), "nobody has looked whether it was used");
        store.look_at_disk();
        let first = headroom.claim_lease_end(&store, 7, room / 4 * 3).expect("there is room again");
        assert_eq!(missing(7, room / 4 * 3), Some(NoEnd::UnderWay));
        assert_eq!(missing(8, room / 2), Some(NoEnd::HeadroomReserved));
        // The outcome of the proposal is unknown.
        let Claim { reservation: held, ending, .. } = first;
        headroom.keep(held.expect("claimed"), ending, 0);
        assert_eq!(missing(7, room / 4 * 3), Some(NoEnd::UnderWay));
        headroom.release(5, 5, 0, None);
        store.look_at_disk();
        assert_eq!(missing(7, room / 4 * 3), None);
        store.look_at_disk();
        assert_eq!(missing(7, room / 4 * 3), None, "let go of before it was proposed");
    }

    #[test]
    fn a_reservation_counts_until_it_is_applied_everywhere() {
        let headroom = Headroom::default();
        let tells = |index: u64| {
            let told = raftpb::Message {
                headroom: Some(9),
                headroom_index: Some(index),
                ..heartbeat(MessageType::MsgHeartbeat, 2)
            };
            hear(&headroom, &told, 0);
            headroom.look_around(2, |_| true, 0);
        };
        let left = || lock(&headroom.recent).len();
        tells(10);
        headroom.keep(Reservation::default(), None, 0);
        headroom.keep(Reservation::default(), None, 500);
        headroom.release(20, 20, 100, None);
        assert_eq!(left(), 2, "the other member is behind");
        tells(20);
        headroom.release(30, 19, 100, None);
        assert_eq!(left(), 2, "this one is behind");
        headroom.release(30, 20, 100, None);
        assert_eq!(left(), 1);
        tells(100);
        headroom.release(30, 100, 499, None);
        assert_eq!(left(), 1, "it may be on its way");
        headroom.release(30, 100, 500, Some(100));
        headroom.release(30, 100, 599, None);
        assert_eq!(left(), 1, "nobody led");
        headroom.release(110, 100, 600, None);
        assert_eq!(left(), 1);
        tells(110);
        headroom.release(120, 110, 700, None);
        assert_eq!(left(), 0);
        assert!(!headroom.has_recent.load(Ordering::Relaxed));
    }
}
