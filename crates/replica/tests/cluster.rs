//! Several members: election, replication, reads, hand-over, changes, snapshots for those that lag.

mod common;

use api::raftpb::{self, ConfChangeType, MessageType};
use bytes::Bytes;
use common::Cluster;
use replica::{Config, Error, Member, Mode, Restored, Role};

#[test]
fn a_leader_is_elected_and_replicates() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.tick(40);
    let leader = cluster.leader();
    assert_ne!(leader, 0, "the clock alone leads to an election");
    cluster.propose(leader, "x");
    cluster.tick(2);
    cluster.assert_all_applied(&["x"]);
    for id in 1..=3 {
        let status = cluster.member(id).status();
        assert_eq!((status.leader, status.voter, status.learner), (leader, true, false));
    }
    let matched: Vec<u64> = cluster.member(leader).progress().iter().map(|member| member.matched).collect();
    assert_eq!(matched[0], matched[1]);
    assert_eq!(matched[1], matched[2]);
}

#[test]
fn a_notice_of_the_commit_index_is_not_answered_but_a_lost_answer_is_made_up_for() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    let matched = |cluster: &mut Cluster, id: u64| cluster.member(1).progress()[id as usize - 1].matched;
    cluster.member(1).propose(vec![Bytes::from_static(b"x")]).expect("a leader");
    let mut answers = 0;
    cluster.cut = vec![(3, 1)];
    while let Some(message) = {
        for id in 1..=3 {
            while cluster.member(id).has_work() {
                cluster.work(id);
            }
        }
        cluster.wire.pop_front()
    } {
        answers += u32::from(message.r#type() == MessageType::MsgAppResp && message.from() == 2);
        let to = message.to();
        if message.from() != 3 {
            cluster.member(to).step(message).expect("honest");
        }
    }
    assert_eq!(answers, 1);
    assert!(matched(&mut cluster, 3) < matched(&mut cluster, 2));
    cluster.cut.clear();
    cluster.tick(3);
    assert_eq!(matched(&mut cluster, 3), matched(&mut cluster, 2));
    cluster.assert_all_applied(&["x"]);
}

/// A message to a follower was lost, so the leader sends it one append at a time. A notice of the commit index is one of those, but
/// is not answered.
#[test]
fn a_follower_that_was_sent_a_notice_while_probed_is_sent_what_follows_without_waiting_for_the_clock() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.member(1).propose(vec![Bytes::from_static(b"x")]).expect("a leader");
    // The follower has the entry, and the leader's disk is still to come.
    let work = cluster.member(1).work();
    let append = work.messages.iter().find(|message| message.to() == 3).expect("it is sent").clone();
    cluster.member(3).step(append).expect("honest");
    cluster.work(3);
    let answer = cluster.wire.pop_front().expect("it has it");
    cluster.member(1).step(answer).expect("honest");
    cluster.member(1).report_unreachable(3);
    cluster.member(1).persisted(work.number);
    cluster.wire.extend(work.messages.into_iter().filter(|message| message.to() != 3));
    cluster.settle();
    cluster.assert_all_applied(&["x"]);
    cluster.propose(1, "y");
    cluster.assert_all_applied(&["x", "y"]);
}

