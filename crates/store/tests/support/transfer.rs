//! Sending a snapshot from one store to another, and histories with something of everything in them.

use super::requests::*;
use super::{Node, Told};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::*;
use api::{Message, raftpb};
use disk::sim::Random;
use std::sync::Arc;
use store::{ConfChangeContext, Export, Fatal, Intake, IntakeError, Member, Prepared, Store};

/// Who sends.
pub const SENDER: u64 = 7;

/// Copies what the intake lacks, in pieces of an odd size, until `pieces` are copied. True when nothing is lacking.
pub fn copy(export: &Export, intake: &mut Intake, pieces: usize) -> Result<bool, IntakeError> {
    let mut left = pieces;
    for (segment, from, length) in intake.needed() {
        let mut at = from;
        while at < from + length {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            let bytes = export.read(segment, at, 3001).unwrap();
            intake.write(segment, at, &bytes)?;
            at += bytes.len() as u64;
        }
    }
    Ok(true)
}

pub fn receive(export: &Export, store: &Arc<Store>) -> Result<Prepared, IntakeError> {
    let mut intake = Intake::begin(store, SENDER, &export.checkpoint().unwrap())?;
    copy(export, &mut intake, usize::MAX)?;
    intake.finish()
}

/// Why a snapshot did not arrive.
#[derive(Debug)]
pub enum Failure {
    Intake(IntakeError),
    Install(Fatal),
}

/// Sends the snapshot of `sender` to `receiver`, which then has its log.
pub fn transfer(sender: &mut Node, receiver: &mut Node) -> Result<(), Failure> {
    let export = sender.applier.export();
    let entries = sender.entries[..export.index() as usize].to_vec();
    let ready = receive(&export, &receiver.store).map_err(Failure::Intake)?;
    assert_eq!((ready.index(), ready.term(), ready.conf_state()), (export.index(), export.term(), export.conf_state()));
    receiver.applier.install(ready).map_err(Failure::Install)?;
    receiver.entries = entries;
    Ok(())
}

/// A configuration change, and what Raft makes of it.
pub fn add_member(node: &mut Node, id: u64) {
    let member = Member { id, name: format!("m{id}"), peer_urls: vec![format!("http://m{id}")], ..Default::default() };
    let change = raftpb::ConfChange {
        node_id: Some(id),
        context: Some(ConfChangeContext { member, is_promote: false }.encode().into()),
        ..Default::default()
    };
    conf_change(node, &change);
}

pub fn remove_member(node: &mut Node, id: u64) {
    let kind = Some(raftpb::ConfChangeType::ConfChangeRemoveNode as i32);
    conf_change(node, &raftpb::ConfChange { r#type: kind, node_id: Some(id), ..Default::default() });
}

fn conf_change(node: &mut Node, change: &raftpb::ConfChange) {
    let entry = raftpb::Entry {
        term: Some(1),
        index: Some(node.entries.len() as u64 + 1),
        r#type: Some(raftpb::EntryType::EntryConfChange as i32),
        data: Some(change.encode_to_vec().into()),
    };
    node.entries.push(entry.clone());
    node.applier.apply(&[entry], &mut Told::default()).unwrap();
    let voters = node.store.members().members.keys().copied().collect();
    node.applier.set_conf_state(raftpb::ConfState { voters, ..Default::default() });
}

/// Applies `count` random requests, with housekeeping and checkpoints between them.
pub fn live(node: &mut Node, random: &mut Random, count: usize) {
    for _ in 0..count {
        let request = request(random, node.store.revision());
        // Some are refused, which is an answer too.
        let _ = node.apply(request);
        if random.chance(30) {
            node.store.maintain(random.below(16 << 10)).unwrap();
        }
        if random.chance(4) {
            node.checkpoint();
        }
    }
}

fn request(random: &mut Random, revision: i64) -> InternalRaftRequest {
    let key = format!("key{:03}", random.below(120));
    let lease = 1 + random.below(6) as i64;
    match random.below(40) {
        0 => grant(lease, 60 + lease),
        1 => revoke(lease),
        2 => compact(revision - random.below(30) as i64),
        3 => delete("key00", "key04").raft(),
        4..8 => delete(&key, "").raft(),
        8 => {
            let checkpoints = vec![LeaseCheckpoint { id: lease, remaining_ttl: 1 + random.below(50) as i64 }];
            LeaseCheckpointRequest { checkpoints }.raft()
        }
        9..13 => TxnRequest {
            success: vec![
                op(Request::RequestPut(put(&key, "first"))),
                op(Request::RequestDeleteRange(delete("key05", "key06"))),
                op(Request::RequestPut(put("other", &key))),
            ],
            ..Default::default()
        }
        .raft(),
        _ => {
            let mut put = put(&key, &"v".repeat(random.below(700) as usize));
            put.lease = if random.chance(20) { lease } else { 0 };
            put.raft()
        }
    }
}

/// Everything that members share.
pub fn state(node: &Node) -> (u32, i64, i64, Vec<Vec<bytes::Bytes>>, u64) {
    let leases = node.store.leases();
    let keys = (0..8).map(|lease| leases.keys(lease)).collect();
    (node.store.hash(), node.store.revision(), node.store.compact_revision(), keys, node.applier.applied_index())
}

/// Both have the same at every revision that is kept, and to every watcher that starts at one.
pub fn assert_equal(one: &Node, other: &Node) {
    assert_eq!(state(one), state(other));
    assert_eq!(one.store.alarms(), other.store.alarms());
    assert_eq!(one.store.members(), other.store.members());
    for revision in one.store.compact_revision().max(1)..=one.store.revision() {
        let [a, b] = [one, other].map(|node| node.store.hash_kv(revision).unwrap());
        // A compaction's own hash is of before it; only who compacted knows it.
        if a.compact_revision == b.compact_revision {
            assert_eq!(a, b, "at {revision}");
        } else {
            assert_eq!(revision, one.store.compact_revision());
        }
        let request = RangeRequest { revision, ..all() };
        assert_eq!(one.range(&request).unwrap().kvs, other.range(&request).unwrap().kvs, "at {revision}");
    }
}
