//! A disk that is full, or that fails at the wrong moment: what the store gives back must not stand in its own way, and no failure is forgotten.
#![allow(clippy::unwrap_used)]

use crate::support::requests::*;
use crate::support::transfer::{live, receive};
use crate::support::{DIR, Node, Told, small_segments};
use crate::transfer::lagging;
use disk::sim::{Random, SimDisk};
use disk::{Disk, Reaper};
use std::path::Path;
use std::sync::Arc;
use store::{IntakeError, Options, Work};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn used(node: &Node) -> u64 {
    let names = node.disk.list(Path::new(DIR)).unwrap();
    names.iter().map(|name| node.disk.contents(&Path::new(DIR).join(name)).unwrap().len() as u64).sum()
}

fn leftovers(node: &Node) -> usize {
    node.disk.list(Path::new(DIR)).unwrap().iter().filter(|name| name.ends_with(".intake")).count()
}

/// A store of which nearly everything was compacted, and what that freed waits to be given back.
fn compacted() -> Node {
    let mut node = Node::new();
    for at in 0..600 {
        node.apply(put("a", &format!("{at:0300}")).raft()).unwrap();
    }
    let revision = node.store.revision();
    node.apply(compact(revision)).unwrap();
    for _ in 0..4 {
        while node.store.maintain(64 << 10).unwrap().work != Work::Idle {}
        node.checkpoint();
    }
    assert!(node.store.segments().reaper().waiting().files > 5);
    node
}

fn fill(node: &mut Node, puts: usize) {
    for at in 0..puts {
        node.apply(put("b", &format!("{at:0300}")).raft()).unwrap();
    }
}

#[test]
fn a_segment_that_is_needed_takes_the_room_of_what_waits_to_be_given_back() {
    let mut node = compacted();
    let before = used(&node);
    node.disk.set_capacity(Some(before));
    fill(&mut node, 100);
    assert!(used(&node) <= before);
    node.checkpoint();
    node.reopen();
    assert_eq!(node.range(&all()).unwrap().kvs.len(), 2);
}

#[test]
fn a_segment_that_is_needed_takes_the_room_of_what_the_log_gives_back() {
    let mut node = compacted();
    node.reap();
    let dir = Path::new("log");
    let log = Arc::new(Reaper::new(Arc::new(node.disk.clone()), dir));
    for number in 0..10 {
        let path = dir.join(format!("{number}"));
        node.disk.install(&path, &[7; 16 << 10]).unwrap();
        log.retire_found(path);
    }
    node.store.segments().reaper().share_disk_with(&log);
    node.disk.set_capacity(Some(used(&node) + (160 << 10)));
    fill(&mut node, 300);
    assert!(log.waiting().files < 10);
}

#[test]
fn a_start_gives_back_what_fills_the_disk() {
    let mut node = compacted();
    assert!(leftovers(&node) > 5);
    node.disk.set_capacity(Some(used(&node)));
    assert!(store::leftover_bytes(&node.disk, Path::new(DIR)) > 100 << 10);
    node.reopen();
    assert_eq!(leftovers(&node), 0);
    assert_eq!(store::leftover_bytes(&node.disk, Path::new(DIR)), 0);
    fill(&mut node, 100);
}

#[test]
fn a_disk_too_full_to_rename_has_files_removed() {
    let mut node = Node::new();
    node.disk.fail_renames(Some((".intake", ENOSPC)));
    for at in 0..600 {
        node.apply(put("a", &format!("{at:0300}")).raft()).unwrap();
    }
    let before = used(&node);
    let revision = node.store.revision();
    node.apply(compact(revision)).unwrap();
    for _ in 0..4 {
        while node.store.maintain(64 << 10).unwrap().work != Work::Idle {}
        node.checkpoint();
    }
    assert!(used(&node) < before / 4);
    let names = node.disk.list(Path::new(DIR)).unwrap();
    assert_eq!(names.iter().filter(|name| name.ends_with(".ckpt")).count(), 2);
    assert_eq!(leftovers(&node), 0);
    // What no checkpoint lists is in the way of no start.
    node.disk.install(&Path::new(DIR).join("0000000000000fff.seg"), b"orphan").unwrap();
    node.disk.install(&Path::new(DIR).join("0000000000000001.ckpt.tmp"), b"unfinished").unwrap();
    node.reopen();
    let names = node.disk.list(Path::new(DIR)).unwrap();
    assert!(!names.iter().any(|name| name.ends_with("fff.seg") || name.ends_with(".tmp")), "{names:?}");
    assert_eq!(node.range(&all()).unwrap().kvs.len(), 1);
}

