//! A snapshot sent from one member to another: it arrives whole or not at all.
#![allow(clippy::unwrap_used)]

use crate::support::requests::*;
use crate::support::transfer::*;
use crate::support::{DIR, Node, Told, small_segments};
use api::etcdserverpb::*;
use disk::Disk;
use disk::sim::{Random, SimDisk};
use std::path::Path;
use std::sync::Arc;
use store::{ExportError, Fatal, Intake, IntakeError, Opened};

/// Names of the store's files.
fn files(disk: &SimDisk, ending: &str) -> Vec<String> {
    disk.list(Path::new(DIR)).unwrap().into_iter().filter(|name| name.ends_with(ending)).collect()
}

/// A member with a history of its own: it fell behind, and what it has is a part of what the others have.
pub(crate) fn lagging(seed: u64, entries: usize) -> (Node, Node) {
    let (mut sender, mut receiver) = (Node::new(), Node::new());
    let mut random = Random::new(seed);
    live(&mut sender, &mut random, entries);
    for part in sender.entries.clone().chunks(7) {
        receiver.entries.extend_from_slice(part);
        receiver.applier.apply(part, &mut Told::default()).unwrap();
        if random.chance(30) {
            receiver.store.maintain(random.below(8 << 10)).unwrap();
        }
        if random.chance(20) {
            receiver.checkpoint();
        }
    }
    (sender, receiver)
}

#[test]
fn a_snapshot_arrives_as_it_is() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let (mut sender, mut receiver) = lagging(seed, if seed % 3 == 0 { 0 } else { 60 });
        add_member(&mut sender, 1);
        live(&mut sender, &mut random, 200 + (seed as usize * 37) % 400);
        add_member(&mut sender, 2);
        remove_member(&mut sender, 1);
        let alarm = |action, member_id| AlarmRequest { action, member_id, alarm: AlarmType::Nospace as i32 }.raft();
        sender.apply_all(vec![alarm(1, 5), alarm(1, 6), alarm(2, 5)]);
        transfer(&mut sender, &mut receiver).unwrap();
        assert_equal(&sender, &receiver);
        receiver.reopen();
        assert_equal(&sender, &receiver);
        // It goes on like any other.
        let before = sender.entries.len();
        sender.apply(alarm(2, 6)).unwrap();
        live(&mut sender, &mut random, 150);
        let rest = sender.entries[before..].to_vec();
        receiver.entries.extend_from_slice(&rest);
        receiver.applier.apply(&rest, &mut Told::default()).unwrap();
        receiver.settle();
        assert_equal(&sender, &receiver);
        sender.settle();
        receiver.checkpoint();
        receiver.reopen();
        receiver.settle();
        assert_equal(&sender, &receiver);
    }
}

#[test]
fn an_empty_snapshot_arrives() {
    let (mut sender, mut receiver) = (Node::new(), Node::new());
    sender.apply(grant(1, 60)).unwrap();
    transfer(&mut sender, &mut receiver).unwrap();
    assert_equal(&sender, &receiver);
    receiver.reopen();
    assert_equal(&sender, &receiver);
}

#[test]
fn the_rest_of_a_lease_arrives_and_stays() {
    let (mut sender, mut receiver) = (Node::new(), Node::new());
    sender.apply_all(vec![grant(1, 60), grant(2, 90)]);
    let checkpoints = vec![LeaseCheckpoint { id: 2, remaining_ttl: 17 }, LeaseCheckpoint { id: 9, remaining_ttl: 1 }];
    sender.apply(LeaseCheckpointRequest { checkpoints }.raft()).unwrap();
    let rest = |node: &Node| [1, 2].map(|id| node.store.leases().get(id).unwrap().remaining_ttl);
    assert_eq!(rest(&sender), [0, 17]);
    transfer(&mut sender, &mut receiver).unwrap();
    assert_eq!(rest(&receiver), [0, 17]);
    receiver.reopen();
    assert_eq!(rest(&receiver), [0, 17]);
    sender.checkpoint();
    sender.reopen();
    assert_eq!(rest(&sender), [0, 17]);
}

#[test]
fn what_is_exported_stays_while_the_sender_compacts_and_rewrites() {
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let mut sender = Node::new();
        live(&mut sender, &mut random, 300);
        let export = sender.applier.export();
        let mut before = Node::new();
        before.entries = sender.entries.clone();
        before.applier.apply(&before.entries, &mut Told::default()).unwrap();
        let begun = Intake::begin(&before.store, SENDER, &export.checkpoint().unwrap());
        assert!(begun.is_ok(), "the same snapshot may come again");
        drop(begun);

        live(&mut sender, &mut random, 100);
        let now = sender.store.revision();
        sender.apply(compact(now)).unwrap();
        sender.apply_all((0..300).map(|_| put("filler", &"x".repeat(300)).raft()).collect());
        for _ in 0..4 {
            sender.settle();
            sender.checkpoint();
        }
        let mut receiver = Node::new();
        let ready = receive(&export, &receiver.store).unwrap();
        let held = files(&sender.disk, ".seg").len();
        drop(export);
        sender.settle();
        assert!(files(&sender.disk, ".seg").len() < held, "what only the export kept goes with it");
        receiver.applier.install(ready).unwrap();
        receiver.settle();
        before.settle();
        assert_equal(&before, &receiver);
    }
}