#[test]
fn a_candidate_of_an_old_term_is_told_the_new_one() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    let term = cluster.member(1).status().term;
    let vote = raftpb::Message {
        r#type: Some(MessageType::MsgVote as i32),
        from: Some(3),
        to: Some(2),
        term: Some(term - 1),
        index: Some(5),
        log_term: Some(1),
        ..Default::default()
    };
    cluster.member(2).step(vote).expect("honest");
    let work = cluster.member(2).work();
    let said: Vec<_> = work.messages.iter().chain(&work.persisted_messages).collect();
    assert_eq!(said.len(), 1);
    assert_eq!((said[0].r#type(), said[0].to(), said[0].term()), (MessageType::MsgVoteResp, 3, term));
    assert!(said[0].reject());
    assert_eq!((said[0].log_term(), said[0].index()), (term, 6));
}

#[test]
fn a_candidate_that_lacks_entries_is_told_so() {
    for kind in [MessageType::MsgVote, MessageType::MsgPreVote] {
        let mut cluster = Cluster::new(&[1, 2, 3]);
        cluster.elect(1);
        let term = cluster.member(1).status().term;
        // The connection to the leader broke, and nobody leads any more.
        cluster.cut = vec![(1, 2), (2, 1), (2, 3), (3, 2)];
        cluster.tick(40);
        let own = cluster.member(2).status().term;
        let vote = raftpb::Message {
            r#type: Some(kind as i32),
            from: Some(3),
            to: Some(2),
            term: Some(own + 1),
            index: Some(5),
            log_term: Some(1),
            ..Default::default()
        };
        cluster.wire.clear();
        cluster.member(2).step(vote).expect("honest");
        let work = cluster.member(2).work();
        let said: Vec<_> = work.messages.iter().chain(&work.persisted_messages).collect();
        let refusals: Vec<_> = said.iter().filter(|message| message.reject()).collect();
        assert_eq!(refusals.len(), 1, "{kind:?}: {said:?}");
        assert_eq!((refusals[0].log_term(), refusals[0].index()), (term, 6), "{kind:?}");
    }
}

#[test]
fn the_same_seeds_elect_the_same_leader() {
    let run = || {
        let mut cluster = Cluster::new(&[1, 2, 3]);
        cluster.tick(60);
        (cluster.leader(), cluster.member(1).status())
    };
    assert_eq!(run(), run());
}

#[test]
fn followers_forward_proposals_in_bounded_messages() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.settle();
    assert!(matches!(cluster.member(2).propose(vec![Bytes::from_static(b"x")]), Err(Error::Dropped)));
    cluster.elect(1);
    let large: Vec<Bytes> = (0..5).map(|_| Bytes::from(vec![b'v'; 700_000])).collect();
    cluster.member(2).propose(large).expect("there is a leader");
    let work = cluster.member(2).work();
    let sizes: Vec<usize> = work.persisted_messages.iter().map(|message| message.entries.len()).collect();
    assert_eq!(sizes, [1; 5]);
    cluster.wire.extend(work.persisted_messages);
    cluster.member(2).persisted(work.number);
    cluster.tick(2);
    assert!(cluster.members.values().all(|one| one.applied.len() == 5));
}

#[test]
fn any_member_gets_a_read_index() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.settle();
    assert_eq!(cluster.member(2).read_index(), None, "nobody could tell");
    cluster.elect(1);
    cluster.propose(1, "x");
    for id in 1..=3 {
        let number = cluster.member(id).read_index().expect("there is a leader");
        cluster.settle();
        let committed = cluster.member(1).status().committed;
        assert_eq!(cluster.one(id).reads, [(number, committed)]);
    }
}

#[test]
fn a_read_index_that_comes_early_is_answered_when_the_leader_is_settled() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.settle();
    // Elected by 3, but what 3 sends about entries is lost: nothing of the term is committed.
    cluster.member(1).campaign().expect("it may");
    while cluster.member(1).status().role != Role::Leader {
        for id in 1..=3 {
            while cluster.member(id).has_work() {
                cluster.work(id);
            }
        }
        let message = cluster.wire.pop_front().expect("an election goes on");
        let to = message.to();
        cluster.member(to).step(message).expect("honest");
    }
    let context = Bytes::from_static(b"context!");
    let read = raftpb::Message {
        r#type: Some(MessageType::MsgReadIndex as i32),
        from: Some(2),
        to: Some(1),
        entries: vec![raftpb::Entry { data: Some(context), ..Default::default() }],
        ..Default::default()
    };
    cluster.member(1).step(read).expect("honest");
    // Delivered with the rest; member 2 did not ask, so it drops the answer, but it must have come.
    let mut answered = false;
    while let Some(message) = {
        for id in 1..=3 {
            while cluster.member(id).has_work() {
                cluster.work(id);
            }
        }
        cluster.wire.pop_front()
    } {
        answered |= message.r#type() == MessageType::MsgReadIndexResp && message.to() == 2;
        let to = message.to();
        cluster.member(to).step(message).expect("honest");
    }
    assert!(answered);
}