#[test]
fn files_that_cannot_go_keep_no_full_disk_from_being_rewritten() {
    let needed = 64 << 10;
    let mut node = Node::with(Options { reserve_bytes: needed, ..small_segments() });
    for at in 0..600 {
        node.apply(put(&format!("{:03}", at % 300), &format!("{at:0300}")).raft()).unwrap();
    }
    // Something the reaper will never get rid of.
    let stuck = Path::new(DIR).join("0000000000000fff.seg.intake");
    node.disk.install(&stuck, &[7; 1000]).unwrap();
    node.store.segments().reaper().retire_found(stuck);
    node.disk.fail_shrinking(Some(EIO));
    node.store.segments().reaper().step(100).unwrap_err();
    let revision = node.store.revision();
    node.apply(compact(revision)).unwrap();
    let used = used(&node);
    node.disk.set_capacity(Some(used + needed));
    let mut rewritten = 0;
    for _ in 0..200 {
        let progress = node.store.maintain(4 << 10).unwrap();
        assert!(node.store.disk_is_low());
        rewritten += usize::from(progress.work == Work::Busy);
        if progress.checkpoint_is_due {
            node.checkpoint();
        }
        // As the server's thread does, but for those that have failed.
        while node.store.segments().reaper().has_work() {
            node.store.segments().reaper().step(u64::MAX).unwrap_err();
        }
        node.disk.set_capacity(Some(self::used(&node) + needed));
    }
    assert!(rewritten > 20, "{rewritten}");
    node.disk.fail_shrinking(None);
    node.store.segments().reaper().retry();
    node.reap();
    assert_eq!(leftovers(&node), 0);
    assert!(self::used(&node) < used * 3 / 4, "{} of {used}", self::used(&node));
}

/// The tombstones have to stay as long as the first segment has a dead put, and a copy of all of them does not fit.
#[test]
fn tombstones_that_have_to_stay_do_not_fill_the_disk() {
    let mut node = Node::new();
    for at in 0..100 {
        node.apply(put(&format!("stays/{}", at.min(98)), &format!("{at:0100}")).raft()).unwrap();
    }
    let file_bytes = |node: &Node| node.store.segments().file_bytes();
    let begun = file_bytes(&node);
    let mut at = 0;
    while file_bytes(&node) < begun + (1 << 20) {
        let key = format!("goes/{at:020}");
        node.apply(put(&key, "for a short while").raft()).unwrap();
        node.apply(delete(&key, "").raft()).unwrap();
        at += 1;
    }
    let revision = node.store.revision();
    node.apply(compact(revision)).unwrap();
    while node.store.compacted() < revision {
        node.store.maintain(1).unwrap();
    }
    node.checkpoint();
    node.checkpoint();
    node.reap();
    let (_, needed) = (node.store.look_at_disk(), node.store.disk_bytes().1);
    node.disk.set_capacity(Some(used(&node) + needed));
    let before = file_bytes(&node);
    for _ in 0..2000 {
        let progress = node.store.maintain(4 << 10).unwrap();
        assert!(progress.work != Work::Waiting, "a copy has filled the disk: {} of {before}", file_bytes(&node));
        if progress.checkpoint_is_due {
            node.checkpoint();
        }
        node.reap();
    }
    assert!(file_bytes(&node) < before / 8, "{} of {before}", file_bytes(&node));
    node.disk.set_capacity(None);
    node.reopen();
    assert_eq!(node.range(&all()).unwrap().kvs.len(), 99);
}