#[test]
fn only_what_the_snapshot_needs_is_left_on_disk() {
    for seed in 0..10 {
        let (mut sender, mut receiver) = lagging(seed, 300);
        live(&mut sender, &mut Random::new(seed), 300);
        transfer(&mut sender, &mut receiver).unwrap();
        assert_eq!(files(&receiver.disk, ".ckpt").len(), 1, "those of the replaced state go at once");
        receiver.store.maintain(0).unwrap();
        receiver.reap();
        let export = sender.applier.export();
        let listed = store::checkpoint::decode_checkpoint(&export.checkpoint().unwrap()).unwrap().segments.len();
        assert_eq!(files(&receiver.disk, ".seg").len(), listed + usize::from(!receiver.applier.spare().needed()));
        assert_eq!(files(&receiver.disk, ".intake").len() + files(&receiver.disk, ".tmp").len(), 0);
    }
}

#[test]
fn a_broken_transfer_leaves_whole_segments_to_the_next_one() {
    let (mut sender, mut receiver) = lagging(3, 100);
    live(&mut sender, &mut Random::new(3), 600);
    let export = sender.applier.export();
    let checkpoint = export.checkpoint().unwrap();
    let mut intake = Intake::begin(&receiver.store, SENDER, &checkpoint).unwrap();
    let all = intake.needed();
    assert!(all.len() > 4, "{all:?}");
    // Three segments and a part of the fourth.
    let whole: u64 = all[..3].iter().map(|(_, _, length)| length.div_ceil(3001)).sum();
    assert!(!copy(&export, &mut intake, whole as usize + 1).unwrap());
    let lacking = intake.needed();
    assert_eq!((lacking[0].0, lacking[0].1, lacking.len()), (all[3].0, 3001, all.len() - 3));
    let error = intake.finish().unwrap_err();
    assert!(matches!(error, IntakeError::Incomplete { segment, .. } if segment == all[3].0), "{error}");
    receiver.reap();
    assert_eq!(files(&receiver.disk, ".intake").len(), 3);

    // The sender goes on; what it exports now begins with the same segments.
    sender.apply_all((0..20).map(|key| put(&format!("key{key}"), "more").raft()).collect());
    let export = sender.applier.export();
    let mut intake = Intake::begin(&receiver.store, SENDER, &export.checkpoint().unwrap()).unwrap();
    assert_eq!(intake.needed()[0].0, all[3].0);
    copy(&export, &mut intake, usize::MAX).unwrap();
    let ready = intake.finish().unwrap();
    // A snapshot that nobody takes leaves everything to the next one too.
    drop(ready);
    let intake = Intake::begin(&receiver.store, SENDER, &export.checkpoint().unwrap()).unwrap();
    assert_eq!(intake.needed(), []);
    let ready = intake.finish().unwrap();
    receiver.applier.install(ready).unwrap();
    assert_equal(&sender, &receiver);
}

#[test]
fn leftovers_of_a_broken_transfer_go() {
    let (mut sender, mut receiver) = lagging(3, 100);
    live(&mut sender, &mut Random::new(3), 300);
    let export = sender.applier.export();
    let broken = |receiver: &Node| {
        let mut intake = Intake::begin(&receiver.store, SENDER, &export.checkpoint().unwrap()).unwrap();
        copy(&export, &mut intake, 9).unwrap();
        drop(intake);
        assert!(!files(&receiver.disk, ".intake").is_empty());
    };
    broken(&receiver);
    for _ in 0..2 {
        receiver.apply(put("own", "work").raft()).unwrap();
        receiver.checkpoint();
    }
    receiver.reap();
    assert!(files(&receiver.disk, ".intake").is_empty());
    broken(&receiver);
    receiver.reopen();
    receiver.reap();
    assert!(files(&receiver.disk, ".intake").is_empty());
}

#[test]
fn a_later_transfer_ends_the_one_before() {
    let (mut sender, receiver) = lagging(3, 50);
    let export = sender.applier.export();
    let mut first = Intake::begin(&receiver.store, SENDER, &export.checkpoint().unwrap()).unwrap();
    let second = Intake::begin(&receiver.store, SENDER, &export.checkpoint().unwrap()).unwrap();
    assert!(matches!(copy(&export, &mut first, 1), Err(IntakeError::Superseded)));
    assert!(matches!(first.finish(), Err(IntakeError::Superseded)));
    drop(second);
}