#[test]
fn leadership_is_handed_over() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    assert!(matches!(cluster.member(2).transfer(3), Err(Error::NotLeader)));
    assert!(matches!(cluster.member(1).transfer(9), Err(Error::NotVoter(9))));
    cluster.member(1).transfer(1).expect("nothing to do");
    let successor = cluster.member(1).successor().expect("there are others");
    cluster.member(1).transfer(successor).expect("a voter");
    assert_eq!(cluster.member(1).status().transferee, successor);
    assert!(matches!(cluster.member(1).propose(vec![Bytes::from_static(b"x")]), Err(Error::Dropped)));
    // What a follower proposes to the one that leads no longer gets to the one that does.
    let follower = 5 - successor;
    cluster.member(follower).propose(vec![Bytes::from_static(b"late")]).expect("it knows of a leader");
    while cluster.member(follower).has_work() {
        cluster.work(follower);
    }
    let late = cluster.wire.pop_back().expect("it is on its way");
    assert_eq!((late.r#type(), late.to()), (MessageType::MsgProp, 1));
    cluster.member(1).step(late).expect("honest");
    cluster.settle();
    assert_eq!(cluster.leader(), successor);
    cluster.propose(successor, "x");
    cluster.tick(2);
    cluster.assert_all_applied(&["late", "x"]);
}

#[test]
fn a_leader_whose_links_broke_is_replaced_without_the_random_wait() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.tick(1);
    for id in [2, 3] {
        cluster.cut.extend([(1, id), (id, 1)]);
        cluster.member(id).report_unreachable(1);
    }
    cluster.tick(10);
    assert_eq!(cluster.member(2).status().leader, 1, "not before the time-out is over");
    cluster.tick(2);
    assert_eq!(cluster.member(2).status().role, Role::Leader);
    assert_eq!(cluster.member(3).status().leader, 2);
}

#[test]
fn a_transfer_to_a_dead_member_is_given_up() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.cut = vec![(1, 3), (3, 1)];
    cluster.propose(1, "x");
    cluster.member(1).transfer(3).expect("a voter");
    cluster.tick(11);
    assert_eq!(cluster.member(1).status().transferee, 0);
    cluster.propose(1, "y");
}

#[test]
fn what_a_follower_proposed_during_a_transfer_is_dropped_when_nobody_leads_for_long() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.member(2).propose(vec![Bytes::from_static(b"late")]).expect("it knows of a leader");
    while cluster.member(2).has_work() {
        cluster.work(2);
    }
    let late = cluster.wire.pop_back().expect("it is on its way");
    cluster.cut = vec![(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)];
    // Until the leader has asked itself once who answers; the next time nobody does.
    cluster.tick(11);
    cluster.member(1).transfer(3).expect("a voter");
    cluster.member(1).step(late).expect("honest");
    cluster.tick(100);
    assert_eq!(cluster.member(1).status().leader, 0);
    cluster.cut.clear();
    cluster.tick(100);
    let leader = cluster.leader();
    assert_ne!(leader, 0);
    cluster.propose(leader, "x");
    cluster.tick(2);
    cluster.assert_all_applied(&["x"]);
}

