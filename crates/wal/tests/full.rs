//! A disk that is full, or that fails at the wrong moment: what a log has freed must not stand in its own way, and no failure is forgotten.

#![allow(clippy::unwrap_used)]

mod support;

use disk::sim::SimDisk;
use disk::{Disk, OsDisk, Reaper};
use std::path::Path;
use std::sync::Arc;
use support::{SMALL, at, dir, fill, indexes, names_with, new_log};
use wal::{Error, Options, Wal};

const ENOSPC: i32 = 28;

fn used(disk: &SimDisk) -> u64 {
    let names = disk.list(dir()).unwrap();
    names.iter().map(|name| disk.contents(&dir().join(name)).unwrap().len() as u64).sum()
}

/// Leftovers of segments, as many as fill the disk.
fn fill_disk(disk: &SimDisk) {
    for number in 100..200 {
        disk.install(&dir().join(format!("retired-{number}.tmp")), &[7; 8192]).unwrap();
    }
    disk.set_capacity(Some(used(disk) + 1000));
}

#[test]
fn a_start_on_a_disk_full_of_leftovers_gives_them_back() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 2) + 6;
    while wal.last_index() < last {
        let more = wal.last_index() + 1;
        wal.append(&mut [wal::EntryRef { term: 1, index: more, kind: 0, data: &[5; 700] }].into_iter(), None);
        wal.commit(true).unwrap();
    }
    drop(wal);
    fill_disk(&disk);
    assert!(wal::leftover_bytes(&disk, dir()) >= 100 * 8192);
    // The disk looks small, so segments are smaller than the one that is written to: the start needs the next one.
    let small = Options { segment_bytes: 4096, ..SMALL };
    let (wal, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &at(last - 1, 1), small).unwrap();
    assert_eq!(indexes(&recovered.entries), [last]);
    assert_eq!(wal.segments(), 3);
    assert_eq!(names_with(&disk, "retired-", ".tmp"), 0);
    assert_eq!(wal::leftover_bytes(&disk, dir()), 0);
}

#[test]
fn a_segment_that_is_needed_takes_the_room_of_what_waits_to_be_given_back() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 40);
    wal.release_all(last).unwrap();
    assert!(wal.reaper().waiting().files >= 38);
    disk.set_capacity(Some(used(&disk) + 1000));
    let before = wal.segments();
    let last = fill(&mut wal, before + 30);
    drop(wal);
    let (_, recovered) = Wal::open(Arc::new(disk), dir(), &at(last - 1, 1), SMALL).unwrap();
    assert_eq!(indexes(&recovered.entries), [last]);
}

#[test]
fn a_segment_that_is_needed_takes_the_room_of_what_the_store_gives_back() {
    let (disk, mut wal) = new_log(SMALL);
    let store = Path::new("/member/store");
    let reaper = Arc::new(Reaper::new(Arc::new(disk.clone()), store));
    for name in ["a", "b"] {
        disk.install(&store.join(name), &[7; 20_000]).unwrap();
        reaper.retire_found(store.join(name));
    }
    disk.set_capacity(Some(used(&disk) + 40_000 + 1000));
    wal.reaper().share_disk_with(&reaper);
    let before = wal.segments();
    fill(&mut wal, before + 4);
    assert_eq!(disk.list(store).unwrap(), Vec::<String>::new());
}

#[test]
fn a_start_takes_up_no_more_spares_than_the_disk_has_room_for() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 40);
    wal.release(last).unwrap();
    wal.reaper().finish().unwrap();
    assert_eq!(names_with(&disk, "spare-", ".tmp"), 8);
    drop(wal);
    disk.set_capacity(Some(used(&disk) + 20 * 8192));
    let (wal, _) = Wal::open(Arc::new(disk.clone()), dir(), &at(last, 1), SMALL).unwrap();
    wal.reaper().finish().unwrap();
    assert_eq!(names_with(&disk, "spare-", ".tmp"), 2, "an eighth of what is free");
    // Somebody else needs their room.
    let other = Arc::new(Reaper::new(Arc::new(disk.clone()), Path::new("/member/store")));
    wal.reaper().share_disk_with(&other);
    for left in [1, 0] {
        assert!(other.make_room());
        assert_eq!(names_with(&disk, "", ".tmp"), left);
    }
    assert!(!other.make_room());
}

#[test]
fn a_release_on_a_disk_too_full_to_rename_removes() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 6);
    disk.fail_renames(Some((".tmp", ENOSPC)));
    wal.release(last / 2).unwrap();
    let kept = wal.segments();
    assert!(kept < 6);
    wal.release_all(u64::MAX).unwrap();
    assert_eq!(wal.segments(), 1);
    assert_eq!((names_with(&disk, "", ".wal"), names_with(&disk, "", ".tmp")), (1, 0));
    disk.fail_renames(None);
    let last = fill(&mut wal, 3);
    drop(wal);
    let (_, recovered) = Wal::open(Arc::new(disk), dir(), &at(last - 1, 1), SMALL).unwrap();
    assert_eq!(indexes(&recovered.entries), [last]);
}

#[test]
fn a_start_on_a_disk_too_full_to_rename_removes() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 6);
    drop(wal);
    // A gap: the removal of those before it was not durable.
    let second = disk.list(dir()).unwrap().into_iter().filter(|name| name.ends_with(".wal")).nth(1).unwrap();
    disk.remove(&dir().join(second)).unwrap();
    disk.fail_renames(Some((".tmp", ENOSPC)));
    let (wal, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &at(last - 1, 1), SMALL).unwrap();
    assert_eq!((indexes(&recovered.entries), wal.segments()), (vec![last], 4));
    assert_eq!(names_with(&disk, "", ".wal"), 4);
    assert_eq!(names_with(&disk, "", ".tmp"), 0);
}