#[test]
fn a_snapshot_is_installed_once_and_never_backwards() {
    let (mut sender, mut receiver) = lagging(5, 100);
    let old = sender.applier.export();
    live(&mut sender, &mut Random::new(5), 200);
    transfer(&mut sender, &mut receiver).unwrap();
    let names = receiver.disk.list(Path::new(DIR)).unwrap();
    transfer(&mut sender, &mut receiver).unwrap();
    assert_equal(&sender, &receiver);
    assert!(names.iter().filter(|name| name.ends_with(".ckpt")).eq(files(&receiver.disk, ".ckpt").iter()));
    let error = receive(&old, &receiver.store).unwrap_err();
    assert!(matches!(error, IntakeError::Contradiction(_)), "{error}");
    // Another one on top of an installed one.
    live(&mut sender, &mut Random::new(6), 200);
    transfer(&mut sender, &mut receiver).unwrap();
    assert_equal(&sender, &receiver);

    // One that was overtaken after it was received.
    let (mut sender, mut receiver) = lagging(5, 0);
    live(&mut sender, &mut Random::new(7), 50);
    let ready = receive(&sender.applier.export(), &receiver.store).unwrap();
    live(&mut sender, &mut Random::new(8), 50);
    receiver.applier.apply(&sender.entries, &mut Told::default()).unwrap();
    let error = receiver.applier.install(ready).unwrap_err();
    assert!(matches!(error, Fatal::Backwards { .. }), "{error}");
    receiver.settle();
    sender.settle();
    assert_equal(&sender, &receiver);
}

#[test]
fn what_was_captured_before_is_not_written_after() {
    let (mut sender, mut receiver) = lagging(9, 200);
    live(&mut sender, &mut Random::new(9), 200);
    let checkpoint = receiver.applier.checkpoint();
    let snapshot = receiver.applier.snapshot();
    transfer(&mut sender, &mut receiver).unwrap();
    checkpoint.write().unwrap();
    assert!(snapshot.image().is_none());
    assert!(receiver.applier.snapshot().image().is_some());
    assert_eq!(files(&receiver.disk, ".ckpt").len(), 1);
    assert_eq!(receiver.store.oldest_checkpoint_index(), receiver.applier.applied_index());
    receiver.checkpoint();
    receiver.reopen();
    assert_equal(&sender, &receiver);
}

#[test]
fn housekeeping_under_way_ends_with_the_state() {
    for seed in 0..60 {
        let (mut sender, mut receiver) = lagging(seed, 400);
        let compaction = [sender.entry(compact(sender.store.revision()))];
        sender.applier.apply(&compaction, &mut Told::default()).unwrap();
        receiver.applier.apply(&compaction, &mut Told::default()).unwrap();
        live(&mut sender, &mut Random::new(seed), 100);
        let mut random = Random::new(seed);
        for _ in 0..random.below(40) {
            receiver.store.maintain(random.below(3000)).unwrap();
        }
        transfer(&mut sender, &mut receiver).unwrap();
        receiver.settle();
        sender.settle();
        assert_equal(&sender, &receiver);
        let usage = (receiver.store.usage().live_bytes, receiver.store.usage().keys);
        receiver.reopen();
        receiver.settle();
        assert_eq!((receiver.store.usage().live_bytes, receiver.store.usage().keys), usage);
    }
}

