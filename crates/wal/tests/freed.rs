//! What becomes of segments that a release has freed: a bounded pool of spares, and the reaper. Nothing slow happens in a release.

#![allow(clippy::unwrap_used)]

mod support;

use disk::Disk;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use support::{SMALL, at, dir, fill, indexes, names_with, new_log};
use wal::{Error, Wal};

#[test]
fn on_a_full_disk_release_gives_everything_back() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 6);
    let files = || disk.list(dir()).unwrap().into_iter().filter(|name| name != "lock").count();
    // What was freed waits to be reused.
    wal.release(last / 2).unwrap();
    assert_eq!(files(), 6);
    let before = wal.segments();
    assert!(before < 6);
    wal.release_all(1).unwrap();
    wal.reaper().finish().unwrap();
    assert_eq!((wal.segments(), files()), (before, before), "what is needed stays, what waited goes");
    wal.release_all(u64::MAX).unwrap();
    wal.reaper().finish().unwrap();
    assert_eq!((wal.segments(), files()), (1, 1));
    let last = fill(&mut wal, 3);
    drop(wal);
    let (_, recovered) = Wal::open(Arc::new(disk), dir(), &at(last - 1, 1), SMALL).unwrap();
    assert_eq!(indexes(&recovered.entries), [last]);
}

#[test]
fn release_keeps_what_is_asked_for_and_reuses_what_it_frees() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 6);
    wal.release(1).unwrap();
    assert_eq!(wal.segments(), 6);
    wal.release(last / 2).unwrap();
    let left = wal.segments();
    assert!(left > 2 && left < 6, "{left}");
    wal.release(u64::MAX).unwrap();
    assert_eq!(wal.segments(), 2);
    let spares = || names_with(&disk, "spare-", ".tmp");
    let kept = spares();
    assert_eq!(kept + names_with(&disk, "retired-", ".tmp"), 4);
    assert!(kept > 1, "{kept}");
    let spare = wal.spare();
    assert!(spare.needed());
    spare.prepare().unwrap();
    assert!(!spare.needed() && spares() == kept);
    let last = fill(&mut wal, 3);
    assert!(spare.needed() && spares() == kept - 1, "the reused segment was taken");
    drop(wal);
    let (_, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &at(last - 1, 1), SMALL).unwrap();
    assert_eq!(indexes(&recovered.entries), [last]);
    // The last of what was applied comes too, as far as it is in what has to be read.
    let (_, whole) = Wal::open(Arc::new(disk.clone()), dir(), &at(last, 1), SMALL).unwrap();
    assert!(whole.entries.is_empty() && !whole.applied.is_empty());
    for (applied, end) in [(&recovered.applied, last - 1), (&whole.applied, last)] {
        let count = applied.len() as u64;
        assert!(count <= 16 && indexes(applied) == (end - count + 1..=end).collect::<Vec<_>>(), "{applied:?}");
    }
    let error = Wal::open(Arc::new(disk), dir(), &at(1, 1), SMALL).err().unwrap();
    assert!(matches!(error, Error::Behind { from_index: 1, .. }), "{error}");
}

#[test]
fn release_neither_removes_nor_cuts_nor_syncs() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 40);
    let used = || {
        let names = disk.list(dir()).unwrap();
        names.iter().map(|name| disk.contents(&dir().join(name)).unwrap().len()).sum::<usize>()
    };
    let (bytes, operations) = (used(), disk.operations());
    let mut release = |below, all: bool| {
        let before = wal.segments();
        if all { wal.release_all(below) } else { wal.release(below) }.unwrap();
        before - wal.segments()
    };
    let freed = release(last / 2, false) + release(last, true);
    assert!(freed > 30, "{freed}");
    // One rename for each, and no reaper has worked yet.
    assert_eq!((used(), disk.operations()), (bytes, operations + freed as u64));
    assert!(wal.reaper().waiting().files >= freed);
    wal.reaper().finish().unwrap();
    assert_eq!(disk.list(dir()).unwrap().len(), wal.segments());
}

