//! Compaction, leases, alarms, space, hashes and members.

use super::{filled, keys, revision_of, run_txn, txn};
use crate::support::requests::*;
use crate::support::{Node, Told, small_segments};
use api::Error;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::*;
use prost::Message;
use store::{Options, Response, Work};

#[test]
fn compaction_rules() {
    let mut node = filled(&[("a", "1"), ("a", "2"), ("b", "1")]);
    node.apply(delete("b", "").raft()).unwrap();
    assert_eq!(node.apply(compact(6)), Err(Error::FutureRev));
    assert_eq!(node.apply(compact(-1)), Err(Error::Compacted));
    assert_eq!(node.apply(compact(i64::MIN)), Err(Error::Compacted));
    let before = node.store.usage().live_bytes;
    node.apply(compact(5)).unwrap();
    assert_eq!(node.apply(compact(5)), Err(Error::Compacted));
    assert_eq!((node.store.compact_revision(), node.store.compacted()), (5, -1));
    node.settle();
    assert_eq!(node.store.compacted(), 5);
    assert!(node.store.usage().live_bytes < before);
    assert_eq!(node.range(&RangeRequest { revision: 5, ..all() }).unwrap().count, 1);
}

#[test]
fn a_pinned_reader_holds_compaction_up() {
    let mut node = filled(&[("a", "1"), ("a", "2"), ("a", "3")]);
    let snapshot = node.applier.snapshot();
    node.apply(compact(4)).unwrap();
    while node.store.maintain(1 << 20).unwrap().work == Work::Busy {}
    assert_eq!(node.store.maintain(1 << 20).unwrap().work, Work::Waiting);
    drop(snapshot);
    node.settle();
    assert_eq!(node.store.compacted(), 4);
}

#[test]
fn a_proposer_that_has_raised_the_time_of_a_lease_is_believed() {
    let options = |lease_ttl_seconds_min| Options { lease_ttl_seconds_min, ..Options::default() };
    let mut members = [Node::with(options(2)), Node::with(options(60))];
    let mut time = |id: i64, is_final: bool| {
        members.each_mut().map(|node| {
            let mut entry = node.entry(grant(id, 5));
            let data = entry.data.take().unwrap_or_default();
            // `leaseTtlIsFinal`, field 20001.
            let mark: &[u8] = if is_final { &[0x88, 0xe2, 0x09, 1] } else { &[] };
            entry.data = Some([&data[..], mark].concat().into());
            node.applier.apply(&[entry], &mut Told::default()).unwrap();
            node.store.leases().get(id).map(|lease| lease.ttl)
        })
    };
    assert_eq!(time(1, true), [Some(5), Some(5)], "the flags of those who apply do not matter");
    assert_eq!(time(2, false), [Some(5), Some(60)], "each for itself, as etcd's members do it");
}

#[test]
fn leases_come_and_go_with_their_keys() {
    let mut node = Node::new();
    let Ok(Response::LeaseGrant(answer)) = node.apply(grant(-5, 1)) else { panic!() };
    assert_eq!((answer.id, answer.ttl, answer.error.as_str()), (-5, 2, ""));
    for key in ["c", "a", "b"] {
        node.apply(PutRequest { lease: -5, ..put(key, "") }.raft()).unwrap();
    }
    node.apply(put("b", "").raft()).unwrap();
    assert_eq!(node.store.leases().keys(-5), ["a", "c"]);
    node.checkpoint();
    node.reopen();
    assert_eq!(node.store.leases().keys(-5), ["a", "c"]);
    assert_eq!(node.store.leases().lease_of(b"a"), -5);
    assert_eq!(node.apply(revoke(6)), Err(Error::LeaseNotFound));
    assert_eq!(revision_of(&node.apply(revoke(-5))), 6);
    assert_eq!((keys(&node.range(&all()).unwrap()), node.store.leases().count()), (vec!["b"], 0));
    assert_eq!(node.apply(revoke(-5)), Err(Error::LeaseNotFound));
}

