//! An observer: what it takes, what it never says, and what it is sent.

mod common;

use api::raftpb::{self, MessageType};
use bytes::Bytes;
use common::{Cluster, conf_state, config};
use replica::{Error, Member, Refusal, Restored, Role, Stretch, TAIL_MAX, Work};

const OWN: u64 = 0x0b5e;

fn observer(change: impl FnOnce(&mut Restored)) -> Member {
    let mut restored = Restored { observes: true, ..Restored::default() };
    change(&mut restored);
    Member::new(&config(OWN), restored).expect("it starts")
}

fn entry(index: u64, term: u64) -> raftpb::Entry {
    raftpb::Entry {
        index: Some(index),
        term: Some(term),
        r#type: Some(raftpb::EntryType::EntryNormal as i32),
        data: Some(Bytes::from_static(b"x")),
    }
}

fn message(kind: MessageType, leader: u64, term: u64) -> raftpb::Message {
    raftpb::Message {
        r#type: Some(kind as i32),
        to: Some(OWN),
        from: Some(leader),
        term: Some(term),
        ..Default::default()
    }
}

fn append(leader: u64, term: u64, before: (u64, u64), entries: Vec<raftpb::Entry>) -> raftpb::Message {
    let commit = entries.last().map_or(before.0, |entry| entry.index());
    raftpb::Message {
        index: Some(before.0),
        log_term: Some(before.1),
        commit: Some(commit),
        entries,
        ..message(MessageType::MsgApp, leader, term)
    }
}

fn snapshot(leader: u64, term: u64, place: (u64, u64), voters: &[u64]) -> raftpb::Message {
    let metadata = raftpb::SnapshotMetadata {
        conf_state: Some(conf_state(voters, &[])),
        index: Some(place.0),
        term: Some(place.1),
    };
    let snapshot = raftpb::Snapshot { data: None, metadata: Some(metadata) };
    raftpb::Message { snapshot: Some(snapshot), ..message(MessageType::MsgSnap, leader, term) }
}

/// Does all work as a shell would; returns it.
fn settle(member: &mut Member) -> Vec<Work> {
    let mut all = Vec::new();
    while member.has_work() {
        let work = member.work();
        member.persisted(work.number);
        for entry in &work.committed {
            if entry.r#type() == raftpb::EntryType::EntryConfChange {
                let change: raftpb::ConfChange =
                    api::Message::decode(entry.data.clone().unwrap_or_default()).expect("a change");
                member.apply_conf_change(&change).expect("a valid change");
            }
            member.applied(entry.index());
        }
        all.push(work);
    }
    all
}

