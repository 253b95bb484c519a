//! A member whose log is not what it has acknowledged: what proves it, and what does not.

mod common;

use api::raftpb::{self, MessageType};
use common::{Cluster, conf_state, config};
use replica::{Config, Error, Member, Proof, Refusal, Restored, Role};

fn message(kind: MessageType, from: u64, to: u64, term: u64) -> raftpb::Message {
    raftpb::Message {
        r#type: Some(kind as i32),
        from: Some(from),
        to: Some(to),
        term: Some(term),
        ..Default::default()
    }
}

fn heartbeat(from: u64, to: u64, term: u64, commit: u64) -> raftpb::Message {
    raftpb::Message { commit: Some(commit), ..message(MessageType::MsgHeartbeat, from, to, term) }
}

/// One of Cairn's members names the term, too.
fn heartbeat_of(from: u64, to: u64, term: u64, commit: u64, commit_term: u64) -> raftpb::Message {
    raftpb::Message { commit_term: Some(commit_term), ..heartbeat(from, to, term, commit) }
}

fn append(from: u64, to: u64, term: u64, before: (u64, u64), entries: &[(u64, u64)]) -> raftpb::Message {
    let entry =
        |(index, term): &(u64, u64)| raftpb::Entry { index: Some(*index), term: Some(*term), ..Default::default() };
    raftpb::Message {
        index: Some(before.0),
        log_term: Some(before.1),
        entries: entries.iter().map(entry).collect(),
        ..message(MessageType::MsgApp, from, to, term)
    }
}

fn snapshot(from: u64, to: u64, term: u64, place: (u64, u64)) -> raftpb::Message {
    let metadata = raftpb::SnapshotMetadata {
        conf_state: Some(conf_state(&[1, 2, 3], &[])),
        index: Some(place.0),
        term: Some(place.1),
    };
    let snapshot = raftpb::Snapshot { data: None, metadata: Some(metadata) };
    raftpb::Message { snapshot: Some(snapshot), ..message(MessageType::MsgSnap, from, to, term) }
}

/// Entries 6 to 20 of term 3 after a checkpoint of entry 5, of which 15 are committed.
fn restored() -> Restored {
    let entries = (6..=20).map(|index| raftpb::Entry { index: Some(index), term: Some(3), ..Default::default() });
    Restored {
        hard_state: raftpb::HardState { term: Some(4), vote: Some(1), commit: Some(15) },
        entries: entries.collect(),
        applied: 5,
        applied_term: 2,
        conf_state: conf_state(&[1, 2, 3], &[4]),
        ..Restored::default()
    }
}

fn member() -> Member {
    Member::new(&config(2), restored()).expect("it starts")
}

fn proven(member: &mut Member, message: raftpb::Message) -> Proof {
    match member.step(message) {
        Err(Error::LogLost(proof)) => proof,
        other => panic!("not proven: {other:?}"),
    }
}

fn claimed(member: &mut Member, message: raftpb::Message) {
    match member.step(message) {
        Err(Error::Message(refusal)) if refusal.is_claim() => assert_eq!(member.proof(), None),
        other => panic!("not a claim: {other:?}"),
    }
}

fn taken(member: &mut Member, message: raftpb::Message) {
    member.step(message).expect("honest");
    assert_eq!(member.proof(), None);
}

