use super::*;
use crate::log::segment_name;
use crate::test_support::{DIR, Model, OPTIONS, Rig};
use crate::upkeep::checkpoint::{CheckpointName, TEMPORARY_SUFFIX, decode_checkpoint};
use disk::Disk;
use disk::sim::{Random, SimDisk};
use std::path::Path;

fn files(disk: &SimDisk) -> usize {
    disk.list(Path::new(DIR)).unwrap().iter().filter(|name| name.ends_with(".seg")).count()
}

fn key_files_go_with_their_segments(disk: &SimDisk) {
    let names = disk.list(Path::new(DIR)).unwrap();
    let keys: Vec<_> = names.iter().filter_map(|name| name.strip_suffix(".keys")).collect();
    assert!(!keys.is_empty());
    for stem in keys {
        assert!(names.contains(&format!("{stem}.seg")), "{stem} has a key file and no segment");
    }
}

fn both_checkpoints_are_whole(disk: &SimDisk) {
    let names = disk.list(Path::new(DIR)).unwrap();
    let checkpoints: Vec<_> = names.iter().filter(|name| name.ends_with(".ckpt")).collect();
    assert_eq!(checkpoints.len(), 2);
    for name in checkpoints {
        let bytes = disk.contents(&Path::new(DIR).join(name)).unwrap();
        for entry in decode_checkpoint(&bytes).unwrap().segments {
            assert!(names.contains(&segment_name(entry.id)), "{name} lists segment {:x}", entry.id);
        }
    }
}

#[test]
fn what_was_compacted_gives_its_space_back() {
    let disk = SimDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone()), 7).unwrap();
    let mut model = Model::at(7, 0);
    let mut random = Random::new(1);
    for round in 0..40 {
        for _ in 0..100 {
            rig.apply().unwrap();
            rig.maintain(&mut random).unwrap();
            rig.check_weights();
        }
        if round > 0 {
            both_checkpoints_are_whole(&disk);
        }
        rig.settle().unwrap();
        model.advance(rig.applied);
        rig.check(&model, true);
        let (live, space) = (rig.store.segments.live_bytes(), rig.store.segments.file_bytes());
        assert!(space < 3 * live + 6 * OPTIONS.segment_bytes, "round {round}: {live} live bytes in {space}");
        let count = rig.store.segments.count();
        assert!(count as u64 <= 5 + 8 * space / OPTIONS.segment_bytes, "round {round}: {space} bytes in {count} files");
        assert!(files(&disk) <= count + 2, "round {round}: {} files", files(&disk));
        key_files_go_with_their_segments(&disk);
        both_checkpoints_are_whole(&disk);
        if round % 4 == 0 {
            drop(rig);
            rig = Rig::open(Arc::new(disk.clone()), 7).unwrap();
            rig.check(&model, true);
        }
    }
}

#[test]
fn keys_do_not_come_back_when_their_tombstone_was_dropped() {
    // Restarts in every state of a rewrite, with nothing but the newest checkpoint's view of the segments.
    for seed in 0..60 {
        let disk = SimDisk::new();
        let mut rig = Rig::open(Arc::new(disk.clone()), seed).unwrap();
        let mut random = Random::new(seed);
        for _ in 0..400 {
            rig.apply().unwrap();
            for _ in 0..random.below(5) {
                rig.maintain(&mut random).unwrap();
            }
            rig.check_weights();
            if random.chance(3) {
                rig.capture();
                rig.write_checkpoint().unwrap();
                drop(rig);
                rig = Rig::open(Arc::new(disk.clone()), seed).unwrap();
                rig.check(&Model::at(seed, rig.applied), true);
                rig.check_weights();
            }
        }
    }
}

#[test]
fn readers_of_a_replaced_segment_go_on() {
    let mut rig = Rig::open(Arc::new(SimDisk::new()), 3).unwrap();
    for _ in 0..300 {
        rig.apply().unwrap();
    }
    let before: Vec<_> = rig.store.segments.scan(0).map(|record| (record.rev, record.value)).collect();
    let bytes: Vec<Vec<u8>> = before.iter().map(|(_, value)| value.to_vec()).collect();
    let mut slow = rig.store.segments.scan(0);
    let first = slow.next().unwrap().rev;
    rig.settle().unwrap();
    assert!(rig.rewrites > 0);
    assert!(before.iter().map(|(_, value)| &value[..]).eq(bytes.iter().map(|bytes| &bytes[..])));
    let rest: Vec<_> = slow.map(|record| record.rev).collect();
    assert!(first < rest[0] && rest.windows(2).all(|pair| pair[0] < pair[1]));
    rig.check(&Model::at(3, rig.applied), true);
}

