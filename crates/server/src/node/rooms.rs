//! The room for deletions on the disks of all members.
//!
//! What is committed is applied by everyone, so the fullest disk decides what may be proposed, and not the proposer's alone. Members of
//! Cairn tell the leader in their answers to heartbeats how much room they have, as of which applied entry; the leader tells everyone in
//! the next heartbeat what the least of that is. A member that is down, or does not tell, is left out.
//!
//! What was claimed counts until every member that tells has applied it: until then it is part of the room that is told.

use api::raftpb;
use contain::lock;
use raftpb::MessageType;
use replica::{Role, Status};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use store::{Room, Share, Store};

/// What members have told of their disks, and what is claimed of them.
pub(crate) struct Rooms {
    own: AtomicU64,
    /// Everything up to this entry is part of `own`.
    own_index: AtomicU64,
    told: Mutex<BTreeMap<u64, Told>>,
    /// The least that was told, `u64::MAX` when nobody tells.
    least: AtomicU64,
    least_index: AtomicU64,
    members: AtomicU64,
    /// Claims of what may not be applied everywhere.
    recent: Mutex<Vec<Recent>>,
    has_recent: AtomicBool,
    /// Leases whose end is under way, or may be.
    ending: Arc<Mutex<HashSet<i64>>>,
}

/// What one member has told, or a leader of all.
#[derive(Clone, Copy)]
struct Told {
    bytes: u64,
    index: u64,
    at_ms: u64,
}

/// What one message tells of the room on its sender's disk, or of all.
#[derive(Clone, Copy)]
pub(super) struct Word {
    pub(super) from: u64,
    term: u64,
    /// Of a follower, and not of a leader.
    is_answer: bool,
    bytes: u64,
    index: u64,
}

impl Word {
    /// Of heartbeats, and answers to them. Members of etcd tell nothing.
    pub(super) fn of(message: &raftpb::Message) -> Option<Word> {
        let is_answer = match message.r#type() {
            MessageType::MsgHeartbeat => false,
            MessageType::MsgHeartbeatResp => true,
            _ => return None,
        };
        let (bytes, index) = (message.room?, message.room_index?);
        Some(Word { from: message.from(), term: message.term(), is_answer, bytes, index })
    }
}

struct Recent {
    _room: Room,
    _ending: Option<Ending>,
    /// Not looked at before: it may be on its way to the leader.
    after_ms: u64,
    /// Once this entry is applied, it is applied or never will be.
    index: Option<u64>,
}