/// All of the cluster is real: the follower is started on an older copy of what it had.
#[test]
fn a_follower_that_is_set_back_ends_at_the_first_heartbeat_and_votes_for_nobody() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    let term = cluster.member(1).status().term;
    for _ in 0..10 {
        cluster.propose(1, "x");
    }
    cluster.tick(2);
    let acknowledged = cluster.one(3).applied_index;
    let copy = Restored { applied: 5, applied_term: 1, conf_state: conf_state(&[1, 2, 3], &[]), ..Restored::default() };
    cluster.start(3, copy);
    cluster.member(1).tick();
    while cluster.member(1).has_work() {
        cluster.work(1);
    }
    let word = cluster.wire.iter().find(|message| message.to() == 3).expect("a heartbeat").clone();
    let proof = proven(cluster.member(3), word);
    assert_eq!(proof, Proof::Lost { leader: 1, term, acknowledged, last: 5 });
    let text = proof.to_string();
    assert!(text.contains(&format!("every entry up to {acknowledged}")) && text.contains("ends at entry 5"), "{text}");
    // It has nothing more to say, whatever it is asked.
    let last = raftpb::Message {
        index: Some(acknowledged),
        log_term: Some(term),
        ..message(MessageType::MsgVote, 2, 3, term + 7)
    };
    assert_eq!(proven(cluster.member(3), last), proof);
    assert!(cluster.member(3).campaign().is_err());
    assert!(cluster.member(3).propose(vec!["y".into()]).is_err());
    assert_eq!(cluster.member(3).read_index(), None);
    for _ in 0..100 {
        cluster.member(3).tick();
    }
    assert!(!cluster.member(3).has_work());
    assert_ne!(cluster.member(3).status().role, Role::Leader);
}

#[test]
fn what_the_leader_of_this_term_or_a_later_one_was_told_is_a_proof() {
    for term in [4, 5, 9] {
        let proof = proven(&mut member(), heartbeat(1, 2, term, 21));
        assert_eq!(proof, Proof::Lost { leader: 1, term, acknowledged: 21, last: 20 });
    }
    // A learner may have been promoted since.
    proven(&mut member(), heartbeat(4, 2, 5, 21));
    // Everything that was acknowledged is there, committed or not; so is what an older leader knew.
    taken(&mut member(), heartbeat(1, 2, 4, 20));
    taken(&mut member(), heartbeat(1, 2, 4, 3));
    taken(&mut member(), heartbeat(1, 2, 3, 21));
}

#[test]
fn another_entry_in_the_place_of_an_acknowledged_one_is_a_proof() {
    for term in [4, 5, 9] {
        let proof = proven(&mut member(), heartbeat_of(1, 2, term, 18, 4));
        assert_eq!(proof, Proof::Replaced { leader: 1, term, acknowledged: 18, theirs: 4, ours: 3 });
        let text = proof.to_string();
        assert!(text.contains("every entry up to 18") && text.contains("of term 4") && text.contains("of term 3"));
    }
    // An old leader's entry may also be of a later term than the one that was committed.
    let mut later = restored();
    later.hard_state.term = Some(7);
    later.entries.iter_mut().skip(10).for_each(|entry| entry.term = Some(6));
    let mut later = Member::new(&config(2), later).expect("it starts");
    let proof = proven(&mut later, heartbeat_of(1, 2, 8, 16, 3));
    assert_eq!(proof, Proof::Replaced { leader: 1, term: 8, acknowledged: 16, theirs: 3, ours: 6 });
    // Where it is committed here, it is also one of the two logs that lost something.
    let contradicted =
        |index, theirs| Proof::Contradicted { leader: 1, term: 5, index, theirs, committed: 15, ours: 3 };
    for (index, theirs) in [(15, 4), (15, 2), (8, 4), (17, 2), (3, 3)] {
        assert_eq!(proven(&mut member(), heartbeat_of(1, 2, 5, index, theirs)), contradicted(index, theirs));
    }
    // And beyond the end it is lost, whatever its term.
    let proof = proven(&mut member(), heartbeat_of(1, 2, 5, 21, 4));
    assert_eq!(proof, Proof::Lost { leader: 1, term: 5, acknowledged: 21, last: 20 });
}

