//! Messages that no honest peer sends: each is refused or does no harm, and none ends the process.

mod common;

use api::raftpb::{self, ConfChangeType, MessageType};
use bytes::Bytes;
use common::{Cluster, conf_state};
use proptest::prelude::*;
use replica::{Error, Mode, Refusal, Role};

fn message(kind: MessageType, from: u64, to: u64, term: u64) -> raftpb::Message {
    raftpb::Message {
        r#type: Some(kind as i32),
        from: Some(from),
        to: Some(to),
        term: Some(term),
        ..Default::default()
    }
}

fn entry(index: u64, term: u64) -> raftpb::Entry {
    raftpb::Entry { index: Some(index), term: Some(term), ..Default::default() }
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    for _ in 0..10 {
        cluster.propose(1, "x");
    }
    cluster.tick(2);
    let applied = cluster.one(2).applied_index;
    cluster.member(2).trim(applied - 3);
    cluster
}

fn refused(result: Result<(), Error>) -> Refusal {
    match result {
        Err(Error::Message(refusal)) => refusal,
        other => panic!("taken: {other:?}"),
    }
}

#[test]
fn each_impossible_field_is_named() {
    let mut cluster = cluster();
    let status = cluster.member(2).status();
    let (term, last) = (status.term, status.committed);
    let member = cluster.member(2);
    let mut step = |message| refused(member.step(message));
    assert!(matches!(step(message(MessageType::MsgHup, 1, 2, term)), Refusal::Type(0)));
    assert!(matches!(step(message(MessageType::MsgStorageApply, 1, 2, term)), Refusal::Type(21)));
    assert!(matches!(
        step(raftpb::Message { r#type: Some(-1), ..message(MessageType::MsgApp, 1, 2, 1) }),
        Refusal::Type(-1)
    ));
    assert!(matches!(step(message(MessageType::MsgHeartbeat, 1, 3, term)), Refusal::Addressee(3)));
    assert!(matches!(step(message(MessageType::MsgHeartbeat, 2, 2, term)), Refusal::Sender));
    assert!(matches!(step(message(MessageType::MsgHeartbeat, 0, 2, term)), Refusal::Sender));
    assert!(matches!(step(message(MessageType::MsgVote, 1, 2, 0)), Refusal::Number));
    assert!(matches!(step(message(MessageType::MsgVote, 1, 2, u64::MAX)), Refusal::Number));
    // The leader's word would end the member: see lost.rs.
    let beyond = raftpb::Message { commit: Some(last + 1), ..message(MessageType::MsgHeartbeat, 3, 2, term) };
    assert!(matches!(step(beyond), Refusal::BeyondLog { .. }));
    let append = |index, log_term, entries| raftpb::Message {
        index: Some(index),
        log_term: Some(log_term),
        entries,
        ..message(MessageType::MsgApp, 3, 2, term)
    };
    assert!(matches!(step(append(last + 100, 0, vec![entry(last + 101, term)])), Refusal::Number));
    assert!(matches!(step(append(last, term, vec![entry(last + 2, term)])), Refusal::Entries));
    assert!(matches!(step(append(last, term, vec![entry(last + 1, term + 1)])), Refusal::Entries));
    assert!(matches!(step(append(last, 1, vec![])), Refusal::ContradictsCommitted { .. }));
    let odd = raftpb::Entry { r#type: Some(77), ..entry(last + 1, term) };
    assert!(matches!(step(append(last, term, vec![odd])), Refusal::Entry));
    assert!(matches!(step(message(MessageType::MsgProp, 1, 2, 0)), Refusal::Entries));
    assert!(matches!(step(message(MessageType::MsgReadIndex, 1, 2, 0)), Refusal::Entries));
    let unreadable = raftpb::Entry {
        r#type: Some(raftpb::EntryType::EntryConfChange as i32),
        data: Some(Bytes::from_static(b"\xff\xff\xff")),
        ..Default::default()
    };
    let proposal = raftpb::Message { entries: vec![unreadable], ..message(MessageType::MsgProp, 3, 2, 0) };
    assert!(matches!(step(proposal), Refusal::Entry));
    let state = |index, term_of, conf_state| raftpb::Message {
        snapshot: Some(raftpb::Snapshot {
            data: None,
            metadata: Some(raftpb::SnapshotMetadata {
                conf_state: Some(conf_state),
                index: Some(index),
                term: Some(term_of),
            }),
        }),
        ..message(MessageType::MsgSnap, 3, 2, term)
    };
    assert!(matches!(step(message(MessageType::MsgSnap, 1, 2, term)), Refusal::Entries));
    assert!(matches!(step(state(last + 5, 0, conf_state(&[1, 2], &[]))), Refusal::Number));
    assert!(matches!(step(state(last + 5, term, conf_state(&[], &[2]))), Refusal::Configuration));
    assert!(matches!(step(state(last + 5, term, conf_state(&[1, 2], &[2]))), Refusal::Configuration));
    assert!(matches!(step(state(last + 5, term, conf_state(&[0, 2], &[]))), Refusal::Configuration));
    assert!(matches!(step(state(last + 5, 1, conf_state(&[1, 2], &[]))), Refusal::ContradictsCommitted { .. }));
    let joint = raftpb::ConfState { voters_outgoing: vec![3], ..conf_state(&[1, 2], &[]) };
    assert!(matches!(step(state(last + 5, term, joint)), Refusal::Configuration));
    let leader = cluster.member(1);
    let answer = raftpb::Message { index: Some(last + 9), ..message(MessageType::MsgAppResp, 2, 1, term) };
    assert!(matches!(refused(leader.step(answer)), Refusal::BeyondLog { .. }));
}

/// The term is written to disk, and a member whose term left none for later elections could not go on, nor start again.
#[test]
fn nobody_can_use_up_the_terms() {
    let mut cluster = cluster();
    let term = cluster.member(2).status().term;
    let from_far = |term| message(MessageType::MsgHeartbeat, 3, 2, term);
    // A little of it was used up by the election.
    let most = term + (1 << 32) - 10;
    for far in [u64::MAX >> 2, most + 100] {
        let refusal = refused(cluster.member(2).step(from_far(far)));
        assert!(matches!(refusal, Refusal::Term { theirs, ours } if (theirs, ours) == (far, term)), "{refusal}");
    }
    assert_eq!(cluster.member(2).status().term, term);
    // What elections could have made of it is taken, but not again and again.
    cluster.member(2).step(from_far(most)).expect("not too far");
    assert!(matches!(refused(cluster.member(2).step(from_far(most + (1 << 20)))), Refusal::Term { .. }));
    // A term that comes of elections is taken at any time.
    cluster.member(2).step(from_far(most + 3)).expect("elections");
    assert_eq!(cluster.member(2).status().term, most + 3);
    // The others follow, and the cluster goes on.
    cluster.settle();
    cluster.tick(60);
    cluster.member(2).step(from_far(most + (1 << 20))).expect("an election timeout has gone by");
    cluster.settle();
    cluster.tick(60);
    let last = cluster.one(1).applied_index;
    let leader = cluster.leader();
    cluster.propose(leader, "y");
    cluster.tick(5);
    assert!(cluster.one(1).applied_index > last);
}

/// One member can be raised again and again by whoever speaks to it alone. The others must be able to follow it, or it could not come back.
#[test]
fn a_member_that_was_raised_is_followed() {
    let mut cluster = cluster();
    let term = cluster.member(1).status().term;
    let far = term + 5 * (1 << 32);
    let wait = |cluster: &mut Cluster| (0..10).for_each(|_| cluster.lenient_tick());
    // Whoever speaks to it alone raises it, one election timeout after the other.
    let tries = (0..100).position(|_| {
        let is_taken = cluster.member(1).step(message(MessageType::MsgHeartbeat, 2, 1, far)).is_ok();
        wait(&mut cluster);
        is_taken
    });
    assert!(tries.is_some_and(|tries| (3..20).contains(&tries)), "taken after {tries:?} tries");
    let follow = (0..100).position(|_| {
        wait(&mut cluster);
        (1..=3).all(|id| cluster.member(id).status().term >= far)
    });
    assert!(follow.is_some_and(|waits| waits < 30), "followed after {follow:?} election timeouts");
    // A term that no elections could have made is refused for as long as it is repeated.
    for _ in 0..1000 {
        let step = cluster.member(1).step(message(MessageType::MsgHeartbeat, 2, 1, u64::MAX >> 2));
        assert!(matches!(refused(step), Refusal::Term { .. }));
        wait(&mut cluster);
    }
    let leader = cluster.leader();
    let last = cluster.one(1).applied_index;
    cluster.propose(leader, "y");
    cluster.tick(5);
    assert!(cluster.one(1).applied_index > last);
}

#[test]
fn votes_that_were_not_asked_for_elect_nobody() {
    let mut cluster = cluster();
    cluster.member(2).campaign().expect("a voter");
    // The pre-vote is won, the vote's own record is not durable yet.
    let term = cluster.member(2).status().term + 1;
    let early = |kind, term| message(kind, 3, 2, term);
    cluster.member(2).step(early(MessageType::MsgPreVoteResp, term)).expect("dropped or counted");
    cluster.member(2).step(early(MessageType::MsgVoteResp, term)).expect("dropped");
    assert_ne!(cluster.member(2).status().role, Role::Leader);
    cluster.settle();
}

/// raft-rs 0.7.0 lets a late rejection move the next index of a follower to what it is known to hold, or before it.
#[test]
fn the_next_index_stays_behind_the_matched_one() {
    let mut cluster = cluster();
    let term = cluster.member(1).status().term;
    cluster.member(1).report_unreachable(3);
    let of_three = |cluster: &mut Cluster| cluster.member(1).progress()[2];
    let before = of_three(&mut cluster);
    assert_eq!((before.mode, before.next), (Mode::Probe, before.matched + 1));
    for (rejected, hint, log_term) in
        [(before.matched, before.matched - 4, 0), (before.matched, 0, 1), (before.matched, before.matched, term)]
    {
        let late = raftpb::Message {
            index: Some(rejected),
            reject: Some(true),
            reject_hint: Some(hint),
            log_term: Some(log_term),
            ..message(MessageType::MsgAppResp, 3, 1, term)
        };
        cluster.member(1).step(late).expect("late, not hostile");
        let after = of_three(&mut cluster);
        assert!(after.next > after.matched, "next {} matched {}", after.next, after.matched);
    }
    cluster.settle();
    cluster.propose(1, "y");
    cluster.tick(2);
    assert_eq!(cluster.one(3).applied.last().map(|data| &data[..]), Some(&b"y"[..]));
}

#[test]
fn a_transfer_request_to_a_follower_is_not_passed_on() {
    let mut cluster = cluster();
    let term = cluster.member(2).status().term;
    cluster.member(2).step(message(MessageType::MsgTransferLeader, 3, 2, term)).expect("dropped");
    cluster.member(2).step(message(MessageType::MsgTransferLeader, 3, 2, term + 1)).expect("dropped");
    cluster.settle();
    assert_eq!(cluster.leader(), 1);
}

fn any_kind() -> impl Strategy<Value = i32> {
    prop_oneof![20 => 2i32..19, 1 => any::<i32>()]
}

/// Numbers around the ones that matter.
fn near() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..24, 1 => Just(u64::MAX), 1 => Just(u64::MAX >> 2), 1 => any::<u64>()]
}

fn any_entry() -> impl Strategy<Value = raftpb::Entry> {
    (near(), near(), 0i32..4, proptest::collection::vec(any::<u8>(), 0..12)).prop_map(|(index, term, kind, data)| {
        raftpb::Entry { index: Some(index), term: Some(term), r#type: Some(kind), data: Some(data.into()) }
    })
}

fn any_snapshot() -> impl Strategy<Value = Option<raftpb::Snapshot>> {
    let ids = || proptest::collection::vec(0u64..6, 0..5);
    proptest::option::of((near(), near(), ids(), ids(), any::<bool>()).prop_map(
        |(index, term, voters, learners, auto)| {
            let conf_state = raftpb::ConfState { auto_leave: auto.then_some(true), ..conf_state(&voters, &learners) };
            raftpb::Snapshot {
                data: None,
                metadata: Some(raftpb::SnapshotMetadata {
                    conf_state: Some(conf_state),
                    index: Some(index),
                    term: Some(term),
                }),
            }
        },
    ))
}

fn any_message() -> impl Strategy<Value = raftpb::Message> {
    let numbers = (0u64..5, near(), near(), near(), near(), near());
    let rest = (any::<bool>(), proptest::collection::vec(any_entry(), 0..4), any_snapshot(), any::<bool>());
    (any_kind(), numbers, rest).prop_map(|(kind, (from, term, log_term, index, commit, hint), rest)| {
        let (reject, mut entries, snapshot, in_order) = rest;
        if in_order {
            for (at, entry) in (1..).zip(&mut entries) {
                entry.index = Some(index.saturating_add(at));
                entry.term = Some(log_term);
            }
        }
        raftpb::Message {
            r#type: Some(kind),
            to: None,
            from: Some(from),
            term: Some(term),
            log_term: Some(log_term),
            index: Some(index),
            entries,
            commit: Some(commit),
            snapshot,
            reject: Some(reject),
            reject_hint: Some(hint),
            ..Default::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Members amid a hostile crowd: they may lose their leader or follow a liar, but they do not fall over.
    #[test]
    fn no_message_ends_the_process(messages in proptest::collection::vec((1u64..4, any_message(), 0usize..3), 1..60)) {
        let mut cluster = cluster();
        for (to, mut message, ticks) in messages {
            message.to = Some(to);
            let state = message.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref());
            let index = state.map_or(0, |metadata| metadata.index());
            if let Some(one) = cluster.members.get_mut(&to) {
                one.snapshots.insert(index, Vec::new());
                let _ = one.member.step(message);
            }
            cluster.lenient_settle();
            for _ in 0..ticks {
                cluster.lenient_tick();
            }
        }
    }
}

#[test]
fn raft_rs_never_decodes_what_peers_propose() {
    let mut cluster = cluster();
    let change = raftpb::ConfChange {
        r#type: Some(ConfChangeType::ConfChangeAddLearnerNode as i32),
        node_id: Some(9),
        context: Some(Bytes::from_static(b"{}")),
        id: None,
    };
    let mut data = api::Message::encode_to_vec(&change);
    // An unknown group nested in itself, which raft-rs' own decoder must not see.
    data.extend([0x7b; 200]);
    data.extend([0x7c; 200]);
    let entry = raftpb::Entry {
        r#type: Some(raftpb::EntryType::EntryConfChange as i32),
        data: Some(data.into()),
        ..Default::default()
    };
    let proposal = raftpb::Message { entries: vec![entry], ..message(MessageType::MsgProp, 2, 1, 0) };
    // prost refuses such nesting, or skips it: either way nothing falls over.
    let _ = cluster.member(1).step(proposal);
    cluster.settle();
}