fn alarm(action: alarm_request::AlarmAction, alarm: AlarmType) -> InternalRaftRequest {
    AlarmRequest { action: action as i32, member_id: 1, alarm: alarm as i32 }.raft()
}

#[test]
fn alarms_refuse() {
    use alarm_request::AlarmAction::*;
    let mut node = filled(&[("a", "1")]);
    node.apply(alarm(Activate, AlarmType::Nospace)).unwrap();
    assert_eq!(node.apply(put("b", "").raft()), Err(Error::NoSpace));
    assert_eq!(node.apply(grant(1, 10)), Err(Error::NoSpace));
    assert_eq!(run_txn(&mut node, txn(vec![Request::RequestPut(put("b", ""))])), Err(Error::NoSpace));
    run_txn(&mut node, txn(vec![Request::RequestDeleteRange(delete("a", ""))])).unwrap();
    node.apply(compact(3)).unwrap();
    node.checkpoint();
    node.reopen();
    assert_eq!(node.apply(put("b", "").raft()), Err(Error::NoSpace), "alarms survive a restart");
    node.apply(alarm(Activate, AlarmType::Corrupt)).unwrap();
    for refused in [put("b", "").raft(), delete("a", "").raft(), txn(vec![]).raft(), compact(3), grant(1, 5), revoke(1)]
    {
        assert_eq!(node.apply(refused), Err(Error::Corrupt));
    }
    assert_eq!(node.store.alarms().len(), 2);
    node.apply(alarm(Deactivate, AlarmType::Corrupt)).unwrap();
    node.apply(alarm(Deactivate, AlarmType::Nospace)).unwrap();
    node.apply(put("b", "").raft()).unwrap();
}

#[test]
fn an_entry_over_quota_is_applied_and_raises_the_alarm() {
    let mut node = Node::with(Options { quota_bytes: 2000, ..small_segments() });
    let mut told = Told::default();
    for at in 0..10 {
        let put = put(&format!("k{at}"), &"v".repeat(300)).raft();
        let expected = node.store.quota_check(&put).is_err();
        let entry = node.entry(put);
        let (before, revision) = (told.no_space, node.store.revision());
        node.applier.apply(&[entry], &mut told).unwrap();
        assert_eq!(node.store.revision(), revision + 1);
        assert_eq!(told.no_space - before, usize::from(expected));
        assert_eq!(told.results.last().unwrap().1.is_err(), expected);
    }
    assert!(told.no_space > 2);
    assert_eq!(node.store.quota_check(&delete("a", "").raft()), Ok(()));
    let unlimited = Node::with(Options { quota_bytes: -1, ..small_segments() });
    assert!(!unlimited.store.over_quota(u64::MAX));
}

#[test]
fn what_is_under_way_counts_against_the_quota() {
    let mut node = Node::with(Options { quota_bytes: 2000, ..small_segments() });
    let cost = store::put_cost(&put("k", &"v".repeat(300)));
    let mut claims: Vec<_> = (0..10).map_while(|_| node.store.claim_quota(cost).ok()).collect();
    assert_eq!(claims.len() as u64, 1999 / cost);
    // It would fit if the others were not under way: no reason for an alarm.
    assert_eq!(node.store.claim_quota(cost).err(), Some(Error::TooManyRequests));
    assert_eq!(node.store.claim_quota(2000).err(), Some(Error::NoSpace));
    // Each is applied, and what it claimed becomes what it takes: none of them passes the quota.
    while let Some(claim) = claims.pop() {
        node.apply(put(&format!("k{}", claims.len()), &"v".repeat(300)).raft()).unwrap();
        drop(claim);
    }
    assert!(node.store.claim_quota(cost).is_ok(), "a claim is more than what is taken in the end");
    assert!(node.store.claim_quota(2000).is_err());
    assert!(node.store.claim_quota(0).is_ok());
}