/// Another program has taken what the Raft log would need: a copy takes no more than half of the rest.
#[test]
fn a_copy_leaves_room_for_the_log() {
    let mut node = Node::with(Options { reserve_bytes: 256 << 10, ..small_segments() });
    for at in 0..900 {
        // Two of five stay.
        let key = if at % 5 < 2 { format!("stays/{at:03}") } else { "changes".into() };
        node.apply(put(&key, &format!("{at:0300}")).raft()).unwrap();
    }
    let revision = node.store.revision();
    node.apply(compact(revision)).unwrap();
    while node.store.compacted() < revision {
        node.store.maintain(1).unwrap();
    }
    let drive = |node: &mut Node, free: u64| {
        node.checkpoint();
        node.checkpoint();
        node.reap();
        let (before, capacity) = (used(node), used(node) + free);
        node.disk.set_capacity(Some(capacity));
        for _ in 0..200 {
            // One slice, so that each state of a copy is seen.
            let progress = node.store.maintain(1).unwrap();
            let left = capacity.saturating_sub(used(node));
            assert!(left >= free / 2, "{left} of {free} bytes are left");
            if progress.checkpoint_is_due {
                node.disk.set_capacity(None);
                node.checkpoint();
                node.reap();
                node.disk.set_capacity(Some(capacity));
            }
        }
        node.disk.set_capacity(None);
        (before, used(node))
    };
    drive(&mut node, 20 << 10);
    let (before, after) = drive(&mut node, 32 << 10);
    assert!(after < before * 3 / 4, "{after} of {before}");
}

#[test]
fn a_segment_that_was_being_checked_gives_its_space_back_on_a_low_disk() {
    let needed = 64 << 10;
    let mut node = Node::with(Options { reserve_bytes: needed, ..small_segments() });
    for at in 0..600 {
        node.apply(put(&format!("{:03}", at % 300), &format!("{at:0300}")).raft()).unwrap();
    }
    while node.store.maintain(64 << 10).unwrap().work != Work::Idle {}
    node.checkpoint();
    node.reopen();
    let checked = loop {
        let progress = node.store.maintain(1000).unwrap();
        match progress.checkpoint_is_due {
            true => node.checkpoint(),
            false if progress.work == Work::Checking => {
                let names = node.disk.list(Path::new(DIR)).unwrap();
                break names.into_iter().filter(|name| name.ends_with(".seg")).min().unwrap();
            }
            false => {}
        }
    };
    let revision = node.store.revision();
    node.apply(compact(revision)).unwrap();
    while !node.store.maintain(4 << 10).unwrap().checkpoint_is_due {}
    node.checkpoint();
    node.checkpoint();
    // No other segment can be rewritten until there is some space.
    node.disk.set_capacity(Some(used(&node)));
    for _ in 0..20 {
        node.store.maintain(4 << 10).unwrap();
        node.reap();
    }
    assert!(node.store.disk_is_low());
    assert_eq!(leftovers(&node), 0);
    assert!(!node.disk.list(Path::new(DIR)).unwrap().contains(&checked), "{checked} was rewritten first");
}

#[test]
fn a_name_that_was_lost_while_files_were_given_back_is_never_relied_on() {
    let mut node = compacted();
    node.disk.fail_sync_after(0);
    let error = node.store.segments().reaper().step(1000).unwrap_err();
    assert!(error.is_fatal, "{error}");
    let before = used(&node);
    fill(&mut node, 3);
    // The directory would be synced with success now.
    let error = node.applier.checkpoint().write().unwrap_err();
    assert!(!error.is_out_of_space(), "{error}");
    assert!(node.store.segments().reaper().step(1000).unwrap_err().is_fatal);
    assert!(used(&node) >= before, "nothing is cut any more");
    for seed in 0..20 {
        let disk = node.disk.after_cut(seed);
        node.reopen_on(disk);
        assert_eq!(node.range(&all()).unwrap().kvs.len(), 2, "seed {seed}");
    }
}