#[test]
fn a_heartbeat_commits_the_entry_that_it_names() {
    let committed = |message: raftpb::Message| {
        let mut member = member();
        taken(&mut member, message);
        member.status().committed
    };
    assert_eq!(committed(heartbeat_of(1, 2, 4, 18, 3)), 18);
    // Etcd's members name no term.
    assert_eq!(committed(heartbeat(1, 2, 4, 18)), 18);
    assert_eq!(committed(heartbeat_of(1, 2, 4, 18, 0)), 18);
    // What was trimmed before the start has no term here any more to compare with, unless it is too late a one.
    assert_eq!(committed(heartbeat_of(1, 2, 4, 5, 2)), 15);
    assert_eq!(committed(heartbeat_of(1, 2, 4, 3, 1)), 15);
    assert_eq!(committed(heartbeat_of(1, 2, 4, 0, 0)), 15);
    // A leader of an older term is not listened to.
    assert_eq!(committed(heartbeat_of(1, 2, 3, 18, 2)), 15);
    // No leader has entries of a later term than its own.
    let impossible = member().step(heartbeat_of(1, 2, 4, 18, 5));
    assert!(matches!(impossible, Err(Error::Message(Refusal::Number))), "{impossible:?}");
}

#[test]
fn a_copy_with_entries_that_lost_an_election_commits_none_of_them() {
    set_back_to_what_lost_an_election(false);
}

/// It stays away for so long that the leader has trimmed what it acknowledged.
#[test]
fn a_leader_knows_the_term_of_what_it_has_trimmed() {
    set_back_to_what_lost_an_election(true);
}

/// All of the cluster is real. The copy ends with entries of a leader that lost an election since.
fn set_back_to_what_lost_an_election(is_trimmed: bool) {
    let voters = [1, 2, 3, 4, 5];
    let mut cluster = Cluster::new(&voters);
    cluster.elect(1);
    cluster.propose(1, "both");
    cluster.tick(2);
    let held = cluster.one(3).applied_index;
    let old = cluster.member(1).status().term;
    // Only member 3 still hears of these.
    let sides = [(1, 2), (1, 4), (1, 5), (3, 2), (3, 4), (3, 5)];
    cluster.cut = sides.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]).collect();
    for _ in 0..4 {
        cluster.propose(1, "old");
    }
    assert_eq!((cluster.member(3).last_index(), cluster.member(3).status().committed), (held + 4, held));
    let entry = |index| raftpb::Entry { index: Some(index), term: Some(old), ..Default::default() };
    let copy = Restored {
        hard_state: raftpb::HardState { term: Some(old), vote: Some(1), commit: Some(held) },
        entries: (held + 1..=held + 4).map(entry).collect(),
        applied: held,
        applied_term: old,
        conf_state: conf_state(&voters, &[]),
        ..Restored::default()
    };
    let mut new = 1;
    while new == 1 {
        [2, 4, 5].into_iter().for_each(|id| cluster.member(id).tick());
        cluster.settle();
        new = cluster.leader();
    }
    cluster.cut.clear();
    cluster.propose(new, "new");
    cluster.tick(5);
    cluster.assert_all_applied(&["both", "new"]);
    let (term, acknowledged) = (cluster.member(new).status().term, cluster.one(3).applied_index);
    assert!(acknowledged < held + 4, "the copy is longer");
    if is_trimmed {
        cluster.cut = [1, 2, 4, 5].into_iter().flat_map(|other| [(3, other), (other, 3)]).collect();
        cluster.propose(new, "newer");
        let applied = cluster.one(new).applied_index;
        assert!(applied > acknowledged);
        cluster.member(new).trim(applied);
        cluster.wire.clear();
    }
    cluster.start(3, copy);
    cluster.member(new).tick();
    while cluster.member(new).has_work() {
        cluster.work(new);
    }
    let word = cluster.wire.iter().find(|message| message.to() == 3).expect("a heartbeat").clone();
    let proof = proven(cluster.member(3), word);
    assert_eq!(proof, Proof::Replaced { leader: new, term, acknowledged, theirs: term, ours: old });
}