#[test]
fn spares_are_bounded_and_become_fewer_when_less_is_written() {
    let (disk, mut wal) = new_log(SMALL);
    let spares = || names_with(&disk, "spare-", ".tmp");
    let last = fill(&mut wal, 40);
    wal.release(last).unwrap();
    assert_eq!(spares(), 8, "a release frees 38 segments");
    wal.reaper().finish().unwrap();
    let mut counts = Vec::new();
    for _ in 0..10 {
        wal.release(last).unwrap();
        wal.reaper().finish().unwrap();
        counts.push(spares());
    }
    assert_eq!(counts, [7, 6, 5, 4, 3, 2, 1, 1, 1, 1]);
    assert_eq!(disk.list(dir()).unwrap().len(), wal.segments() + 1);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a thread is what is woken")]
fn each_segment_that_begins_wakes_the_thread_that_prepares_the_next() {
    let (_, mut wal) = new_log(SMALL);
    let (woken, wakes) = mpsc::channel();
    let preparer = thread::spawn(move || {
        loop {
            thread::park();
            if woken.send(()).is_err() {
                return;
            }
        }
    });
    wal.spare().wake_preparer(preparer.thread().clone());
    for segments in wal.segments() + 1..wal.segments() + 5 {
        fill(&mut wal, segments);
        wakes.recv_timeout(Duration::from_secs(60)).unwrap();
    }
    drop(wakes);
    preparer.thread().unpark();
    preparer.join().unwrap();
}

#[test]
fn a_start_takes_up_spares_and_gives_back_what_was_retired() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 40);
    wal.release(last).unwrap();
    // Half of a file is gone, and a name as only somebody else gives it.
    wal.reaper().step(3000).unwrap();
    disk.install(&dir().join("other.tmp"), b"other").unwrap();
    drop(wal);
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), dir(), &at(last, 1), SMALL).unwrap();
    wal.reaper().finish().unwrap();
    assert_eq!(names_with(&disk, "spare-", ".tmp"), 8);
    assert_eq!(disk.list(dir()).unwrap().len(), wal.segments() + 8);
    // The old bytes of these are never read as a part of the log.
    for _ in 0..8 {
        wal.spare().prepare().unwrap();
        let before = wal.segments();
        fill(&mut wal, before + 1);
    }
    assert_eq!(names_with(&disk, "spare-", ".tmp"), 0);
    let end = wal.last_index();
    drop(wal);
    let (_, recovered) = Wal::open(Arc::new(disk), dir(), &at(last, 1), SMALL).unwrap();
    assert_eq!(indexes(&recovered.entries), (last + 1..=end).collect::<Vec<_>>());
}

#[test]
fn a_full_disk_begins_the_next_segment_in_a_freed_one() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 6);
    wal.release(last).unwrap();
    let spares = names_with(&disk, "spare-", ".tmp");
    assert!(spares > 1);
    let names = disk.list(dir()).unwrap();
    let used: usize = names.iter().map(|name| disk.contents(&dir().join(name)).unwrap().len()).sum();
    // Room for the last batch of a segment, which may go beyond it, and for no segment.
    disk.set_capacity(Some(used as u64 + 1000));
    let before = wal.segments();
    let last = fill(&mut wal, before + spares);
    // The files for which there was no room.
    wal.reaper().finish().unwrap();
    assert_eq!(names_with(&disk, "spare-", ".tmp"), 0);
    drop(wal);
    let (_, recovered) = Wal::open(Arc::new(disk), dir(), &at(last - 1, 1), SMALL).unwrap();
    assert_eq!(indexes(&recovered.entries), [last]);
}

#[test]
fn a_small_disk_keeps_one_spare() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 20);
    disk.set_capacity(Some(200 * 8192));
    wal.release(last).unwrap();
    // An eighth of what is free is worth some, and then one.
    let spares = names_with(&disk, "spare-", ".tmp");
    assert!(spares == 8, "{spares}");
    disk.set_capacity(Some(30 * 8192));
    wal.release(last).unwrap();
    wal.reaper().finish().unwrap();
    assert_eq!(names_with(&disk, "spare-", ".tmp"), 1);
}