fn said(work: &[Work]) -> Vec<MessageType> {
    let messages = work.iter().flat_map(|work| work.messages.iter().chain(&work.persisted_messages));
    messages.map(|message| message.r#type()).collect()
}

#[test]
fn it_applies_what_it_is_sent_and_acknowledges_nothing() {
    let mut member = observer(|_| {});
    member.step(append(3, 2, (0, 0), vec![entry(1, 1), entry(2, 2)])).expect("the first entries");
    let work = settle(&mut member);
    let applied: Vec<u64> = work.iter().flat_map(|work| work.committed.iter().map(|entry| entry.index())).collect();
    assert_eq!((applied, said(&work)), (vec![1, 2], vec![]));
    let status = member.status();
    assert_eq!((status.role, status.leader, status.term), (Role::Follower, 3, 2));
    assert_eq!((status.voter, status.learner, status.alone, status.serves_reads), (false, false, false, false));
    // No time passes that would make it a candidate.
    for _ in 0..200 {
        member.tick();
    }
    let work = settle(&mut member);
    assert_eq!((said(&work), member.status().role), (vec![], Role::Follower));
    assert!(member.campaign().is_err() || said(&settle(&mut member)).is_empty());
    assert_eq!(member.status().role, Role::Follower);
}

#[test]
fn it_takes_nothing_that_members_say_to_each_other() {
    let mut member = observer(|_| {});
    member.step(append(3, 2, (0, 0), vec![entry(1, 2)])).expect("an entry");
    settle(&mut member);
    for kind in [
        MessageType::MsgVote,
        MessageType::MsgPreVote,
        MessageType::MsgVoteResp,
        MessageType::MsgAppResp,
        MessageType::MsgHeartbeatResp,
        MessageType::MsgTimeoutNow,
        MessageType::MsgTransferLeader,
        MessageType::MsgReadIndex,
    ] {
        let vote = raftpb::Message { index: Some(9), log_term: Some(9), ..message(kind, 3, 9) };
        assert!(matches!(member.step(vote), Err(Error::Message(Refusal::Type(_)))), "{kind:?}");
        assert_eq!(said(&settle(&mut member)), [], "{kind:?}");
    }
    assert_eq!((member.status().term, member.status().leader), (2, 3));
}

#[test]
fn entries_continue_its_log_or_are_refused() {
    let mut member = observer(|_| {});
    member.step(append(3, 2, (0, 0), vec![entry(1, 1), entry(2, 2)])).expect("entries");
    settle(&mut member);
    for before in [(3, 2), (1, 1), (2, 1), (2, 3), (0, 0)] {
        let refused = member.step(append(3, 3, before, vec![entry(before.0 + 1, 3)]));
        assert!(matches!(refused, Err(Error::Message(Refusal::NotNext { last: 2, ours: 2, .. }))), "{before:?}");
    }
    assert!(member.proof().is_none(), "an observer does not end over what it is told");
    // What is committed is, even if its sender knows of an older term only.
    member.step(message(MessageType::MsgHeartbeat, 4, 7)).expect("another leader");
    member.step(append(3, 2, (2, 2), vec![entry(3, 2)])).expect("an entry by way of a member that is behind");
    settle(&mut member);
    let status = member.status();
    assert_eq!((status.applied, status.leader, status.term), (3, 3, 7));
    // Nobody leads, but entries still come.
    member.step(message(MessageType::MsgHeartbeat, 0, 7)).expect("no leader");
    member.step(append(0, 7, (3, 2), vec![entry(4, 7)])).expect("an entry");
    settle(&mut member);
    assert_eq!((member.status().applied, member.status().leader), (4, 0));
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    let mut member = observer(|_| {});
    for term in [u64::MAX, u64::MAX >> 1, 1 << 60] {
        assert!(member.step(message(MessageType::MsgHeartbeat, 3, term)).is_err(), "{term}");
        assert!(member.step(append(3, term, (0, 0), vec![entry(1, 1)])).is_err(), "{term}");
    }
    assert!(member.step(message(MessageType::MsgHeartbeat, OWN, 3)).is_err(), "it leads nobody");
    assert!(member.step(append(OWN, 3, (0, 0), vec![entry(1, 1)])).is_err());
    settle(&mut member);
    assert_eq!((member.status().term, member.status().leader), (0, 0));
}

#[test]
fn a_snapshot_replaces_everything_and_names_it_nowhere() {
    let mut member = observer(|_| {});
    member.step(append(3, 2, (0, 0), vec![entry(1, 1)])).expect("an entry");
    settle(&mut member);
    member.step(snapshot(3, 4, (50, 4), &[1, 2, 3])).expect("a snapshot");
    let work = settle(&mut member);
    let taken: Vec<_> = work.iter().filter_map(|work| work.snapshot.as_ref()?.metadata.clone()).collect();
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].index(), taken[0].conf_state.clone()), (50, Some(conf_state(&[1, 2, 3], &[]))));
    assert_eq!((member.conf_state(), said(&work)), (&conf_state(&[1, 2, 3], &[]), vec![]));
    member.step(append(3, 4, (50, 4), vec![entry(51, 4)])).expect("it goes on from there");
    settle(&mut member);
    assert_eq!(member.status().applied, 51);
    // One that has it as a member is somebody else's.
    assert!(member.step(snapshot(3, 4, (60, 4), &[1, OWN])).is_err());
    // And a second one is taken, though it is a learner in its own eyes.
    member.step(snapshot(3, 4, (90, 4), &[1, 2])).expect("another snapshot");
    settle(&mut member);
    assert_eq!((member.status().applied, member.conf_state()), (90, &conf_state(&[1, 2], &[])));
}

