//! Members in one thread, connected by queues, each doing its work as a shell would.

// Each test file uses a part of it.
#![allow(dead_code, unreachable_pub)]

use api::{Message, raftpb};
use bytes::Bytes;
use replica::{Config, Member, Restored, Role};
use std::collections::{BTreeMap, VecDeque};

pub struct One {
    pub member: Member,
    /// Applied data entries.
    pub applied: Vec<Bytes>,
    pub applied_index: u64,
    pub applied_term: u64,
    /// Answered read indexes.
    pub reads: Vec<(u64, u64)>,
    /// A snapshot that a message would have brought along, by index.
    pub snapshots: BTreeMap<u64, Vec<Bytes>>,
}

#[derive(Default)]
pub struct Cluster {
    pub members: BTreeMap<u64, One>,
    pub wire: VecDeque<raftpb::Message>,
    /// Links that lose everything.
    pub cut: Vec<(u64, u64)>,
    /// Snapshot messages, held back for the test.
    pub snapshots: Vec<raftpb::Message>,
}

pub fn config(id: u64) -> Config {
    Config {
        id,
        election_ticks: 10,
        heartbeat_ticks: 1,
        pre_vote: true,
        seed: id * 7919,
        boot_nonce: 1,
        near_entries: 1_000,
        unsafe_ignore_lost_log: false,
    }
}

pub fn conf_state(voters: &[u64], learners: &[u64]) -> raftpb::ConfState {
    raftpb::ConfState {
        voters: voters.to_vec(),
        learners: learners.to_vec(),
        auto_leave: Some(false),
        ..Default::default()
    }
}

impl Cluster {
    /// Voters that start from the same applied entry.
    pub fn new(voters: &[u64]) -> Cluster {
        let mut cluster = Cluster::default();
        for id in voters {
            let restored =
                Restored { applied: 5, applied_term: 1, conf_state: conf_state(voters, &[]), ..Restored::default() };
            cluster.start(*id, restored);
        }
        cluster
    }

    pub fn start(&mut self, id: u64, restored: Restored) {
        let (applied_index, applied_term) = (restored.applied, restored.applied_term);
        let member = Member::new(&config(id), restored).expect("it starts");
        let one = One {
            member,
            applied: Vec::new(),
            applied_index,
            applied_term,
            reads: Vec::new(),
            snapshots: BTreeMap::new(),
        };
        self.members.insert(id, one);
    }

    pub fn member(&mut self, id: u64) -> &mut Member {
        &mut self.members.get_mut(&id).expect("it is there").member
    }

    pub fn one(&self, id: u64) -> &One {
        &self.members[&id]
    }

    /// Does all work of all members, and delivers until nothing moves.
    pub fn settle(&mut self) {
        loop {
            let ids: Vec<u64> = self.members.keys().copied().collect();
            for id in ids {
                self.member(id).take_forwarded_changes(|_| true);
                while self.member(id).has_work() {
                    self.work(id);
                    self.member(id).take_forwarded_changes(|_| true);
                }
            }
            let Some(message) = self.wire.pop_front() else { return };
            if self.cut.contains(&(message.from(), message.to())) {
                continue;
            }
            if message.r#type() == raftpb::MessageType::MsgSnap {
                self.snapshots.push(message);
            } else if let Some(to) = self.members.get_mut(&message.to()) {
                to.member.step(message).expect("an honest message");
            }
        }
    }

    /// Like [`Cluster::settle`], when members lie to each other: what is refused is lost, and nothing runs on for ever.
    pub fn lenient_settle(&mut self) {
        for _ in 0..200 {
            let ids: Vec<u64> = self.members.keys().copied().collect();
            for id in ids {
                while self.member(id).has_work() {
                    self.work(id);
                }
            }
            let Some(message) = self.wire.pop_front() else { return };
            if let Some(to) = self.members.get_mut(&message.to()) {
                let _ = to.member.step(message);
            }
        }
        self.wire.clear();
    }

    pub fn lenient_tick(&mut self) {
        for one in self.members.values_mut() {
            one.member.tick();
        }
        self.lenient_settle();
    }

    pub fn work(&mut self, id: u64) {
        let one = self.members.get_mut(&id).expect("it is there");
        let work = one.member.work();
        if let Some(metadata) = work.snapshot.and_then(|snapshot| snapshot.metadata) {
            one.applied = one.snapshots.remove(&metadata.index()).unwrap_or_default();
            (one.applied_index, one.applied_term) = (metadata.index(), metadata.term());
            // A store has a snapshot at once, and says so before the log knows of it.
            one.member.applied(metadata.index());
        }
        self.wire.extend(work.messages);
        one.member.persisted(work.number);
        self.wire.extend(work.persisted_messages);
        for entry in work.committed {
            match entry.r#type() {
                raftpb::EntryType::EntryNormal => {
                    one.applied.extend(entry.data.clone().filter(|data| !data.is_empty()))
                }
                _ => {
                    // What cannot be read or applied has no effect, as in a shell.
                    if let Ok(change) = raftpb::ConfChange::decode(entry.data.clone().unwrap_or_default()) {
                        let _ = one.member.apply_conf_change(&change);
                    }
                }
            }
            (one.applied_index, one.applied_term) = (entry.index(), entry.term());
            one.member.applied(entry.index());
        }
        one.reads.extend(work.reads);
    }

    pub fn tick(&mut self, times: usize) {
        for _ in 0..times {
            for one in self.members.values_mut() {
                one.member.tick();
            }
            self.settle();
        }
    }

    pub fn elect(&mut self, id: u64) {
        self.settle();
        self.member(id).campaign().expect("it may");
        self.settle();
        assert_eq!(self.member(id).status().role, Role::Leader);
        self.tick(1);
    }

    pub fn propose(&mut self, id: u64, data: &'static str) {
        self.member(id).propose(vec![Bytes::from_static(data.as_bytes())]).expect("somebody takes it");
        self.settle();
    }

    pub fn change(&mut self, leader: u64, kind: raftpb::ConfChangeType, node: u64) {
        let change = raftpb::ConfChange { r#type: Some(kind as i32), node_id: Some(node), ..Default::default() };
        self.member(leader).propose_conf_change(&change).expect("a leader takes it");
        self.settle();
        self.tick(1);
    }

    pub fn leader(&mut self) -> u64 {
        let leads = |one: &&One| one.member.status().role == Role::Leader;
        self.members.values().filter(leads).map(|one| one.member.status().leader).next_back().unwrap_or(0)
    }

    pub fn assert_all_applied(&self, data: &[&str]) {
        for (id, one) in &self.members {
            assert_eq!(one.applied, data, "member {id}");
        }
    }

    /// What a leader would offer as of what it has applied.
    pub fn metadata(&self, id: u64) -> raftpb::SnapshotMetadata {
        let one = self.one(id);
        raftpb::SnapshotMetadata {
            conf_state: Some(one.member.conf_state().clone()),
            index: Some(one.applied_index),
            term: Some(one.applied_term),
        }
    }
}