#[test]
fn learners_follow_and_are_promoted() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.propose(1, "x");
    cluster.start(4, replica::Restored::default());
    cluster.change(1, ConfChangeType::ConfChangeAddLearnerNode, 4);
    cluster.tick(2);
    assert_eq!(cluster.snapshots.len(), 0);
    assert!(cluster.member(1).wants_snapshot(), "the entries before the first one in memory are needed");
    assert!(cluster.member(1).progress().iter().any(|member| member.id == 4 && member.learner));
    send_snapshot(&mut cluster, 1, 4);
    cluster.tick(2);
    let status = cluster.member(4).status();
    assert_eq!((status.voter, status.learner, status.leader), (false, true, 1));
    cluster.propose(4, "y");
    cluster.tick(2);
    cluster.assert_all_applied(&["x", "y"]);
    cluster.tick(100);
    assert_eq!(cluster.leader(), 1, "a learner never stands");
    cluster.change(1, ConfChangeType::ConfChangeAddNode, 4);
    cluster.tick(1);
    assert_eq!(cluster.member(4).conf_state().voters.len(), 4);
    assert!(cluster.member(4).status().voter);
}

/// Of what the only voter has committed it may have applied less than its learner, which answers clients, too. So may a member that has
/// just been removed.
#[test]
fn only_a_member_that_never_told_others_more_than_it_has_applied_reads_by_itself() {
    let mut cluster = Cluster::new(&[1]);
    cluster.elect(1);
    cluster.propose(1, "x");
    assert!(cluster.member(1).status().serves_local_reads(), "nobody else is there");
    cluster.start(2, replica::Restored::default());
    cluster.change(1, ConfChangeType::ConfChangeAddLearnerNode, 2);
    send_snapshot(&mut cluster, 1, 2);
    cluster.tick(2);
    assert_eq!(cluster.one(2).applied, ["x"]);
    let status = cluster.member(1).status();
    assert!(status.serves_reads && status.sole_voter && !status.serves_local_reads(), "{status:?}");

    // The learner's removal, and an entry after it, are committed, and the learner knows. The leader applies the removal first.
    let removal = raftpb::ConfChange {
        r#type: Some(ConfChangeType::ConfChangeRemoveNode as i32),
        node_id: Some(2),
        ..Default::default()
    };
    let leader = cluster.member(1);
    leader.propose_conf_change(&removal).expect("a leader takes it");
    leader.propose(vec![Bytes::from_static(b"y")]).expect("a leader takes it");
    let mut committed = Vec::new();
    while leader.has_work() {
        let work = leader.work();
        committed.extend(work.committed);
        leader.persisted(work.number);
    }
    let [first, second] = [committed[0].index(), committed[1].index()];
    leader.apply_conf_change(&removal).expect("a valid change");
    leader.applied(first);
    assert!(!leader.status().serves_local_reads(), "entry {second} may be applied by the removed one");
    leader.applied(second);
    assert!(leader.status().serves_local_reads(), "alone, and level with what it told");

    // From here on nobody else hears of anything.
    leader.propose(vec![Bytes::from_static(b"z")]).expect("a leader takes it");
    while leader.has_work() {
        let work = leader.work();
        leader.persisted(work.number);
    }
    let status = leader.status();
    assert!(status.committed > status.applied && status.serves_local_reads(), "{status:?}");
}

/// Captures, offers and delivers a snapshot as the shells of two members would.
fn send_snapshot(cluster: &mut Cluster, from: u64, to: u64) {
    let metadata = cluster.metadata(from);
    let state = cluster.one(from).applied.clone();
    cluster.member(from).offer_snapshot(&metadata);
    cluster.tick(2);
    let message = cluster.snapshots.pop().expect("the leader names the snapshot");
    assert_eq!(message.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref()), Some(&metadata));
    let receiver = cluster.members.get_mut(&to).expect("it is there");
    receiver.snapshots.insert(metadata.index(), state);
    receiver.member.step(message).expect("honest");
    cluster.settle();
    cluster.member(from).report_snapshot(to, true);
    cluster.member(from).withdraw_snapshot();
}