#[test]
fn what_anybody_else_says_proves_nothing() {
    // Not in the configuration.
    claimed(&mut member(), heartbeat(9, 2, 5, 21));
    claimed(&mut member(), append(9, 2, 5, (15, 2), &[]));
    claimed(&mut member(), heartbeat_of(9, 2, 5, 18, 4));
    // A second leader of a term.
    let mut followed = member();
    taken(&mut followed, heartbeat(1, 2, 4, 15));
    claimed(&mut followed, heartbeat(3, 2, 4, 21));
    claimed(&mut followed, append(3, 2, 4, (15, 2), &[]));
    claimed(&mut followed, heartbeat_of(3, 2, 4, 18, 4));
    assert_eq!(followed.status().committed, 15);
    proven(&mut followed, heartbeat(1, 2, 4, 21));
    // A leader hears of one of its own term, and of what followers claim.
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.propose(1, "x");
    let status = cluster.member(1).status();
    let leader = cluster.member(1);
    taken(leader, heartbeat(2, 1, status.term, status.committed + 5));
    taken(leader, heartbeat_of(2, 1, status.term, status.committed, 1));
    claimed(leader, append(2, 1, status.term, (status.committed, 1), &[]));
    let answer =
        raftpb::Message { index: Some(status.committed + 5), ..message(MessageType::MsgAppResp, 2, 1, status.term) };
    claimed(leader, answer.clone());
    claimed(leader, raftpb::Message { reject: Some(true), reject_hint: Some(status.committed + 5), ..answer });
    assert_eq!(leader.status().role, Role::Leader);
    cluster.propose(1, "y");
    cluster.tick(2);
    cluster.assert_all_applied(&["x", "y"]);
}

#[test]
fn a_log_that_contradicts_what_is_committed_here_is_a_proof() {
    let contradicted =
        |index, theirs| Proof::Contradicted { leader: 1, term: 5, index, theirs, committed: 15, ours: 3 };
    let cases = [
        // The entry before, at the committed one, below it, and above it where terms have fallen.
        (append(1, 2, 5, (15, 2), &[]), contradicted(15, 2)),
        (append(1, 2, 5, (15, 4), &[]), contradicted(15, 4)),
        (append(1, 2, 5, (8, 4), &[]), contradicted(8, 4)),
        (append(1, 2, 5, (17, 2), &[]), contradicted(17, 2)),
        // Among the entries.
        (append(1, 2, 5, (8, 3), &[(9, 3), (10, 4)]), contradicted(10, 4)),
        // Below what this member has had in memory a later term is one too many.
        (append(1, 2, 5, (3, 3), &[]), contradicted(3, 3)),
        (snapshot(1, 2, 5, (15, 4)), contradicted(15, 4)),
        (snapshot(1, 2, 5, (30, 2)), contradicted(30, 2)),
        (snapshot(1, 2, 5, (9, 5)), contradicted(9, 5)),
    ];
    for (message, proof) in cases {
        assert_eq!(proven(&mut member(), message), proof);
    }
}

/// What was trimmed here since the start can still be compared.
#[test]
fn a_trimmed_entry_of_another_term_is_contradicted() {
    let trimmed = || {
        let mut member = member();
        while member.has_work() {
            let work = member.work();
            member.persisted(work.number);
            work.committed.iter().for_each(|entry| member.applied(entry.index()));
        }
        member.trim(12);
        member
    };
    for message in [heartbeat_of(1, 2, 5, 8, 2), append(1, 2, 5, (8, 2), &[])] {
        let proof = proven(&mut trimmed(), message);
        assert_eq!(proof, Proof::Contradicted { leader: 1, term: 5, index: 8, theirs: 2, committed: 15, ours: 3 });
    }
    taken(&mut trimmed(), heartbeat_of(1, 2, 5, 8, 3));
    taken(&mut trimmed(), append(1, 2, 5, (8, 3), &[(9, 3), (10, 3)]));
    taken(&mut trimmed(), append(1, 2, 5, (5, 2), &[(6, 3)]));
}