#[test]
fn it_follows_changes_of_members() {
    let mut member = observer(|_| {});
    let change = |index, kind: raftpb::ConfChangeType, id| raftpb::Entry {
        r#type: Some(raftpb::EntryType::EntryConfChange as i32),
        data: Some(
            api::Message::encode_to_vec(&raftpb::ConfChange {
                r#type: Some(kind as i32),
                node_id: Some(id),
                ..Default::default()
            })
            .into(),
        ),
        ..entry(index, 1)
    };
    use raftpb::ConfChangeType::{ConfChangeAddLearnerNode, ConfChangeAddNode, ConfChangeRemoveNode};
    let entries = vec![
        change(1, ConfChangeAddNode, 1),
        change(2, ConfChangeAddNode, 2),
        change(3, ConfChangeAddLearnerNode, 3),
        change(4, ConfChangeRemoveNode, 1),
        // Nobody adds an observer under its id; if somebody does, it stays what it is.
        change(5, ConfChangeAddNode, OWN),
    ];
    member.step(append(2, 1, (0, 0), entries)).expect("entries");
    let work = settle(&mut member);
    assert_eq!((member.conf_state(), said(&work)), (&conf_state(&[2], &[3]), vec![]));
    assert!(!member.status().voter && !member.status().learner && !member.status().sole_voter);
    for _ in 0..100 {
        member.tick();
    }
    assert_eq!((said(&settle(&mut member)), member.status().role), (vec![], Role::Follower));
}