#[test]
fn a_snapshot_gets_the_room_of_what_was_just_freed() {
    let (mut sender, mut receiver) = lagging(2, 10);
    live(&mut sender, &mut Random::new(2), 300);
    receiver.reap();
    for number in 0..50 {
        let path = Path::new(DIR).join(format!("{:016x}.seg.intake", 0x1000 + number));
        receiver.disk.install(&path, &[7; 64 << 10]).unwrap();
        receiver.store.segments().reaper().retire_found(path);
    }
    receiver.disk.set_capacity(Some(used(&receiver)));
    let ready = receive(&sender.applier.export(), &receiver.store).unwrap();
    receiver.applier.install(ready).unwrap();
    let entry = receiver.entry(put("a", "b").raft());
    receiver.applier.apply(&[entry], &mut Told::default()).unwrap();
    // And none that is not there.
    let (mut sender, receiver) = lagging(2, 10);
    live(&mut sender, &mut Random::new(2), 300);
    receiver.disk.set_capacity(Some(used(&receiver)));
    let error = receive(&sender.applier.export(), &receiver.store).unwrap_err();
    assert!(matches!(error, IntakeError::NoSpace { .. }), "{error}");
}

#[test]
fn a_second_name_of_a_checkpoint_is_left_alone_even_if_the_disk_counts_one() {
    for is_counted in [true, false] {
        let mut node = compacted();
        node.reap();
        let disk: SimDisk = node.disk.clone();
        let names = disk.list(Path::new(DIR)).unwrap();
        for name in names.iter().filter(|name| name.ends_with(".ckpt")) {
            disk.link(&Path::new(DIR).join(name), &format!("{name}.tmp")).unwrap();
        }
        if !is_counted {
            disk.miscount_names();
        }
        node.reopen();
        node.reap();
        node.reopen();
        assert_eq!(node.range(&all()).unwrap().kvs.len(), 1);
    }
}

#[test]
fn a_disk_is_not_low_because_of_what_waits_to_be_given_back() {
    let node = compacted();
    let dir = Path::new("log");
    let log = Arc::new(Reaper::new(Arc::new(node.disk.clone()), dir));
    let kept = dir.join("kept");
    node.disk.install(&kept, &[7; 64 << 10]).unwrap();
    let (retires, path) = (Arc::downgrade(&log), kept.clone());
    log.on_need(move || retires.upgrade().unwrap().retire(path.clone(), 64 << 10, None));
    node.store.segments().reaper().share_disk_with(&log);
    let waiting = node.store.segments().reaper().waiting().bytes;
    assert!(waiting > 64 << 10);
    // What a store of which nothing waits finds to be enough.
    let twin = compacted();
    twin.reap();
    let is_enough = |free: &u64| {
        twin.disk.set_capacity(Some(used(&twin) + free));
        twin.store.look_at_disk();
        !twin.store.disk_is_low()
    };
    let needed = (0..).map(|pages| pages * 4096).find(is_enough).unwrap();
    node.disk.set_capacity(Some(used(&node) - waiting + needed));
    node.store.look_at_disk();
    assert!(!node.store.disk_is_low());
    assert!(node.disk.contents(&kept).is_err(), "what is kept to be used again went too");
    node.disk.set_capacity(Some(used(&node) + needed - 4096));
    node.store.look_at_disk();
    assert!(node.store.disk_is_low());
}

#[test]
fn a_key_file_that_has_no_room_is_put_off_until_there_is_more() {
    let keys = |node: &Node| {
        let names = node.disk.list(Path::new(DIR)).unwrap();
        names.iter().filter(|name| name.ends_with(".keys")).count()
    };
    // All of one size, so that none are joined.
    let mut node = Node::with(Options { log: store::log::Options { segment_bytes: 4 << 10 }, ..Options::default() });
    node.disk.set_capacity(Some(1 << 30));
    while node.store.segments().count() < 4 {
        node.apply(put("a", &"v".repeat(300)).raft()).unwrap();
    }
    // A quota: the disk has room, and says no.
    node.disk.fill_at_write_after(0);
    for _ in 0..200 {
        assert_ne!(node.store.maintain(4 << 10).unwrap().work, Work::Waiting);
        assert!(!node.store.disk_is_low(), "nobody is refused anything for a file that nobody needs");
    }
    assert_eq!((node.disk.errors(), keys(&node)), (1, 0), "it is not tried again without end");
    node.disk.repair();
    node.disk.set_capacity(Some(2 << 30));
    while node.store.maintain(64 << 10).unwrap().work != Work::Idle {}
    assert_eq!(keys(&node), node.store.segments().count() - 1);
}
