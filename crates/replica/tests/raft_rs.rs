//! What `member` takes from raft-rs on trust: the table is in `src/lib.rs`. A version that fails here must not be used.

mod common;

use api::raftpb::{self, MessageType};
use bytes::Bytes;
use common::{Cluster, conf_state, config};
use replica::{Member, Restored, Role, Work};

#[test]
fn the_version_is_pinned() {
    let manifest = include_str!("../../../Cargo.toml");
    assert!(manifest.lines().any(|line| line.starts_with("raft = { version = \"=0.7.0\"")));
}

fn settled() -> Cluster {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.propose(1, "before");
    cluster.tick(2);
    cluster
}

fn propose(cluster: &mut Cluster, data: &'static str) -> Work {
    cluster.member(1).propose(vec![Bytes::from_static(data.as_bytes())]).expect("a leader takes it");
    cluster.member(1).work()
}

fn holds(work: &Work, data: &str) -> bool {
    work.committed.iter().any(|entry| entry.data.as_deref() == Some(data.as_bytes()))
}

/// All work of a member that its disk does not answer to.
fn unsynced(cluster: &mut Cluster, id: u64) -> Vec<Work> {
    let mut all = Vec::new();
    while cluster.member(id).has_work() {
        all.push(cluster.member(id).work());
    }
    all
}

#[test]
fn what_is_committed_elsewhere_waits_for_the_own_disk() {
    let mut cluster = settled();
    let work = propose(&mut cluster, "x");
    let index = work.entries.last().expect("an entry").index();
    for message in work.messages {
        let to = message.to();
        cluster.member(to).step(message).expect("honest");
        cluster.work(to);
    }
    while let Some(answer) = cluster.wire.pop_front() {
        if answer.to() == 1 {
            cluster.member(1).step(answer).expect("honest");
        }
    }
    // A quorum without the leader has it.
    assert_eq!(cluster.member(1).status().committed, index);
    assert!(unsynced(&mut cluster, 1).iter().all(|work| !holds(work, "x")));
    cluster.member(1).persisted(u64::MAX);
    assert!(unsynced(&mut cluster, 1).iter().any(|work| holds(work, "x")));
}

#[test]
fn only_entries_terms_and_votes_need_a_sync() {
    let mut cluster = settled();
    let work = propose(&mut cluster, "x");
    assert!(work.must_sync);
    let append = work.messages.iter().find(|message| message.to() == 2).expect("it is sent").clone();
    cluster.member(2).step(append.clone()).expect("honest");
    let work = cluster.member(2).work();
    assert!(work.must_sync && !work.entries.is_empty());
    cluster.member(2).persisted(work.number);
    // Only the commit index is new.
    let index = append.entries.last().expect("an entry").index();
    let notice = raftpb::Message {
        index: Some(index),
        log_term: append.term,
        commit: Some(index),
        entries: Vec::new(),
        ..append
    };
    cluster.member(2).step(notice).expect("honest");
    let work = cluster.member(2).work();
    assert_eq!(work.hard_state.map(|state| state.commit()), Some(index));
    assert!(!work.must_sync && work.entries.is_empty());
    cluster.member(2).persisted(work.number);
    let term = cluster.member(2).status().term + 1;
    let vote = raftpb::Message {
        r#type: Some(MessageType::MsgVote as i32),
        from: Some(3),
        to: Some(2),
        term: Some(term),
        index: Some(index),
        log_term: Some(term - 1),
        // A transfer, which leader leases do not hold up.
        context: Some(Bytes::from_static(b"CampaignTransfer")),
        ..Default::default()
    };
    cluster.member(2).step(vote).expect("honest");
    let work = cluster.member(2).work();
    assert_eq!(work.hard_state.map(|state| (state.term(), state.vote())), Some((term, 3)));
    assert!(work.must_sync);
}