#[test]
fn it_works_on_the_operating_systems_disk() {
    let dir = std::env::temp_dir().join(format!("cairn-transfer-{}", std::process::id()));
    let open = || store::open(Arc::new(disk::OsDisk::default()), &dir, small_segments()).unwrap();
    let Opened { store, mut applier, .. } = open();
    let mut sender = Node::new();
    live(&mut sender, &mut Random::new(1), 700);
    let ready = receive(&sender.applier.export(), &store).unwrap();
    applier.install(ready).unwrap();
    assert_eq!(store.hash(), sender.store.hash());
    for revision in store.compact_revision() + 1..=store.revision() {
        assert_eq!(store.hash_kv(revision).unwrap(), sender.store.hash_kv(revision).unwrap());
    }
    drop((store, applier));
    let Opened { store, applied, .. } = open();
    assert_eq!((store.hash(), applied.index), (sender.store.hash(), sender.applier.applied_index()));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_disk_without_room_is_found_before_anything_is_written() {
    let (mut sender, receiver) = lagging(2, 10);
    live(&mut sender, &mut Random::new(2), 300);
    let export = sender.applier.export();
    let used: u64 = files(&receiver.disk, "")
        .iter()
        .map(|name| receiver.disk.contents(&Path::new(DIR).join(name)).unwrap().len() as u64)
        .sum();
    receiver.disk.set_capacity(Some(used + export.segment_bytes()));
    let names = receiver.disk.list(Path::new(DIR)).unwrap();
    let error = Intake::begin(&receiver.store, SENDER, &export.checkpoint().unwrap()).unwrap_err();
    assert!(matches!(error, IntakeError::NoSpace { .. }), "{error}");
    assert_eq!(receiver.disk.list(Path::new(DIR)).unwrap(), names);
}

#[test]
fn a_failing_disk_ends_the_transfer_and_not_the_member() {
    let (mut sender, mut receiver) = lagging(2, 10);
    live(&mut sender, &mut Random::new(2), 300);
    let export = sender.applier.export();
    for fail in [SimDisk::fail_sync_after, SimDisk::fail_write_after, SimDisk::fill_at_sync_after] {
        fail(&receiver.disk, 0);
        let error = receive(&export, &receiver.store).unwrap_err();
        assert!(matches!(error, IntakeError::Log(_)), "{error}");
    }
    let ready = receive(&export, &receiver.store).unwrap();
    receiver.disk.fail_sync_after(0);
    let error = receiver.applier.install(ready).unwrap_err();
    assert!(matches!(error, Fatal::Log(_)), "{error}");
    let entry = receiver.entry(put("a", "b").raft());
    let error = receiver.applier.apply(&[entry], &mut Told::default()).unwrap_err();
    assert!(matches!(error, Fatal::Failed), "half of an installed snapshot is none: {error}");
}

#[test]
fn pieces_that_are_not_there_are_refused() {
    let mut sender = Node::new();
    live(&mut sender, &mut Random::new(2), 300);
    let export = sender.applier.export();
    assert!(matches!(export.read(9999, 0, 10), Err(ExportError::NoSegment(9999))));
    let first = store::checkpoint::decode_checkpoint(&export.checkpoint().unwrap()).unwrap().segments[0];
    assert_eq!(export.read(first.id, first.length - 3, 10).unwrap().len(), 3);
    assert!(matches!(export.read(first.id, first.length, 1), Err(ExportError::Behind { .. })));
    assert!(matches!(export.read(first.id, u64::MAX, usize::MAX), Err(ExportError::Behind { .. })));
    assert!(export.read(first.id, 0, usize::MAX).unwrap().len() as u64 <= first.length);
}

#[test]
fn leases_too_many_for_a_message_come_beside_it() {
    let mut sender = Node::new();
    let few = api::limits::SNAPSHOT_LISTED_LEASES as i64;
    sender.apply_all((1..=few).map(|id| grant(id * 31, 60 + id)).collect());
    // An earlier version can take this one.
    let announced = sender.applier.export().checkpoint().unwrap();
    assert_eq!(store::checkpoint::decode_checkpoint(&announced).unwrap().leases.len() as i64, few);
    sender.apply_all((few + 1..=3 * few).map(|id| grant(-id, id)).collect());
    let attached = PutRequest { lease: 31, ..put("attached", "") };
    sender.apply(attached.raft()).unwrap();
    let left = LeaseCheckpoint { id: 62, remaining_ttl: 5 };
    sender.apply(LeaseCheckpointRequest { checkpoints: vec![left] }.raft()).unwrap();
    let export = sender.applier.export();
    assert!(export.checkpoint().unwrap().len() < 4096, "the announcement does not grow with the leases");

    let mut receiver = Node::new();
    transfer(&mut sender, &mut receiver).unwrap();
    assert_equal(&sender, &receiver);
    let all = |node: &Node| {
        let mut leases = node.store.leases().list();
        leases.sort_unstable_by_key(|lease| lease.id);
        leases
    };
    assert_eq!(all(&sender), all(&receiver));
    assert_eq!(receiver.store.leases().get(62).unwrap().remaining_ttl, 5);
    assert_eq!(sender.store.usage().live_bytes, receiver.store.usage().live_bytes);
    assert_eq!(receiver.reopen(), sender.applier.applied_index());
    assert_eq!(all(&sender), all(&receiver));

    // A transfer that breaks off has nothing of them yet.
    let mut broken = Node::new();
    let mut intake = Intake::begin(&broken.store, SENDER, &export.checkpoint().unwrap()).unwrap();
    assert!(!copy(&export, &mut intake, 9).unwrap());
    assert!(matches!(intake.finish(), Err(IntakeError::Incomplete { .. })));
    let ready = receive(&export, &broken.store).unwrap();
    broken.applier.install(ready).unwrap();
    assert_eq!(all(&sender), all(&broken));
}