#[test]
fn a_follower_that_lags_behind_the_log_gets_a_snapshot() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.cut = vec![(1, 3), (3, 1)];
    for _ in 0..20 {
        cluster.propose(1, "x");
    }
    let applied = cluster.one(1).applied_index;
    cluster.member(1).trim(applied);
    assert_eq!((cluster.member(1).log_len(), cluster.member(1).log_bytes()), (0, 0));
    cluster.cut.clear();
    cluster.tick(5);
    assert!(cluster.member(1).wants_snapshot());
    send_snapshot(&mut cluster, 1, 3);
    cluster.tick(2);
    cluster.propose(1, "y");
    cluster.tick(2);
    assert_eq!(cluster.one(3).applied.len(), 21);
    let progress = cluster.member(1).progress();
    assert!(progress.iter().all(|member| member.mode == Mode::Replicate && member.matched == progress[0].matched));
    // It can lead from there: everything it needs is known to it.
    cluster.member(1).transfer(3).expect("a voter");
    cluster.settle();
    assert_eq!(cluster.leader(), 3);
}

#[test]
fn a_broken_transfer_of_a_snapshot_is_tried_again() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.cut = vec![(1, 3), (3, 1)];
    cluster.propose(1, "x");
    let applied = cluster.one(1).applied_index;
    cluster.member(1).trim(applied);
    cluster.cut.clear();
    cluster.tick(5);
    let metadata = cluster.metadata(1);
    cluster.member(1).offer_snapshot(&metadata);
    cluster.tick(2);
    assert_eq!(cluster.snapshots.len(), 1);
    cluster.tick(20);
    assert_eq!(cluster.snapshots.len(), 1, "one at a time");
    cluster.member(1).report_snapshot(3, false);
    cluster.tick(3);
    assert_eq!(cluster.snapshots.len(), 2);
}

#[test]
fn a_removed_leader_steps_down_and_another_takes_over() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    // Its attempt to hand over first fails.
    let removal = raftpb::ConfChange {
        r#type: Some(ConfChangeType::ConfChangeRemoveNode as i32),
        node_id: Some(1),
        ..Default::default()
    };
    assert!(matches!(cluster.member(1).propose_conf_change(&removal), Err(Error::Dropped)));
    while cluster.member(1).has_work() {
        cluster.work(1);
    }
    cluster.wire.retain(|message| message.r#type() != MessageType::MsgTimeoutNow);
    cluster.tick(11);
    assert_eq!(cluster.leader(), 1);
    cluster.change(1, ConfChangeType::ConfChangeRemoveNode, 1);
    cluster.tick(30);
    assert_ne!(cluster.member(1).status().role, Role::Leader);
    let leader = [2, 3].into_iter().find(|id| cluster.member(*id).status().role == Role::Leader);
    let leader = leader.expect("one of the others leads");
    cluster.propose(leader, "x");
    cluster.tick(2);
    assert_eq!(cluster.one(5 - leader).applied, ["x"]);
    assert_eq!(cluster.one(1).applied.len(), 0);
    assert!(!cluster.member(1).status().voter);
}

/// Members 1 and 2 without pre-vote, of which the second has an entry more, and the voters that each knows of.
fn one_lacks_an_entry(seed: u64, voters: [&[u64]; 2]) -> Cluster {
    let mut cluster = Cluster::new(&[1, 2]);
    for (id, voters) in [1, 2].into_iter().zip(voters) {
        let entry = raftpb::Entry { index: Some(6), term: Some(1), ..Default::default() };
        let restored = Restored {
            applied: 5,
            applied_term: 1,
            hard_state: raftpb::HardState { term: Some(1), vote: None, commit: Some(5) },
            entries: if id == 2 { vec![entry] } else { Vec::new() },
            conf_state: common::conf_state(voters, &[]),
            ..Restored::default()
        };
        let config = Config { pre_vote: false, seed: seed * 7919 + id * 104_729, ..common::config(id) };
        cluster.members.get_mut(&id).expect("it is there").member = Member::new(&config, restored).expect("it starts");
    }
    cluster
}

/// Without pre-vote, each election restarts the timeouts of the others. A member that lacks entries could do that for
/// long if it were as quick as they are after one of them refused it.
#[test]
fn a_member_that_was_refused_stands_after_the_others() {
    for seed in 1..=100 {
        let mut cluster = one_lacks_an_entry(seed, [&[1, 2], &[1, 2]]);
        cluster.tick(40);
        assert_eq!(cluster.leader(), 2, "seed {seed}");
    }
}

