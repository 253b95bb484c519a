//! The power is cut at every operation of receiving and installing a snapshot: the member opens with the old state or the snapshot,
//! whole, and nothing is left that neither needs.
#![allow(clippy::unwrap_used)]

use crate::support::transfer::*;
use crate::support::{DIR, Node, Told, small_segments};
use api::raftpb;
use disk::Disk;
use disk::sim::{Random, SimDisk};
use std::path::Path;
use std::sync::Arc;
use store::{Applied, Applier, Export, Opened, Store, checkpoint};

/// What a member that fell behind does, from an open store to the installed snapshot and a little further. Stops when the disk fails.
fn run(store: &Arc<Store>, applier: &mut Applier, entries: &[raftpb::Entry], export: &Export) -> Option<()> {
    let (before, rest) = entries.split_at(150);
    for (at, part) in before.chunks(10).enumerate() {
        applier.apply(part, &mut Told::default()).ok()?;
        store.maintain(4 << 10).ok()?;
        store.segments().reaper().step(3000).ok()?;
        if at % 4 == 2 {
            applier.checkpoint().write().ok()?;
        }
    }
    let ready = receive(export, store).ok()?;
    // Captured before, written after.
    let stale = applier.checkpoint();
    applier.install(ready).ok()?;
    stale.write().ok()?;
    store.maintain(4 << 10).ok()?;
    for _ in 0..10 {
        store.segments().reaper().step(3000).ok()?;
    }
    let after = &rest[export.index() as usize - 150..];
    applier.apply(after, &mut Told::default()).ok()?;
    applier.checkpoint().write().ok()?;
    store.maintain(64 << 10).ok()?;
    applier.checkpoint().write().ok()
}

/// The member with everything, the snapshot that is sent, and the entries before and after it.
fn sender(seed: u64) -> (Node, Export) {
    let mut node = Node::new();
    let mut random = Random::new(seed);
    live(&mut node, &mut random, 300);
    let export = node.applier.export();
    export.checkpoint().unwrap();
    live(&mut node, &mut random, 40);
    node.settle();
    (node, export)
}

fn open(disk: &SimDisk) -> Opened {
    store::open(Arc::new(disk.clone()), Path::new(DIR), small_segments()).unwrap()
}

/// Only files that a checkpoint lists, and at most one that is being filled or waits to be.
fn check_files(disk: &SimDisk, what: &str) {
    let names = disk.list(Path::new(DIR)).unwrap();
    let mut listed = std::collections::BTreeSet::new();
    for name in names.iter().filter(|name| name.ends_with(".ckpt")) {
        let content = checkpoint::decode_checkpoint(&disk.contents(&Path::new(DIR).join(name)).unwrap()).unwrap();
        listed.extend(content.segments.iter().map(|entry| format!("{:016x}.seg", entry.id)));
        let with_keys = content.segments.iter().filter(|entry| entry.keys_crc.is_some());
        listed.extend(with_keys.map(|entry| format!("{:016x}.keys", entry.id)));
    }
    for name in names.iter().filter(|name| !name.ends_with(".ckpt")) {
        assert!(listed.contains(name), "{what}: {name} is left");
    }
}

#[test]
fn the_old_state_or_the_snapshot_survives_every_cut() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..6 {
        let (mut node, export) = sender(seed);
        let whole = SimDisk::new();
        let Opened { store, mut applier, .. } = open(&whole);
        run(&store, &mut applier, &node.entries, &export).unwrap();
        for cut in 1..whole.operations() {
            let disk = SimDisk::new();
            disk.guard_mappings();
            disk.cut_at(cut);
            let what = format!("seed {seed} cut {cut}");
            let opened = store::open(Arc::new(disk.clone()), Path::new(DIR), small_segments());
            if let Ok(Opened { store, mut applier, .. }) = opened {
                assert!(run(&store, &mut applier, &node.entries, &export).is_none(), "{what}");
            }
            let found = disk.after_cut(seed ^ cut);
            let Opened { store, mut applier, applied, .. } = open(&found);
            store.segments().reaper().finish().unwrap();
            check_files(&found, &what);
            let Applied { index, .. } = applied;
            assert!(index <= 150 || index == export.index() || index == node.entries.len() as u64, "{what}: {index}");
            (old, new) = (old + u64::from(index <= 150), new + u64::from(index > 150));
            // What it has is what everybody had then: the rest of the log makes it equal.
            applier.apply(&node.entries[index as usize..], &mut Told::default()).unwrap();
            while store.maintain(1 << 20).unwrap().work != store::Work::Idle {}
            assert_eq!(store.hash(), node.store.hash(), "{what}");
            if cut % 7 == 0 {
                let again = node.applier.export();
                if again.index() > index {
                    drop((store, applier));
                    let Opened { store, mut applier, .. } = open(&found);
                    let ready = receive(&again, &store).unwrap();
                    applier.install(ready).unwrap();
                    assert_eq!(store.hash(), node.store.hash(), "{what}");
                }
            }
        }
    }
    assert!(old > 200 && new > 50, "{old} old states and {new} snapshots");
}