#[test]
fn followers_answer_once_their_log_is_durable() {
    let mut cluster = settled();
    let work = propose(&mut cluster, "x");
    let is_append = |message: &raftpb::Message| message.r#type() == MessageType::MsgApp && !message.entries.is_empty();
    assert_eq!(work.messages.iter().filter(|message| is_append(message)).count(), 2, "a leader does not wait");
    let append = work.messages.iter().find(|message| message.to() == 3).expect("it is sent").clone();
    cluster.member(3).step(append).expect("honest");
    let work = cluster.member(3).work();
    assert!(work.messages.is_empty());
    assert!(work.persisted_messages.iter().any(|message| message.r#type() == MessageType::MsgAppResp));
}

#[test]
fn a_number_covers_those_before_it() {
    let mut cluster = settled();
    let (first, second) = (propose(&mut cluster, "x"), propose(&mut cluster, "y"));
    assert!(first.number < second.number && !cluster.member(1).log_is_durable());
    cluster.member(1).persisted(first.number);
    assert!(!cluster.member(1).log_is_durable());
    cluster.member(1).persisted(second.number);
    assert!(cluster.member(1).log_is_durable());
}

fn heartbeat_to(cluster: &mut Cluster, from: u64, to: u64) -> raftpb::Message {
    cluster.member(from).tick();
    let messages =
        unsynced(cluster, from).into_iter().flat_map(|work| work.messages.into_iter().chain(work.persisted_messages));
    let is_meant = |message: &raftpb::Message| message.r#type() == MessageType::MsgHeartbeat && message.to() == to;
    messages.into_iter().find(is_meant).expect("a heartbeat at each tick")
}

#[test]
fn a_heartbeat_names_nothing_that_was_not_acknowledged_in_its_term() {
    let mut cluster = settled();
    let held = cluster.one(3).applied_index;
    let (word, term) = (heartbeat_to(&mut cluster, 1, 3), cluster.member(1).status().term);
    assert_eq!((word.commit(), word.commit_term), (held, Some(term)));
    cluster.member(1).persisted(u64::MAX);
    cluster.cut = vec![(1, 3), (3, 1), (2, 3), (3, 2)];
    for _ in 0..3 {
        cluster.propose(1, "x");
    }
    assert_eq!(cluster.member(1).status().committed, held + 3);
    let word = heartbeat_to(&mut cluster, 1, 3);
    assert_eq!((word.commit(), word.commit_term), (held, Some(term)));
    cluster.member(1).persisted(u64::MAX);
    // The term of an entry that was trimmed is remembered.
    for trimmed in [held, held + 1] {
        cluster.member(1).trim(trimmed);
        let word = heartbeat_to(&mut cluster, 1, 3);
        assert_eq!((word.commit(), word.commit_term), (held, Some(term)));
        cluster.member(1).persisted(u64::MAX);
    }
    // The next leader knows nothing of what was said to this one.
    cluster.member(1).transfer(2).expect("a voter");
    cluster.settle();
    assert_eq!(cluster.leader(), 2);
    let word = heartbeat_to(&mut cluster, 2, 3);
    assert_eq!((word.commit(), word.commit_term), (0, None));
    assert!(cluster.member(2).status().committed > held);
}

#[test]
fn a_snapshot_that_is_not_there_yet_is_asked_for_again() {
    let mut cluster = settled();
    cluster.cut = vec![(1, 3), (3, 1)];
    for _ in 0..5 {
        cluster.propose(1, "x");
    }
    let applied = cluster.one(1).applied_index;
    cluster.member(1).trim(applied);
    cluster.cut.clear();
    cluster.member(1).report_unreachable(3);
    cluster.tick(3);
    assert!(cluster.member(1).wants_snapshot() && cluster.snapshots.is_empty());
    let metadata = cluster.metadata(1);
    cluster.member(1).offer_snapshot(&metadata);
    cluster.tick(3);
    assert_eq!(cluster.snapshots.first().map(|message| message.to()), Some(3));
}

#[test]
fn a_vote_tells_what_is_committed() {
    let mut cluster = settled();
    let committed = cluster.member(2).status().committed;
    cluster.cut = vec![(1, 2), (1, 3)];
    cluster.member(2).advance_election(100);
    let mut asked = None;
    for _ in 0..100 {
        cluster.member(2).tick();
        for work in unsynced(&mut cluster, 2) {
            asked = work.messages.into_iter().chain(work.persisted_messages).next().or(asked);
        }
        if asked.is_some() {
            break;
        }
    }
    let asked = asked.expect("it stands");
    assert_eq!((asked.r#type(), asked.commit()), (MessageType::MsgPreVote, committed));
    assert!(asked.commit_term() > 0);
    // One that refuses its vote, has the entry, and did not know that it is committed, does now.
    let entry = |index| raftpb::Entry { index: Some(index), term: Some(asked.commit_term()), ..Default::default() };
    let restored = replica::Restored {
        hard_state: raftpb::HardState { term: Some(asked.commit_term()), vote: None, commit: Some(committed - 1) },
        entries: vec![entry(committed), entry(committed + 1)],
        applied: committed - 1,
        applied_term: asked.commit_term(),
        conf_state: common::conf_state(&[1, 2, 3], &[]),
        ..Default::default()
    };
    cluster.start(3, restored);
    assert_eq!(cluster.member(3).status().committed, committed - 1);
    cluster.member(3).step(raftpb::Message { to: Some(3), ..asked }).expect("honest");
    assert_eq!(cluster.member(3).status().committed, committed);
}

#[test]
fn who_is_no_voter_never_campaigns() {
    let start = |voters: &[u64], learners: &[u64]| {
        let place = if voters.is_empty() { (0, 0) } else { (5, 1) };
        let restored = Restored {
            applied: place.0,
            applied_term: place.1,
            conf_state: conf_state(voters, learners),
            ..Restored::default()
        };
        Member::new(&config(1), restored).expect("it starts")
    };
    let campaigns = |member: &mut Member| {
        for _ in 0..1_000 {
            member.tick();
        }
        let leader = raftpb::Message {
            r#type: Some(MessageType::MsgTimeoutNow as i32),
            from: Some(2),
            to: Some(1),
            term: Some(2),
            ..Default::default()
        };
        // A message that is refused has no effect either.
        let _ = member.step(leader);
        let mut said = false;
        while member.has_work() {
            let work = member.work();
            member.persisted(work.number);
            said |= !work.messages.is_empty() || !work.persisted_messages.is_empty();
        }
        said || member.status().role != Role::Follower
    };
    assert!(campaigns(&mut start(&[1, 2, 3], &[])), "a voter does");
    for (voters, learners) in [(&[2, 3][..], &[][..]), (&[2, 3], &[1]), (&[], &[])] {
        assert!(!campaigns(&mut start(voters, learners)), "{voters:?}, {learners:?}");
    }
}