/// The member that lacks entries does not know the other yet, asks only one that is gone for votes, and so is refused by nobody.
/// The other is a term behind whenever it asks for this one's vote. It must not be the later of the two each time.
#[test]
fn a_member_that_lacks_entries_lets_one_that_it_does_not_know_stand_first() {
    for seed in 1..=100 {
        let mut cluster = one_lacks_an_entry(seed, [&[1, 3], &[1, 2]]);
        cluster.tick(150);
        assert_eq!(cluster.leader(), 2, "seed {seed}");
    }
}

/// The one that it let stand first may have ended since: it stands again as often as any other.
#[test]
fn a_member_lets_another_stand_first_once() {
    let mut cluster = one_lacks_an_entry(1, [&[1, 3], &[1, 2]]);
    cluster.members.remove(&2);
    cluster.tick(20);
    let term = cluster.member(1).status().term;
    let vote = raftpb::Message {
        r#type: Some(MessageType::MsgVote as i32),
        from: Some(2),
        to: Some(1),
        term: Some(term),
        index: Some(6),
        log_term: Some(1),
        ..Default::default()
    };
    cluster.member(1).step(vote).expect("honest");
    cluster.tick(1_000);
    // Elections after at most 19 ticks, but for the first after at most 29. With 20 to 29 each there were 50 at most.
    assert!(cluster.member(1).status().term - term > 50);
}

/// Of two members the one that leads is removed while it has an entry that the other lacks. That one is refused the vote that it
/// believes to need, and learns with the refusal that it needs none.
#[test]
fn the_last_of_two_members_goes_on_though_the_removed_one_has_more_in_its_log() {
    let mut cluster = Cluster::new(&[1, 2]);
    cluster.elect(1);
    // The word that the removal is in both logs is lost, and the next leader is the one that it removes.
    cluster.cut = vec![(2, 1)];
    let removal = raftpb::ConfChange {
        r#type: Some(ConfChangeType::ConfChangeRemoveNode as i32),
        node_id: Some(2),
        ..Default::default()
    };
    cluster.member(1).propose_conf_change(&removal).expect("a leader takes it");
    cluster.settle();
    cluster.cut.clear();
    cluster.member(1).step_down();
    cluster.member(2).campaign().expect("a voter");
    let mut appends = 0;
    while let Some(message) = {
        for id in [1, 2] {
            while cluster.member(id).has_work() {
                cluster.work(id);
            }
        }
        cluster.wire.pop_front()
    } {
        if message.r#type() == MessageType::MsgApp {
            appends += 1;
            if appends == 1 {
                cluster.member(2).propose(vec![Bytes::from_static(b"x")]).expect("a leader");
            } else {
                // All but the first entry of its term is lost.
                continue;
            }
        }
        let to = message.to();
        cluster.member(to).step(message).expect("honest");
    }
    assert_eq!(cluster.member(2).conf_state().voters, [1]);
    cluster.tick(40);
    assert_eq!((cluster.leader(), &cluster.member(1).conf_state().voters[..]), (1, &[1][..]));
    cluster.propose(1, "y");
    assert_eq!(cluster.one(1).applied, ["y"]);
}

#[test]
fn a_leader_that_is_to_be_removed_hands_over_first() {
    for proposer in [1, 2, 3] {
        let mut cluster = Cluster::new(&[1, 2, 3]);
        cluster.elect(1);
        let change = raftpb::ConfChange {
            r#type: Some(ConfChangeType::ConfChangeRemoveNode as i32),
            node_id: Some(1),
            ..Default::default()
        };
        // A shell tries again after each turn.
        for _ in 0..5 {
            let proposed = cluster.member(proposer).propose_conf_change(&change);
            cluster.settle();
            if proposed.is_ok() {
                break;
            }
        }
        let leader = cluster.leader();
        assert!(leader == 2 || leader == 3, "without a tick of the clock");
        cluster.tick(2);
        assert_eq!(cluster.member(leader).conf_state().voters.len(), 2, "proposed by {proposer}");
        cluster.propose(leader, "x");
    }
}