#[test]
fn leases_and_alarms_count_as_live_bytes() {
    use alarm_request::AlarmAction::{Activate, Deactivate};
    let mut node = Node::with(Options { quota_bytes: 64 * 100 + 1, ..small_segments() });
    let counted = |node: &Node| (node.store.usage().live_bytes, node.store.leases().count());
    for id in 1..=100 {
        assert_eq!(node.store.quota_check(&grant(id, 60)), Ok(()), "lease {id}");
        node.apply(grant(id, 60)).unwrap();
        assert_eq!(counted(&node), (64 * id as u64, id as usize));
    }
    assert_eq!(node.store.quota_check(&grant(101, 60)), Err(Error::NoSpace));
    assert_eq!(node.store.quota_check(&put("a", "").raft()), Err(Error::NoSpace));
    // One that was proposed nevertheless is applied, as on members with more room.
    let told = node.apply_all(vec![grant(101, 60)]);
    assert_eq!((told.no_space, counted(&node)), (1, (64 * 101, 101)));
    node.apply(alarm(Activate, AlarmType::Nospace)).unwrap();
    assert_eq!(node.apply(grant(102, 60)), Err(Error::NoSpace));
    assert_eq!(counted(&node), (64 * 102, 101));
    // A restart, from the log alone and from a checkpoint, finds the same.
    for _ in 0..2 {
        node.reopen();
        assert_eq!(counted(&node), (64 * 102, 101));
        node.checkpoint();
    }
    for id in 1..=101 {
        node.apply(revoke(id)).unwrap();
    }
    node.apply(alarm(Deactivate, AlarmType::Nospace)).unwrap();
    assert_eq!(counted(&node), (0, 0));
}

#[test]
fn alarms_of_invented_members_are_refused_beyond_a_bound() {
    let mut node = Node::new();
    use alarm_request::AlarmAction;
    let activate = |member_id| {
        let (action, alarm) = (AlarmAction::Activate as i32, AlarmType::Nospace as i32);
        AlarmRequest { action, member_id, alarm }
    };
    crate::support::transfer::add_member(&mut node, 7);
    let asked = |node: &Node, request: AlarmRequest| node.store.claim_alarm(&request).map(drop);
    for id in 1_000..1_050 {
        assert_eq!(asked(&node, activate(id)), Ok(()));
        node.apply(activate(id).raft()).unwrap();
    }
    // Those under way count.
    let under_way: Vec<_> = (1_050..1_200).map_while(|id| node.store.claim_alarm(&activate(id)).ok()).collect();
    assert_eq!(under_way.len(), 50);
    assert_eq!(asked(&node, activate(5)), Err(Error::TooManyAlarms));
    drop(under_way);
    for id in 1_050..1_100 {
        assert_eq!(asked(&node, activate(id)), Ok(()));
        node.apply(activate(id).raft()).unwrap();
    }
    assert_eq!(asked(&node, activate(5)), Err(Error::TooManyAlarms));
    // Members' own, looking at them and switching them off are never refused. What was proposed is applied, as by etcd.
    assert_eq!(asked(&node, activate(7)), Ok(()));
    for action in [AlarmAction::Get, AlarmAction::Deactivate] {
        assert_eq!(asked(&node, AlarmRequest { action: action as i32, ..activate(5) }), Ok(()));
    }
    node.apply(activate(5).raft()).unwrap();
    assert_eq!(node.store.alarms().len(), 101);
}

#[test]
fn a_full_disk_is_noticed_before_a_write_fails() {
    let mut node = filled(&[("a", "1")]);
    node.settle();
    assert!(!node.store.over_quota(1));
    node.disk.set_capacity(Some(40 << 10));
    node.settle();
    assert_eq!(node.store.quota_check(&put("b", "").raft()), Err(Error::NoSpace));
    assert_eq!(node.store.quota_check(&delete("a", "").raft()), Ok(()));
    node.disk.set_capacity(None);
    node.settle();
    assert!(!node.store.over_quota(1));
    node.apply(put("b", "").raft()).unwrap();
}