#[test]
fn a_leader_may_replace_what_is_not_committed() {
    for honest in [
        append(1, 2, 5, (15, 3), &[(16, 5)]),
        append(1, 2, 5, (17, 5), &[]),
        append(1, 2, 5, (40, 5), &[]),
        append(1, 2, 5, (8, 3), &[(9, 3), (10, 3)]),
        append(1, 2, 5, (3, 2), &[(4, 2)]),
        append(1, 2, 5, (3, 1), &[]),
        append(1, 2, 5, (0, 0), &[(1, 1)]),
        append(1, 2, 3, (15, 2), &[]),
        snapshot(1, 2, 5, (15, 3)),
        snapshot(1, 2, 5, (30, 3)),
        snapshot(1, 2, 5, (18, 5)),
    ] {
        taken(&mut member(), honest);
    }
    // In the term of the leader that replaced it, less is acknowledged than there was before.
    let mut member = member();
    taken(&mut member, append(1, 2, 5, (15, 3), &[(16, 5)]));
    taken(&mut member, heartbeat(1, 2, 5, 16));
    taken(&mut member, heartbeat_of(1, 2, 5, 16, 5));
    taken(&mut member, heartbeat(3, 2, 4, 20));
}

/// What is acknowledged is on the disk, but what is in memory only is not lost either.
#[test]
fn entries_that_are_not_durable_yet_are_not_lost() {
    let mut member = member();
    taken(&mut member, append(1, 2, 4, (20, 3), &[(21, 4)]));
    taken(&mut member, heartbeat(1, 2, 4, 21));
    let work = member.work();
    assert_eq!(work.entries.len(), 1);
    taken(&mut member, heartbeat(1, 2, 4, 21));
}

/// Its directory was emptied, and it joins again under its old id.
#[test]
fn a_member_without_a_configuration_believes_the_cluster_that_it_joined() {
    let empty = |joined: &[u64]| {
        Member::new(&config(2), Restored { joined: joined.to_vec(), ..Restored::default() }).expect("it starts")
    };
    proven(&mut empty(&[1, 3]), heartbeat(1, 2, 4, 1));
    claimed(&mut empty(&[1, 3]), heartbeat(9, 2, 4, 1));
    claimed(&mut empty(&[]), heartbeat(1, 2, 4, 1));
    taken(&mut empty(&[1, 3]), heartbeat(1, 2, 4, 0));
    // A member that is new has said nothing yet.
    taken(&mut empty(&[1, 3]), append(1, 2, 4, (40, 4), &[]));
}

#[test]
fn a_snapshot_that_is_being_installed_is_waited_for() {
    let mut member = member();
    taken(&mut member, snapshot(1, 2, 4, (40, 4)));
    let work = member.work();
    assert!(work.snapshot.is_some());
    taken(&mut member, heartbeat(1, 2, 4, 50));
    member.persisted(work.number);
    taken(&mut member, heartbeat(1, 2, 4, 40));
    proven(&mut member, heartbeat(1, 2, 4, 41));
}

#[test]
fn a_member_may_be_told_to_go_on() {
    let careless = Config { unsafe_ignore_lost_log: true, ..config(2) };
    let mut member = Member::new(&careless, restored()).expect("it starts");
    claimed(&mut member, append(1, 2, 4, (15, 2), &[]));
    taken(&mut member, heartbeat(1, 2, 4, 21));
    taken(&mut member, heartbeat_of(1, 2, 4, 18, 4));
    let status = member.status();
    assert_eq!((status.leader, status.committed), (1, 15));
}

#[test]
fn a_log_without_what_was_committed_is_refused() {
    let cut = Restored { entries: restored().entries[..5].to_vec(), ..restored() };
    let Err(Error::Uncommitted { commit, last }) = Member::new(&config(2), cut) else { panic!("it starts") };
    assert_eq!((commit, last), (15, 10));
    let refused = Refusal::BeyondLog { named: 1, last: 0 };
    assert!(refused.is_claim() && !Refusal::Sender.is_claim());
}