#[test]
fn a_follower_proposes_a_change_to_a_leader_that_has_just_been_elected() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.member(1).transfer(2).expect("a voter");
    // Up to the moment in which the new leader is heard of, and nothing of its term is committed.
    while cluster.member(3).status().leader != 2 {
        for id in 1..=3 {
            while cluster.member(id).has_work() {
                cluster.work(id);
            }
        }
        let message = cluster.wire.pop_front().expect("an election goes on");
        let to = message.to();
        cluster.member(to).step(message).expect("honest");
    }
    for node in [7, 8] {
        let change = raftpb::ConfChange {
            r#type: Some(ConfChangeType::ConfChangeAddLearnerNode as i32),
            node_id: Some(node),
            ..Default::default()
        };
        cluster.member(3).propose_conf_change(&change).expect("there is a leader");
    }
    cluster.settle();
    cluster.tick(3);
    let mut learners = cluster.member(2).conf_state().learners.clone();
    learners.sort_unstable();
    assert_eq!(learners, [7, 8]);
}

fn removal(node: u64) -> raftpb::ConfChange {
    let kind = ConfChangeType::ConfChangeRemoveNode as i32;
    raftpb::ConfChange { r#type: Some(kind), node_id: Some(node), ..Default::default() }
}

#[test]
fn the_last_voter_stays() {
    let mut cluster = Cluster::new(&[1, 2]);
    cluster.elect(1);
    cluster.member(1).propose_conf_change(&removal(2)).expect("a leader takes it");
    assert!(matches!(cluster.member(1).propose_conf_change(&removal(1)), Err(Error::Dropped)), "one at a time");
    cluster.settle();
    assert!(matches!(cluster.member(1).propose_conf_change(&removal(1)), Err(Error::LastVoter)));
    assert_eq!(cluster.member(1).conf_state().voters, [1]);
    // Asked for by others, all at once: the leader has taken the first when the next ones come.
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    for node in [2, 3, 1] {
        cluster.member(3).propose_conf_change(&removal(node)).expect("there is a leader");
    }
    cluster.settle();
    cluster.tick(3);
    assert_eq!(cluster.member(1).conf_state().voters, [1]);
    cluster.propose(1, "goes on");
}

#[test]
fn a_change_that_was_forwarded_is_judged_when_the_ones_before_it_are_applied() {
    let mut cluster = Cluster::new(&[1, 2, 3, 4]);
    cluster.elect(1);
    for node in [2, 3, 4] {
        cluster.member(4).propose_conf_change(&removal(node)).expect("there is a leader");
    }
    while cluster.member(4).has_work() {
        cluster.work(4);
    }
    while let Some(message) = cluster.wire.pop_front() {
        cluster.member(message.to()).step(message).expect("an honest message");
    }
    let mut judged = Vec::new();
    for _ in 0..2 {
        cluster.member(1).take_forwarded_changes(|change| {
            judged.push(change.node_id());
            true
        });
    }
    assert_eq!(judged, [2], "the others wait for the first");
    cluster.settle();
    assert_eq!(cluster.member(1).conf_state().voters, [1]);
}

#[test]
fn members_come_one_by_one() {
    let mut cluster = Cluster::new(&[1]);
    cluster.elect(1);
    for id in [2, 3] {
        cluster.start(id, replica::Restored::default());
        cluster.change(1, ConfChangeType::ConfChangeAddNode, id);
        cluster.tick(2);
        send_snapshot(&mut cluster, 1, id);
        cluster.tick(2);
    }
    cluster.propose(3, "x");
    cluster.tick(2);
    cluster.assert_all_applied(&["x"]);
    cluster.change(1, ConfChangeType::ConfChangeRemoveNode, 2);
    assert_eq!(cluster.member(1).conf_state().voters, [1, 3]);
}

#[test]
fn a_new_leader_is_silent_until_its_term_is_durable() {
    let mut cluster = Cluster::new(&[1]);
    cluster.elect(1);
    cluster.start(2, replica::Restored::default());
    cluster.change(1, ConfChangeType::ConfChangeAddLearnerNode, 2);
    cluster.tick(2);
    send_snapshot(&mut cluster, 1, 2);
    cluster.tick(2);
    // The only voter loses its office and wins the next election before anything is on its disk.
    cluster.member(1).step_down();
    cluster.settle();
    cluster.member(1).campaign().expect("a voter");
    let work = cluster.member(1).work();
    assert!(work.must_sync && work.messages.is_empty() && !work.persisted_messages.is_empty());
    let status = cluster.member(1).status();
    assert_eq!((status.role, status.serves_reads), (Role::Leader, false));
    cluster.member(1).persisted(work.number);
    cluster.wire.extend(work.persisted_messages);
    cluster.settle();
    assert!(cluster.member(1).status().serves_reads);
}

#[test]
fn a_leader_sends_before_its_own_log_is_durable_but_counts_itself_after() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.cut = vec![(1, 3)];
    cluster.member(1).propose(vec![Bytes::from_static(b"x")]).expect("a leader");
    let work = cluster.member(1).work();
    assert!(work.messages.iter().any(|message| message.to() == 2 && !message.entries.is_empty()));
    let committed = cluster.member(1).status().committed;
    cluster.wire.extend(work.messages);
    cluster.settle();
    assert_eq!(cluster.member(1).status().committed, committed, "one vote of three");
    // Work goes on while the disk is busy.
    cluster.member(1).propose(vec![Bytes::from_static(b"y")]).expect("a leader");
    let next = cluster.member(1).work();
    assert!(next.number > work.number && !cluster.member(1).log_is_durable());
    cluster.wire.extend(next.messages);
    cluster.member(1).persisted(next.number);
    cluster.settle();
    assert_eq!(cluster.member(1).status().committed, committed + 2);
}

