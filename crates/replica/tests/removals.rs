//! What others are told of a removal while the leader's disk is slow: a removed member ends once it knows of it, so that a leader that
//! forgets it at a power cut would wait for the vote of a member that is gone.

mod common;

use api::raftpb::{ConfChange, ConfChangeType, Message, MessageType};
use bytes::Bytes;
use common::Cluster;

const LEADER: u64 = 1;

/// A leader whose disk does not answer: what it sends arrives, and what it writes is not durable.
struct Stalled {
    cluster: Cluster,
    /// The index of the removal.
    removal: u64,
    /// The last work that is not durable.
    number: u64,
    /// What is sent once it is.
    waiting: Vec<Message>,
    must_sync: bool,
}

impl Stalled {
    /// A cluster of these voters, whose leader proposes to remove the last one. With `is_durable` that entry reaches its disk.
    fn removing(voters: &[u64], is_durable: bool) -> Stalled {
        let mut cluster = Cluster::new(voters);
        cluster.elect(LEADER);
        let kind = Some(ConfChangeType::ConfChangeRemoveNode as i32);
        let change = ConfChange { r#type: kind, node_id: voters.last().copied(), ..ConfChange::default() };
        let removal = cluster.member(LEADER).last_index() + 1;
        cluster.member(LEADER).propose_conf_change(&change).expect("a leader takes it");
        let work = cluster.member(LEADER).work();
        assert_eq!(work.entries.iter().map(|entry| entry.index()).collect::<Vec<_>>(), [removal]);
        if is_durable {
            cluster.member(LEADER).persisted(work.number);
        }
        let mut stalled = Stalled { cluster, removal, number: work.number, waiting: Vec::new(), must_sync: false };
        stalled.deliver(work.messages);
        stalled
    }

    /// Delivers what the leader sends, and what the others answer.
    fn deliver(&mut self, sent: Vec<Message>) {
        self.cluster.wire.extend(sent);
        while let Some(message) = self.cluster.wire.pop_front() {
            let to = message.to();
            self.cluster.member(to).step(message).expect("an honest message");
            while to != LEADER && self.cluster.member(to).has_work() {
                self.cluster.work(to);
            }
        }
    }

    /// All turns that the leader's timer takes for it now; returns what the leader sends.
    fn turns(&mut self) -> Vec<Message> {
        let mut all = Vec::new();
        while self.cluster.member(LEADER).has_work() {
            let work = self.cluster.member(LEADER).work();
            self.number = work.number;
            self.must_sync |= work.must_sync;
            self.waiting.extend(work.persisted_messages);
            all.extend(work.messages.iter().cloned());
            self.deliver(work.messages);
        }
        all
    }

    fn tick(&mut self) -> Vec<Message> {
        self.cluster.member(LEADER).tick();
        self.turns()
    }

    /// The disk answers; returns what was waiting for it.
    fn sync(&mut self) -> Vec<Message> {
        let number = self.number;
        self.cluster.member(LEADER).persisted(number);
        std::mem::take(&mut self.waiting)
    }

    /// Whether one of these messages would have its receiver take the removal as committed.
    fn tells(&self, messages: &[Message]) -> bool {
        messages.iter().any(|message| {
            let is_read_index = message.r#type() == MessageType::MsgReadIndexResp;
            let named = if is_read_index { message.index() } else { message.commit() };
            named >= self.removal
        })
    }

    fn is_committed(&mut self) -> bool {
        self.cluster.member(LEADER).status().committed >= self.removal
    }
}

fn has(messages: &[Message], kind: MessageType) -> bool {
    messages.iter().any(|message| message.r#type() == kind)
}

#[test]
fn a_removal_is_told_once_its_commit_is_durable() {
    let mut stalled = Stalled::removing(&[1, 2], true);
    let sent = stalled.turns();
    assert!(stalled.is_committed() && stalled.must_sync && !stalled.tells(&sent));
    // The timer sends heartbeats and what clients propose while the disk is slow.
    let sent = stalled.tick();
    assert!(has(&sent, MessageType::MsgHeartbeat) && !stalled.tells(&sent), "{sent:?}");
    stalled.cluster.member(LEADER).propose(vec![Bytes::from_static(b"x")]).expect("a leader takes it");
    let sent = stalled.turns();
    assert!(has(&sent, MessageType::MsgApp) && !stalled.tells(&sent), "{sent:?}");
    let removal = stalled.removal;
    assert!(stalled.cluster.member(2).status().committed < removal, "it would end");
    let waiting = stalled.sync();
    assert!(stalled.tells(&waiting), "it is told without a heartbeat");
    stalled.deliver(waiting);
    assert!(stalled.cluster.member(2).status().committed >= removal);
    let sent = stalled.tick();
    assert!(stalled.tells(&sent));
}

#[test]
fn a_removal_that_others_have_committed_is_not_told_before_it_is_in_the_own_log() {
    let mut stalled = Stalled::removing(&[1, 2, 3], false);
    assert!(stalled.is_committed());
    let sent = [stalled.turns(), stalled.tick(), stalled.tick()].concat();
    assert!(has(&sent, MessageType::MsgHeartbeat) && !stalled.tells(&sent), "{sent:?}");
    // Its commit index is in the log with it, so that one sync is enough.
    assert!(stalled.must_sync);
    let waiting = stalled.sync();
    assert!(stalled.tells(&waiting));
    let sent = stalled.tick();
    assert!(stalled.tells(&sent));
}

#[test]
fn a_read_index_beyond_a_removal_waits_for_the_disk() {
    let mut stalled = Stalled::removing(&[1, 2, 3], true);
    stalled.turns();
    assert!(stalled.is_committed());
    let number = stalled.cluster.member(2).read_index().expect("a leader is known");
    stalled.cluster.work(2);
    let asked = std::mem::take(&mut stalled.cluster.wire).into();
    stalled.deliver(asked);
    let sent = [stalled.turns(), stalled.tick()].concat();
    assert!(!stalled.tells(&sent), "{sent:?}");
    let waiting = stalled.sync();
    assert!(has(&waiting, MessageType::MsgReadIndexResp), "{waiting:?}");
    stalled.deliver(waiting);
    let removal = stalled.removal;
    assert!(stalled.cluster.one(2).reads.iter().any(|read| read.0 == number && read.1 >= removal));
}

#[test]
fn nothing_else_waits() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(LEADER);
    let kind = Some(ConfChangeType::ConfChangeAddLearnerNode as i32);
    let change = ConfChange { r#type: kind, node_id: Some(4), ..ConfChange::default() };
    cluster.member(LEADER).propose_conf_change(&change).expect("a leader takes it");
    let addition = cluster.member(LEADER).last_index();
    let work = cluster.member(LEADER).work();
    let mut stalled =
        Stalled { cluster, removal: addition, number: work.number, waiting: Vec::new(), must_sync: false };
    stalled.deliver(work.messages);
    let sent = [stalled.turns(), stalled.tick()].concat();
    assert!(stalled.is_committed() && stalled.tells(&sent), "an addition may be forgotten: {sent:?}");
}
