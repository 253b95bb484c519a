//! Power cuts at every kind of moment: whatever the disk kept of what was not synced, the newest acknowledged checkpoint and
//! everything it covers is there.

use crate::test_support::{Model, Rig, wanted};
use disk::OsDisk;
use disk::sim::{Random, SimDisk};
use std::sync::Arc;

/// Cuts, unless the environment asks for others; several after one another in each history.
const CUTS: u64 = 5200;
const CUTS_PER_RUN: u64 = 4;

/// Runs until the power is cut or enough was done. Returns the applied index that must survive.
fn run(disk: &SimDisk, seed: u64, random: &mut Random, captured: &mut Vec<u64>, with_keys: &mut u64) -> u64 {
    let mut rig = match Rig::open(Arc::new(disk.clone()), seed) {
        Ok(rig) => rig,
        Err(error) => {
            assert!(disk.is_cut(), "seed {seed}: {error}");
            return 0;
        }
    };
    *with_keys += u64::from(rig.store.used_keys > 0);
    assert!(captured.contains(&rig.applied), "seed {seed}: recovered at {}", rig.applied);
    rig.check(&Model::at(seed, rig.applied), true);
    for _ in 0..80 {
        captured.push(rig.applied + 1);
        let mut done = rig.apply();
        for _ in 0..random.below(4) {
            done = done.and_then(|()| rig.maintain(random));
        }
        if let Err(error) = done {
            assert!(disk.is_cut(), "seed {seed}: {error}");
            break;
        }
    }
    disk.cut();
    rig.durable
}

#[test]
fn nothing_that_a_checkpoint_covers_is_lost() {
    let (mut rewrites, mut with_keys) = (0, 0);
    let runs = wanted("CUTS", CUTS).div_ceil(CUTS_PER_RUN);
    for seed in 0..runs {
        let mut random = Random::new(seed);
        let mut disk = SimDisk::new();
        disk.guard_mappings();
        let (mut captured, mut durable) = (vec![0], 0);
        for _ in 0..CUTS_PER_RUN {
            // Some cuts fall into recovery, some into the end of the run.
            let within = if random.chance(20) { 8 } else { 250 };
            disk.cut_at(disk.operations() + random.below(within));
            durable = run(&disk, seed, &mut random, &mut captured, &mut with_keys).max(durable);
            disk = disk.after_cut(random.next_u64());
        }
        let mut rig = Rig::open(Arc::new(disk), seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        with_keys += u64::from(rig.store.used_keys > 0);
        assert!(rig.applied >= durable, "seed {seed}: recovered at {}, acknowledged {durable}", rig.applied);
        rig.check(&Model::at(seed, rig.applied), true);
        rig.settle().unwrap();
        rewrites += rig.rewrites;
        rig.check(&Model::at(seed, rig.applied), true);
    }
    let cuts = runs * CUTS_PER_RUN;
    println!("{cuts} power cuts of the store, {rewrites} rewritten segments, {with_keys} starts with key files");
    assert!(with_keys > 100, "{with_keys} starts used a key file");
    assert!(rewrites > 100, "{rewrites} rewrites in all runs");
}

#[test]
fn a_failed_sync_acknowledges_nothing() {
    for failing in 0..40 {
        let disk = SimDisk::new();
        let mut rig = Rig::open(Arc::new(disk.clone()), failing).unwrap();
        disk.fail_sync_after(failing);
        let failed = loop {
            for _ in 0..10 {
                rig.apply().unwrap();
            }
            rig.capture();
            if rig.write_checkpoint().is_err() {
                break rig.applied;
            }
        };
        disk.cut();
        for seed in 0..10 {
            let after = Rig::open(Arc::new(disk.after_cut(seed)), failing).unwrap();
            assert!(after.applied == rig.durable || after.applied == failed, "recovered at {}", after.applied);
            after.check(&Model::at(failing, after.applied), true);
        }
    }
}

#[test]
fn a_store_on_the_operating_systems_disk_opens_again() {
    let dir = std::env::temp_dir().join(format!("cairn-recovery-{}", std::process::id()));
    let mut rig = Rig::open_at(Arc::new(OsDisk::default()), &dir, 9).unwrap();
    let mut random = Random::new(9);
    for _ in 0..5 {
        for _ in 0..100 {
            rig.apply().unwrap();
            rig.maintain(&mut random).unwrap();
        }
        rig.settle().unwrap();
        drop(rig);
        rig = Rig::open_at(Arc::new(OsDisk::default()), &dir, 9).unwrap();
        rig.check(&Model::at(9, rig.applied), true);
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