#[test]
fn a_name_that_was_lost_while_files_were_given_back_is_never_relied_on() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 6);
    disk.sync_dir(Path::new("/")).unwrap();
    wal.release(last / 2).unwrap();
    wal.spare().give_up_freed();
    disk.fail_sync_after(0);
    let error = wal.reaper().step(100).unwrap_err();
    assert!(error.is_fatal, "{error}");
    // The next segment would get a name, and the sync of it would know of no error.
    let mut acknowledged = wal.last_index();
    let error = loop {
        let index = wal.last_index() + 1;
        wal.append(&mut [wal::EntryRef { term: 1, index, kind: 0, data: &[5; 700] }].into_iter(), None);
        match wal.commit(true) {
            Ok(()) => acknowledged = index,
            Err(error) => break error,
        }
        assert!(wal.segments() < 10, "the log goes on");
    };
    assert!(matches!(error, Error::Poisoned(_)), "{error}");
    drop(wal);
    for seed in 0..50 {
        let after = disk.after_cut(seed);
        let (_, recovered) = Wal::open(Arc::new(after), dir(), &at(last, 1), SMALL).unwrap();
        assert_eq!(indexes(&recovered.entries), (last + 1..=acknowledged).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn nothing_is_overwritten_after_a_lost_name() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 6);
    disk.sync_dir(Path::new("/")).unwrap();
    wal.release(last / 2).unwrap();
    let before = used(&disk);
    disk.fail_sync_after(0);
    wal.spare().prepare().unwrap_err();
    assert!(wal.reaper().step(100).unwrap_err().is_fatal);
    assert_eq!(used(&disk), before);
    for seed in 0..50 {
        let after = disk.after_cut(seed);
        let (_, recovered) = Wal::open(Arc::new(after), dir(), &at(last / 2, 1), SMALL).unwrap();
        assert_eq!(recovered.entries.len() as u64, last - last / 2, "seed {seed}");
    }
}

/// A log with one freed segment that waits to be reused, and the name of that.
fn with_one_freed() -> (SimDisk, Wal, String) {
    let (disk, mut wal) = new_log(SMALL);
    fill(&mut wal, 3);
    wal.release(u64::MAX).unwrap();
    let names = disk.list(dir()).unwrap();
    let spare = names.into_iter().find(|name| name.starts_with("spare-")).unwrap();
    (disk, wal, spare)
}

#[test]
fn a_freed_segment_of_which_somebody_has_a_copy_by_hard_links_is_not_overwritten() {
    let (disk, mut wal, spare) = with_one_freed();
    disk.link(&dir().join(&spare), "copy").unwrap();
    let before = disk.contents(&dir().join("copy")).unwrap();
    wal.spare().prepare().unwrap();
    assert!(!wal.spare().needed());
    let segments = wal.segments();
    fill(&mut wal, segments + 2);
    assert_eq!(disk.contents(&dir().join("copy")).unwrap(), before);
}

#[test]
fn a_second_name_of_a_segment_is_left_alone_even_if_the_disk_counts_one() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 3);
    drop(wal);
    let segments = disk.list(dir()).unwrap().into_iter().filter(|name| name.ends_with(".wal"));
    for (number, name) in segments.enumerate() {
        disk.link(&dir().join(name), &format!("{}-{number}.tmp", ["spare", "retired"][number % 2])).unwrap();
    }
    disk.miscount_names();
    let open = |index| Wal::open(Arc::new(disk.clone()), dir(), &at(index, 1), SMALL).unwrap();
    let (mut wal, recovered) = open(1);
    assert_eq!(recovered.entries.len() as u64, last - 1);
    for _ in 0..3 {
        wal.spare().prepare().unwrap();
        wal.reaper().finish().unwrap();
        let segments = wal.segments();
        fill(&mut wal, segments + 1);
    }
    drop(wal);
    let (wal, recovered) = open(1);
    assert_eq!(recovered.entries.len() as u64, wal.last_index() - 1);
}

#[test]
fn a_link_in_place_of_a_freed_segment_leads_to_no_write() {
    let root = std::env::temp_dir().join(format!("cairn-wal-link-{}", std::process::id()));
    let dir = root.join("wal");
    drop(Wal::create(Arc::new(OsDisk::default()), &dir, b"metadata", SMALL).unwrap());
    std::fs::write(root.join("mine"), [7; 10_000]).unwrap();
    for name in ["spare-7.tmp", "retired-8.tmp", "other.tmp"] {
        std::os::unix::fs::symlink(root.join("mine"), dir.join(name)).unwrap();
    }
    let (wal, _) = Wal::open(Arc::new(OsDisk::default()), &dir, &at(0, 0), SMALL).unwrap();
    wal.spare().prepare().unwrap();
    wal.reaper().finish().unwrap();
    assert_eq!(std::fs::read(root.join("mine")).unwrap(), [7; 10_000]);
    let names = OsDisk::default().list(&dir).unwrap();
    assert_eq!(names.iter().filter(|name| name.ends_with(".tmp")).collect::<Vec<_>>(), ["spare-7.tmp"]);
    std::fs::remove_dir_all(&root).unwrap();
}