#[test]
fn hashes_are_those_of_etcd() {
    // The numbers are what etcd 3.7.3 answered to the same requests.
    let mut node = filled(&[("foo", "bar")]);
    let hash = |node: &Node, revision| node.store.hash_kv(revision).map(|hash| (hash.hash, hash.compact_revision));
    assert_eq!(hash(&node, 0), Ok((3_305_255_506, -1)));
    assert_eq!(hash(&node, 3), Err(Error::FutureRev));
    node.apply(put("foo", "baz").raft()).unwrap();
    assert_eq!(hash(&node, 3), Ok((2_020_292_994, -1)));
    node.apply(delete("foo", "").raft()).unwrap();
    assert_eq!(hash(&node, 0), Ok((3_153_096_970, -1)));
    node.apply(compact(3)).unwrap();
    node.settle();
    // Of a finished compaction: what it found.
    assert_eq!(hash(&node, 3), Ok((2_020_292_994, -1)));
    // Nothing is alive at 4: etcd's rule then counts what the compaction has left.
    assert_eq!(hash(&node, 4), Ok((588_758_777, 3)));
    assert_eq!(hash(&node, 2), Err(Error::Compacted));
    node.checkpoint();
    node.reopen();
    assert_eq!(hash(&node, 4), Ok((588_758_777, 3)));
    assert_eq!(hash(&node, 3).map(|hash| hash.1), Ok(3));
}

#[test]
fn membership_goes_through_the_log() {
    use api::membershippb::{
        Attributes, ClusterMemberAttrSetRequest, ClusterVersionSetRequest, DowngradeInfoSetRequest,
    };
    use api::raftpb;
    let mut node = Node::new();
    let context = store::ConfChangeContext {
        member: store::Member { id: 9, peer_urls: vec!["http://a:1".into()], ..Default::default() },
        is_promote: false,
    };
    let change =
        raftpb::ConfChange { id: Some(77), node_id: Some(9), context: Some(context.encode().into()), r#type: None };
    let mut told = Told::default();
    for _ in 0..2 {
        let index = node.entries.len() as u64 + 1;
        let entry = raftpb::Entry {
            term: Some(3),
            index: Some(index),
            r#type: Some(raftpb::EntryType::EntryConfChange as i32),
            data: Some(change.encode_to_vec().into()),
        };
        node.entries.push(entry.clone());
        node.applier.apply(&[entry], &mut told).unwrap();
    }
    assert_eq!(told.results, [(77, Ok(Response::None)), (77, Err(Error::MemberExist))]);
    let ids: Vec<_> = told.changes.iter().map(|change| change.node_id()).collect();
    assert_eq!(ids, [9, 0], "a change that cannot be has no node");
    let attributes = Attributes { name: "nine".into(), client_urls: vec!["http://c:1".into()], ..Default::default() };
    node.apply(ClusterMemberAttrSetRequest { member_id: 9, member_attributes: Some(attributes) }.raft()).unwrap();
    node.apply(ClusterVersionSetRequest { ver: "3.7.0".into() }.raft()).unwrap();
    node.apply(DowngradeInfoSetRequest { enabled: true, ver: "3.6.0".into() }.raft()).unwrap();
    let members = node.store.members();
    for _ in 0..2 {
        assert!(!node.applier.can_capture(), "Raft has not said what it made of the change");
        node.applier.set_conf_state(raftpb::ConfState { voters: vec![9], ..Default::default() });
    }
    assert!(node.applier.can_capture());
    node.checkpoint();
    node.reopen();
    assert_eq!(node.store.members(), members);
    assert_eq!((members.members[&9].name.as_str(), node.store.cluster_version().as_str()), ("nine", "3.7.0"));
    assert_eq!(members.downgrade.target_version, "3.6.0");
    assert_eq!(node.applier.checkpoint().applied_index(), 5);
}