#[test]
fn a_full_disk_only_delays_a_rewrite() {
    let disk = SimDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone()), 5).unwrap();
    for _ in 0..300 {
        rig.apply().unwrap();
    }
    while rig.prune(100) {}
    let names = disk.list(Path::new(DIR)).unwrap();
    let used = names.iter().map(|name| disk.contents(&Path::new(DIR).join(name)).unwrap().len() as u64).sum::<u64>();
    disk.set_capacity(Some(used + 100));
    let mut failures = 0;
    for _ in 0..50 {
        if let Err(error) = rig.rewrite(1000) {
            assert!(error.is_out_of_space());
            rig.store.segments.reaper().finish().unwrap();
            assert_eq!(disk.list(Path::new(DIR)).unwrap(), names);
            failures += 1;
        }
    }
    assert!(failures > 0);
    disk.set_capacity(None);
    rig.settle().unwrap();
    assert!(rig.rewrites > 0);
    rig.check(&Model::at(5, rig.applied), true);
}

#[test]
fn a_disk_that_is_full_when_the_copy_is_synced_only_delays_a_rewrite() {
    let disk = SimDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone()), 5).unwrap();
    for _ in 0..300 {
        rig.apply().unwrap();
    }
    while rig.prune(100) {}
    let names = disk.list(Path::new(DIR)).unwrap();
    disk.fill_at_sync_after(0);
    let error = loop {
        match rig.rewrite(u64::MAX) {
            Ok(step) => assert!(step == Step::Working, "{step:?} before the sync failed"),
            Err(error) => break error,
        }
    };
    assert!(error.is_out_of_space(), "{error}");
    rig.store.segments.reaper().finish().unwrap();
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), names, "the copy is gone");
    rig.settle().unwrap();
    assert!(rig.rewrites > 0);
    rig.check(&Model::at(5, rig.applied), true);
}

#[test]
fn a_checkpoint_that_finds_no_room_leaves_everything_as_it_was() {
    let disk = SimDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone()), 5).unwrap();
    let mut random = Random::new(5);
    for round in 0..30 {
        for _ in 0..20 {
            rig.apply().unwrap();
            rig.prune(100);
            rig.rewrite(1 + random.below(9000)).unwrap();
        }
        let names = disk.list(Path::new(DIR)).unwrap();
        let used =
            names.iter().map(|name| disk.contents(&Path::new(DIR).join(name)).unwrap().len() as u64).sum::<u64>();
        disk.set_capacity(Some(used + 50));
        for _ in 0..3 {
            rig.capture();
            assert!(rig.write_checkpoint().unwrap_err().is_out_of_space());
            assert_eq!(disk.list(Path::new(DIR)).unwrap(), names);
        }
        disk.set_capacity(None);
        if round % 2 == 0 {
            // One that could not be removed.
            let stale = CheckpointName::first(rig.applied).to_string() + TEMPORARY_SUFFIX;
            disk.install(&Path::new(DIR).join(stale), b"half of a checkpoint").unwrap();
        }
        rig.capture();
        rig.write_checkpoint().unwrap();
        drop(rig);
        rig = Rig::open(Arc::new(disk.clone()), 5).unwrap();
        rig.check(&Model::at(5, rig.applied), true);
    }
}

#[test]
fn a_damaged_source_is_named() {
    let disk = SimDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone()), 3).unwrap();
    for _ in 0..300 {
        rig.apply().unwrap();
    }
    while rig.prune(100) {}
    let path = Path::new(DIR).join("0000000000000001.seg");
    let file = disk.open(&path, disk::Mode::Write).unwrap();
    file.write_at(&[0xee], 100).unwrap();
    let error = loop {
        match rig.rewrite(1000) {
            Ok(Step::Idle) => panic!("damage was not found"),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("0000000000000001.seg") && error.contains("offset 32"), "{error}");
}

/// The mistake behind graves: a simulated cluster seldom meets it, this file's own test does at once.
#[cfg(feature = "mistakes")]
#[test]
fn a_rewrite_that_drops_graves_is_noticed() {
    use crate::mistake::Mistake;
    Mistake::plant(Some(Mistake::RewriteDropsGraves));
    let noticed = std::panic::catch_unwind(keys_do_not_come_back_when_their_tombstone_was_dropped).is_err();
    Mistake::plant(None);
    assert!(noticed, "keys that come back are not noticed");
}