#[test]
fn a_leader_without_a_quorum_takes_so_much_and_no_more() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.cut = vec![(1, 2), (1, 3)];
    let large = Bytes::from(vec![0; 64 << 20]);
    let full = (0..8).find_map(|_| cluster.member(1).propose(vec![large.clone()]).err());
    assert!(matches!(full, Some(Error::Full)));
    cluster.tick(25);
    assert_ne!(cluster.member(1).status().role, Role::Leader, "it cannot know whether it still leads");
}

#[test]
fn a_member_whose_log_is_not_durable_does_not_stand() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.member(1).propose(vec![Bytes::from_static(b"x")]).expect("a leader");
    let work = cluster.member(1).work();
    cluster.member(1).step_down();
    for _ in 0..100 {
        cluster.member(1).tick();
    }
    assert_eq!(cluster.member(1).status().role, Role::Follower);
    assert!(matches!(cluster.member(1).campaign(), Err(Error::Dropped)));
    while cluster.member(1).has_work() {
        cluster.work(1);
    }
    cluster.member(1).persisted(work.number);
    for _ in 0..30 {
        cluster.member(1).tick();
    }
    assert_eq!(cluster.member(1).status().role, Role::Candidate);
}

#[test]
fn a_start_after_a_crash_amid_an_installation_drops_what_the_snapshot_replaced() {
    let entry = |index, term| raftpb::Entry { index: Some(index), term: Some(term), ..Default::default() };
    let restored = replica::Restored {
        applied: 10,
        applied_term: 3,
        entries: vec![entry(11, 1), entry(12, 1)],
        hard_state: raftpb::HardState { term: Some(2), vote: Some(9), commit: Some(4) },
        conf_state: common::conf_state(&[1, 2, 3], &[]),
        ..Restored::default()
    };
    let mut cluster = Cluster::default();
    cluster.start(1, restored);
    let status = cluster.member(1).status();
    assert_eq!((status.term, status.committed, cluster.member(1).log_len()), (3, 10, 0));
}