#[test]
fn questions_and_proposals_go_to_the_leader_that_it_knows_of() {
    let mut member = observer(|_| {});
    assert_eq!(member.read_index(), None, "nobody can be asked");
    assert!(!member.takes_proposals());
    member.step(append(3, 2, (0, 0), vec![entry(1, 2)])).expect("an entry");
    settle(&mut member);
    let number = member.read_index().expect("a leader is known");
    member.propose(vec![Bytes::from_static(b"put")]).expect("it is passed on");
    let work = settle(&mut member);
    let mut asked = said(&work);
    asked.sort();
    assert_eq!(asked, [MessageType::MsgProp, MessageType::MsgReadIndex]);
    let question = work
        .iter()
        .flat_map(|work| work.messages.iter().chain(&work.persisted_messages))
        .find(|message| message.r#type() == MessageType::MsgReadIndex)
        .expect("a question");
    let answer = raftpb::Message {
        index: Some(7),
        entries: question.entries.clone(),
        ..message(MessageType::MsgReadIndexResp, 3, 2)
    };
    member.step(answer.clone()).expect("an answer");
    let reads: Vec<(u64, u64)> = settle(&mut member).iter().flat_map(|work| work.reads.clone()).collect();
    assert_eq!(reads, [(number, 7)]);
    // The same answer counts once.
    member.step(answer).expect("an answer");
    assert!(settle(&mut member).iter().all(|work| work.reads.is_empty()));
    // What another observer proposes goes on as well.
    let proposal = raftpb::Message {
        entries: vec![raftpb::Entry { data: Some(Bytes::from_static(b"put")), ..Default::default() }],
        ..message(MessageType::MsgProp, 99, 0)
    };
    member.step(proposal.clone()).expect("a proposal");
    assert_eq!(said(&settle(&mut member)), [MessageType::MsgProp]);
    // Its own does not, when it comes back.
    member.step(raftpb::Message { from: Some(OWN), ..proposal }).expect("its own proposal");
    assert_eq!(said(&settle(&mut member)), []);
}

/// What it followed was a candidate of a later term that nobody else heard of. The term of the others may stay for months.
#[test]
fn a_leader_of_an_older_term_counts_as_well() {
    for first in [MessageType::MsgHeartbeat, MessageType::MsgApp] {
        let mut member = observer(|_| {});
        member.step(append(3, 2, (0, 0), vec![entry(1, 2)])).expect("an entry");
        settle(&mut member);
        member.step(message(MessageType::MsgHeartbeat, 0, 4)).expect("its source is a candidate");
        settle(&mut member);
        assert!(!member.takes_proposals());
        let word = if first == MessageType::MsgApp {
            append(5, 3, (1, 2), vec![entry(2, 3)])
        } else {
            message(MessageType::MsgHeartbeat, 5, 3)
        };
        member.step(word).expect("the next source has a leader");
        settle(&mut member);
        assert!(member.takes_proposals(), "{first:?}");
        assert_eq!((member.status().leader, member.status().term), (5, 4), "{first:?}");
    }
}

#[test]
fn all_of_its_log_is_committed_at_a_start() {
    let member = observer(|restored| {
        restored.hard_state = raftpb::HardState { term: Some(4), vote: Some(0), commit: Some(6) };
        restored.entries = (6..=20).map(|index| entry(index, 3)).collect();
        (restored.applied, restored.applied_term) = (5, 2);
        restored.conf_state = conf_state(&[1, 2, 3], &[]);
    });
    assert_eq!((member.status().committed, member.last_entry()), (20, (20, 3)));
}

#[test]
fn what_was_applied_before_a_start_still_shows_its_history() {
    let restarted = |applied: u64| {
        observer(|restored| {
            restored.newest_applied = (1..=applied).map(|index| entry(index, 3)).collect();
            restored.entries = (applied + 1..=20).map(|index| entry(index, 3)).collect();
            (restored.applied, restored.applied_term) = (applied, 3);
            restored.conf_state = conf_state(&[1, 2, 3], &[]);
        })
    };
    let whole = restarted(0).tail(20);
    assert_eq!(whole.len(), TAIL_MAX);
    let mut stopped = restarted(20);
    assert_eq!((stopped.tail(20), restarted(15).tail(20)), (whole.clone(), whole.clone()));
    assert_eq!((stopped.tail(18)[..10].to_vec(), stopped.tail(21)), (whole[2..12].to_vec(), vec![]));
    // It goes on behind them.
    stopped.step(append(3, 3, (20, 3), vec![entry(21, 3)])).expect("an entry");
    settle(&mut stopped);
    assert_eq!(stopped.tail(21)[1..], whole[..TAIL_MAX - 1]);
    // What is trimmed in between breaks the row.
    stopped.trim(21);
    stopped.step(append(3, 3, (21, 3), vec![entry(22, 3)])).expect("an entry");
    settle(&mut stopped);
    assert_eq!(stopped.tail(22).len(), 1);
}

#[test]
fn what_a_member_has_for_an_observer() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.member(1).campaign().expect("a voter may");
    cluster.settle();
    for _ in 0..10 {
        cluster.member(1).propose(vec![Bytes::from_static(b"x")]).expect("a leader takes it");
        cluster.settle();
    }
    for id in [1, 2] {
        let applied = cluster.one(id).applied_index;
        let member = cluster.member(id);
        let (last, term) = member.last_entry();
        assert_eq!(member.stretch(last, term, applied, 1 << 20), Stretch::Entries(Vec::new()));
        assert_eq!(member.stretch(last + 1, term, applied, 1 << 20), Stretch::Behind);
        assert_eq!(member.stretch(last, term + 1, applied, 1 << 20), Stretch::Differs(term));
        let Stretch::Entries(entries) = member.stretch(5, 1, applied, 1 << 20) else { panic!("they are there") };
        assert_eq!(entries.iter().map(|entry| entry.index()).collect::<Vec<_>>(), (6..=last).collect::<Vec<_>>());
        let Stretch::Entries(entries) = member.stretch(5, 1, applied, 1) else { panic!("they are there") };
        assert_eq!(entries.len(), 1, "one at least");
        // The observer shows what its last entries are.
        let tail = member.tail(last);
        assert!((10..=TAIL_MAX).contains(&tail.len()), "{}", tail.len());
        assert_eq!((member.tail(last - 2), member.tail(last + 1)), (tail[2..].to_vec(), Vec::new()));
        assert_eq!((member.differs(last, &tail, last), member.differs(last, &[], last)), (None, None));
        assert_eq!(member.differs(last - 2, &tail[2..], last), None);
        assert_eq!(
            member.differs(last + 3, &[&[1, 2, 3], &tail[..]].concat(), last),
            None,
            "what is not here is not compared"
        );
        let other: Vec<u64> = tail.iter().enumerate().map(|(at, one)| if at == 4 { one ^ 1 } else { *one }).collect();
        assert_eq!(member.differs(last, &other, last), Some(last - 4));
        // What is here may still be replaced.
        assert_eq!(
            (member.differs(last, &other, last - 4), member.differs(last, &other, last - 5)),
            (Some(last - 4), None)
        );
        // What is not applied is not given away.
        let Stretch::Entries(entries) = member.stretch(5, 1, 8, 1 << 20) else { panic!("they are there") };
        assert_eq!(entries.last().map(|entry| entry.index()), Some(8));
        member.trim(9);
        assert_eq!(member.stretch(3, 1, applied, 1 << 20), Stretch::Trimmed, "from before the start");
        assert_eq!(member.stretch(8, term, applied, 1 << 20), Stretch::Trimmed);
        assert_eq!(member.stretch(8, term + 5, applied, 1 << 20), Stretch::Differs(term), "its term is still known");
        assert!(matches!(member.stretch(9, term, applied, 1 << 20), Stretch::Entries(_)));
    }
}
