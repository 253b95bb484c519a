//! Power cuts at any moment: the store opens at its last finished checkpoint or a later one, and replaying the entries after it gives
//! exactly the state before the cut.
#![allow(clippy::unwrap_used)]

use crate::support::requests::*;
use crate::support::{DIR, Node, Told, small_segments};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::*;
use disk::sim::{Random, SimDisk};
use std::path::Path;
use std::sync::Arc;
use store::{Opened, Store};

/// What is left to do: entry by entry, with housekeeping and checkpoints between them, all drawn from the seed.
fn requests(seed: u64, count: usize) -> Vec<InternalRaftRequest> {
    let mut random = Random::new(seed);
    let mut requests = vec![grant(5, 60)];
    for at in 1..count {
        let key = format!("key{}", random.below(40));
        requests.push(match random.below(20) {
            0 => delete(&key, "").raft(),
            1 => delete(&key, "key9").raft(),
            // Revisions advance by less than one an entry: sometimes this is refused, which is an answer too.
            2 => compact(at as i64 / 2),
            3 => grant(at as i64, 10),
            4 => revoke(5),
            5 => TxnRequest {
                success: vec![op(Request::RequestPut(put(&key, "in a transaction"))), op(Request::RequestRange(all()))],
                ..Default::default()
            }
            .raft(),
            _ => {
                let mut put = put(&key, &"v".repeat(random.below(600) as usize));
                put.lease = if random.chance(20) { 5 } else { 0 };
                put.raft()
            }
        });
    }
    requests
}

/// Runs until the end or the cut. Returns the index of the last checkpoint that was finished.
fn run(node: &mut Node, seed: u64) -> u64 {
    let mut random = Random::new(seed ^ 0xabc);
    let mut durable = 0;
    let entries = node.entries.clone();
    let mut at = 0;
    while at < entries.len() {
        let end = entries.len().min(at + 1 + random.below(9) as usize);
        if node.applier.apply(&entries[at..end], &mut Told::default()).is_err() {
            break;
        }
        at = end;
        if random.chance(60) && node.store.maintain(8 << 10).is_err() {
            break;
        }
        if random.chance(12) {
            let job = node.applier.checkpoint();
            let index = job.applied_index();
            if job.write().is_err() {
                break;
            }
            durable = index;
        }
    }
    durable
}

/// Everything that members share, and what it costs.
fn state(store: &Store) -> (u32, i64, i64, Vec<bytes::Bytes>) {
    (store.hash(), store.revision(), store.compact_revision(), store.leases().keys(5))
}

fn prepared(seed: u64, disk: SimDisk) -> Option<Node> {
    let opened = store::open(Arc::new(disk.clone()), Path::new(DIR), small_segments());
    let Opened { store, applier, .. } = opened.ok()?;
    let mut node = Node { disk, store, applier, entries: Vec::new(), options: small_segments() };
    for request in requests(seed, 250) {
        node.entry(request);
    }
    Some(node)
}

#[test]
fn nothing_is_lost_wherever_the_power_is_cut() {
    for seed in 0..20 {
        let mut whole = prepared(seed, SimDisk::new()).unwrap();
        run(&mut whole, seed);
        whole.settle();
        let (expected, operations) = (state(&whole.store), whole.disk.operations());
        assert!(operations > 100, "{operations} operations");
        for cut in 1..operations {
            let disk = SimDisk::new();
            disk.cut_at(cut);
            let durable = match prepared(seed, disk.clone()) {
                Some(mut node) => run(&mut node, seed),
                None => 0,
            };
            let found = disk.after_cut(seed ^ cut);
            let mut node =
                prepared(seed, found.clone()).unwrap_or_else(|| panic!("seed {seed} cut {cut} does not open"));
            let applied = node.applier.applied_index();
            assert!(applied >= durable, "seed {seed} cut {cut}: entry {applied} after a checkpoint of {durable}");
            let applied = applied as usize;
            node.applier.apply(&node.entries[applied..], &mut Told::default()).unwrap();
            node.settle();
            assert_eq!(state(&node.store), expected, "seed {seed} cut {cut}");
        }
    }
}

#[test]
fn a_failed_write_or_sync_stops_the_applier_for_good() {
    let mut node = Node::new();
    node.apply(put("a", "1").raft()).unwrap();
    node.disk.fail_write_after(0);
    let entry = node.entry(put("a", "2").raft());
    let mut told = Told::default();
    node.applier.apply(std::slice::from_ref(&entry), &mut told).unwrap_err();
    assert!(told.results.is_empty(), "an answer to what was not written");
    assert_eq!(node.store.revision(), 2);
    let again = node.applier.apply(&[entry], &mut told).unwrap_err();
    assert!(matches!(again, store::Fatal::Failed), "{again}");

    let mut node = Node::new();
    node.apply(put("a", "1").raft()).unwrap();
    node.disk.fail_sync_after(0);
    node.applier.checkpoint().write().unwrap_err();
}