impl Default for Rooms {
    fn default() -> Rooms {
        Rooms {
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

impl Rooms {
    /// This member's disk has `bytes` of room, which holds everything up to the entry `index`.
    pub(super) fn note_own(&self, bytes: u64, index: u64) {
        self.own.store(bytes, Ordering::Relaxed);
        // Last: whoever sees this index sees that room, or a later one.
        self.own_index.store(index, Ordering::Release);
    }

    /// The room on this member's disk.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    /// The room on the fullest of the disks that others tell of, if any do.
    pub(crate) fn least_told_bytes(&self) -> Option<u64> {
        Some(self.least.load(Ordering::Relaxed)).filter(|least| *least != u64::MAX)
    }

    /// Puts into heartbeats and answers to them what others are to know.
    pub(super) fn tell(&self, messages: &mut [raftpb::Message]) {
        for message in messages {
            // First: an older room must not be told as that of a later index, by which claims are let go.
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
            message.room = Some(bytes);
            message.room_index = Some(index);
        }
    }

    /// Notes what a member has told, once Raft has taken the message: an answer counts for the leader that it is for, a heartbeat if
    /// its sender is followed. `status` is where this member stands then.
    pub(super) fn hear(&self, word: Word, status: &Status, now_ms: u64) {
        let is_due = if word.is_answer { status.role == Role::Leader } else { status.leader == word.from };
        if is_due && word.term == status.term {
            lock(&self.told).insert(word.from, Told { bytes: word.bytes, index: word.index, at_ms: now_ms });
        }
    }

    /// Leaves out who is no member, or was not heard of since `since_ms`; there are so many `members`.
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

    /// Lets go what was claimed for entries that every member which tells has applied. This one's log ends at `last`, and it has
    /// applied everything up to `applied`. Without a leader nobody knows what the log will be: it is looked again after `retry_ms`.
    pub(super) fn release(&self, last: u64, applied: u64, now_ms: u64, retry_ms: Option<u64>) {
        if !self.has_recent.load(Ordering::Relaxed) {
            return;
        }
        let everywhere = applied.min(self.least_index.load(Ordering::Relaxed));
        let mut recent = lock(&self.recent);
        // What was cut off the log with another leader's is never applied: an idle cluster would not get there.
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
        // Under the lock of consensus, so without a look at the disk.
        match store.claim_known_room(cost, share) {
            Ok(room) => Ok(Claim { room: Some(room), rooms: self.clone(), ending: Some(ending) }),
            Err(_) if store.has_room(cost, share) => Err(NoEnd::RoomPromised),
            Err(_) => Err(NoEnd::RoomMissing),
        }
    }

    pub(super) fn keep(&self, room: Room, ending: Option<Ending>, after_ms: u64) {
        lock(&self.recent).push(Recent { _room: room, _ending: ending, after_ms, index: None });
        self.has_recent.store(true, Ordering::Relaxed);
    }
}

/// Room that was claimed for a proposal, until [`Claim::end`] is told what became of it.
pub(crate) struct Claim {
    pub(super) room: Option<Room>,
    pub(super) rooms: Arc<Rooms>,
    pub(super) ending: Option<Ending>,
}

/// A lease whose end is proposed: it is not proposed again, and claims no room twice, until it is known that this one is not applied.
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
    /// Its end is proposed already.
    UnderWay,
    /// The room is promised to others, and is free again once theirs is applied.
    RoomPromised,
    /// There is less room than it takes, whatever others do.
    RoomMissing,
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

    fn hear(rooms: &Rooms, message: &raftpb::Message, now_ms: u64) {
        let leads = message.r#type() == MessageType::MsgHeartbeatResp;
        if let Some(word) = Word::of(message) {
            rooms.hear(word, &stands(leads), now_ms);
        }
    }

    fn told(rooms: &Rooms, kind: MessageType) -> (Option<u64>, Option<u64>) {
        let mut messages = [heartbeat(kind, 9)];
        rooms.tell(&mut messages);
        (messages[0].room, messages[0].room_index)
    }

    #[test]
    fn the_fullest_disk_decides() {
        let leader = Rooms::default();
        leader.note_own(1_000, 50);
        for (id, bytes, index) in [(2, 700, 60), (3, 900, 40)] {
            let follower = Rooms::default();
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
        let counts = |kind, from, term, leads| {
            let rooms = Rooms::default();
            let message =
                raftpb::Message { term: Some(term), room: Some(0), room_index: Some(1), ..heartbeat(kind, from) };
            rooms.hear(Word::of(&message).expect("it tells"), &stands(leads), 0);
            rooms.look_around(3, |_| true, 0);
            rooms.least_told_bytes() == Some(0)
        };
        use MessageType::{MsgHeartbeat, MsgHeartbeatResp};
        assert!(counts(MsgHeartbeat, 2, 5, false), "the leader");
        assert!(!counts(MsgHeartbeat, 2, 4, false), "a late word of it");
        assert!(!counts(MsgHeartbeat, 3, 5, false), "another member");
        assert!(!counts(MsgHeartbeat, 2, 5, true), "this member leads");
        assert!(counts(MsgHeartbeatResp, 2, 5, true), "a follower");
        assert!(!counts(MsgHeartbeatResp, 2, 4, true), "its answer to an earlier leader");
        assert!(!counts(MsgHeartbeatResp, 2, 5, false), "this member does not lead");
        let others = raftpb::Message { room: Some(0), room_index: Some(1), ..heartbeat(MessageType::MsgAppResp, 2) };
        assert!(Word::of(&others).is_none());
    }

    #[test]
    fn a_claim_ends_with_what_was_cut_off_the_log() {
        let rooms = Rooms::default();
        let left = || lock(&rooms.recent).len();
        rooms.keep(Room::default(), None, 0);
        rooms.release(30, 20, 0, None);
        assert_eq!(left(), 1, "its entry may be applied yet");
        rooms.release(25, 24, 0, None);
        assert_eq!(left(), 1);
        rooms.release(25, 25, 0, None);
        assert_eq!(left(), 0, "there is nothing behind what is applied");
    }

    #[test]
    fn the_end_of_a_lease_waits_for_room_that_is_promised_and_is_claimed_once() {
        let disk = disk::sim::SimDisk::new();
        let opened = store::open(Arc::new(disk.clone()), std::path::Path::new("store"), store::Options::default());
        let store = opened.expect("an empty store").store;
        disk.set_capacity(Some(1 << 30));
        store.look_at_disk();
        let room = store.room_bytes();
        assert!(room > 1 << 20 && room < 2 << 30, "{room}");
        let rooms = Arc::new(Rooms::default());
        let claim = |lease, cost| rooms.claim_lease_end(&store, lease, cost).map(|claim| claim.room);
        let missing = |lease, cost| claim(lease, cost).err();
        let others = store.claim_room(room / 4 * 3, rooms.share()).expect("there is room");
        assert_eq!(missing(7, room / 2), Some(NoEnd::RoomPromised), "others have claimed it");
        assert_eq!(missing(8, room + 1), Some(NoEnd::RoomMissing));
        drop(others);
        assert_eq!(missing(7, room / 4 * 3), Some(NoEnd::RoomPromised), "nobody has looked whether it was used");
        store.look_at_disk();
        let first = rooms.claim_lease_end(&store, 7, room / 4 * 3).expect("there is room again");
        assert_eq!(missing(7, room / 4 * 3), Some(NoEnd::UnderWay));
        assert_eq!(missing(8, room / 2), Some(NoEnd::RoomPromised));
        // Nobody knows what became of it.
        let Claim { room: held, ending, .. } = first;
        rooms.keep(held.expect("claimed"), ending, 0);
        assert_eq!(missing(7, room / 4 * 3), Some(NoEnd::UnderWay));
        rooms.release(5, 5, 0, None);
        store.look_at_disk();
        assert_eq!(missing(7, room / 4 * 3), None);
        store.look_at_disk();
        assert_eq!(missing(7, room / 4 * 3), None, "let go of before it was proposed");
    }

    #[test]
    fn a_claim_counts_until_it_is_applied_everywhere() {
        let rooms = Rooms::default();
        let tells = |index: u64| {
            let told =
                raftpb::Message { room: Some(9), room_index: Some(index), ..heartbeat(MessageType::MsgHeartbeat, 2) };
            hear(&rooms, &told, 0);
            rooms.look_around(2, |_| true, 0);
        };
        let left = || lock(&rooms.recent).len();
        tells(10);
        rooms.keep(Room::default(), None, 0);
        rooms.keep(Room::default(), None, 500);
        rooms.release(20, 20, 100, None);
        assert_eq!(left(), 2, "the other member is behind");
        tells(20);
        rooms.release(30, 19, 100, None);
        assert_eq!(left(), 2, "this one is behind");
        rooms.release(30, 20, 100, None);
        assert_eq!(left(), 1);
        tells(100);
        rooms.release(30, 100, 499, None);
        assert_eq!(left(), 1, "it may be on its way");
        rooms.release(30, 100, 500, Some(100));
        rooms.release(30, 100, 599, None);
        assert_eq!(left(), 1, "nobody led");
        rooms.release(110, 100, 600, None);
        assert_eq!(left(), 1);
        tells(110);
        rooms.release(120, 110, 700, None);
        assert_eq!(left(), 0);
        assert!(!rooms.has_recent.load(Ordering::Relaxed));
    }
}
