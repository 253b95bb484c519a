//! The log on a simulated disk: what is appended is read back by place and in order.

use super::*;
use crate::types::{Loc, Revision};
use disk::sim::SimDisk;
use disk::{Disk, Reaped};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/data";

fn new_log(segment_bytes: u64) -> (SimDisk, Log) {
    let disk = SimDisk::new();
    disk.create_dir(Path::new(DIR)).unwrap();
    let segments = Segments::new(Arc::new(disk.clone()), Path::new(DIR), Options { segment_bytes }, 1);
    (disk, Log::new(Arc::new(segments), None, Revision::default()))
}

fn rev(main: i64) -> Revision {
    Revision { main, sub: 0 }
}

fn put(log: &mut Log, main: i64, key: &str, value: &[u8]) -> Loc {
    log.append_put(rev(main), KvParts { key: key.as_bytes(), create: main, version: 1, value, lease: 0 })
}

#[test]
fn appended_records_are_pending_then_readable() {
    let (_, mut log) = new_log(1 << 20);
    let loc = put(&mut log, 2, "a", b"one");
    let dead = log.append_tombstone(rev(3), b"a");
    let pending = log.pending(loc).unwrap().to_vec();
    assert_eq!(KvView::parse(&pending).unwrap().value, b"one");
    assert_eq!(log.segments().live_bytes(), 0);
    log.flush().unwrap();
    assert_eq!(log.pending(loc), None);
    let segments = Arc::clone(log.segments());
    assert_eq!(*segments.read(loc), *pending);
    assert_eq!(segments.read(loc).into_bytes(), pending);
    segments.with(dead, |bytes| assert_eq!(bytes, [0x0a, 1, b'a']));
    let bytes = record_bytes(loc.len as usize) + record_bytes(dead.len as usize);
    assert_eq!(segments.live_bytes(), bytes as u64);
    segments.mark_dead(loc, false);
    assert_eq!(segments.live_bytes(), record_bytes(dead.len as usize) as u64);
}

#[test]
fn a_batch_may_cross_segments_and_hold_records_larger_than_one() {
    let (disk, mut log) = new_log(4096);
    let mut locs = Vec::new();
    for main in 2..200 {
        let value = vec![main as u8; if main % 50 == 0 { 20_000 } else { main as usize }];
        locs.push((main, put(&mut log, main, &format!("key{main}"), &value), value));
        for (_, loc, value) in locs.iter().rev().take(3) {
            if let Some(bytes) = log.pending(*loc) {
                assert_eq!(KvView::parse(bytes).unwrap().value, value);
            }
        }
        if main % 70 == 0 {
            log.flush().unwrap();
        }
    }
    log.flush().unwrap();
    for (main, loc, value) in &locs {
        let stored = log.segments().read(*loc);
        let view = KvView::parse(&stored).unwrap();
        assert_eq!((view.modified, view.value), (*main, &value[..]));
    }
    assert!(log.segments().count() > 5);
    for from in [0, 2, 3, 50, 51, 120, 198, 199, 200] {
        let found: Vec<_> = log.segments().scan(from).map(|record| (record.rev.main, record.loc)).collect();
        let expected: Vec<_> =
            locs.iter().filter(|(main, ..)| *main >= from).map(|(main, loc, _)| (*main, *loc)).collect();
        assert_eq!(found, expected);
    }
    let listing = log.listing();
    assert_eq!(listing.entries().iter().map(|entry| entry.records).sum::<u64>(), 198);
    listing.sync().unwrap();
    for entry in listing.entries() {
        let bytes = disk.contents(&Path::new(DIR).join(segment_name(entry.id))).unwrap();
        let covered = &bytes[..entry.length as usize];
        assert_eq!(scan_segment(covered), Ok(entry.records));
    }
}

#[test]
fn a_scan_goes_on_when_there_is_more() {
    let (_, mut log) = new_log(4096);
    let mut scan = log.segments().scan(3);
    assert!(scan.next().is_none());
    for main in 2..100 {
        put(&mut log, main, "k", &[7; 200]);
        assert!(scan.next().is_none());
        log.flush().unwrap();
        let seen = scan.next().map(|record| record.rev.main);
        assert_eq!(seen, (main >= 3).then_some(main));
    }
}

#[test]
fn the_spare_is_used_when_it_is_large_enough() {
    let (_, mut log) = new_log(4096 * 16);
    let spare = log.spare();
    assert!(spare.needed());
    spare.prepare().unwrap();
    assert!(!spare.needed());
    let large = put(&mut log, 2, "a", &[0; 10_000]);
    let small = put(&mut log, 3, "a", &[0; 3_000]);
    assert_eq!((large.segment, small.segment), (2, 1));
    log.flush().unwrap();
    assert!(spare.needed());
    spare.prepare().unwrap();
    assert!(!spare.needed());
}

#[test]
fn a_spare_that_is_not_needed_costs_nothing() {
    let (disk, mut log) = new_log(4096 * 16);
    let spare = log.spare();
    let state = |log: &Log| {
        (
            disk.operations(),
            disk.list(Path::new(DIR)).unwrap(),
            log.segments().next_id.load(std::sync::atomic::Ordering::Relaxed),
        )
    };
    spare.prepare().unwrap();
    let before = state(&log);
    for _ in 0..10 {
        spare.prepare().unwrap();
    }
    assert_eq!(state(&log), before, "a spare is there");
    put(&mut log, 2, "a", b"1");
    log.flush().unwrap();
    let before = state(&log);
    for _ in 0..10 {
        spare.prepare().unwrap();
    }
    assert_eq!(state(&log), before, "the current segment is nearly empty");
    put(&mut log, 3, "a", &[0; 2500]);
    log.flush().unwrap();
    spare.prepare().unwrap();
    let after = state(&log);
    assert_eq!((after.1.len(), after.2), (2, before.2 + 1));
}

#[test]
fn a_failed_write_poisons_the_log() {
    let (disk, mut log) = new_log(1 << 20);
    put(&mut log, 2, "a", b"1");
    log.flush().unwrap();
    put(&mut log, 3, "a", b"2");
    disk.fail_write_after(0);
    assert!(matches!(log.flush(), Err(Error::Io { .. })));
    assert!(matches!(log.flush(), Err(Error::Poisoned)));
    assert_eq!(log.segments().scan(0).count(), 1);
}

#[test]
fn a_full_disk_fails_the_spare_without_harm() {
    let (disk, mut log) = new_log(4096 * 16);
    put(&mut log, 2, "a", &[0; 2500]);
    log.flush().unwrap();
    disk.set_capacity(Some(5000));
    assert!(log.spare().prepare().unwrap_err().is_out_of_space());
    put(&mut log, 3, "a", b"1");
    log.flush().unwrap();
    assert_eq!(disk.list(Path::new(DIR)).unwrap().len(), 1);
}

#[test]
fn replaced_segments_are_removed_when_nothing_refers_to_them() {
    let (disk, mut log) = new_log(4096);
    let locs: Vec<Loc> = (2..60).map(|main| put(&mut log, main, "k", &[1; 300])).collect();
    log.flush().unwrap();
    let segments = Arc::clone(log.segments());
    let first = read(&segments.table).order()[0].clone();
    let value = segments.read(locs[0]);
    let listing = log.listing();
    write(&segments.table).replace(std::slice::from_ref(&first), None);
    assert_eq!(segments.sweep(&HashSet::new()).unwrap(), 0, "it was just replaced");
    assert_eq!(segments.sweep(&HashSet::new()).unwrap(), 0, "a listing holds it");
    drop(listing);
    assert_eq!(segments.sweep(&HashSet::from([first.id()])).unwrap(), 0, "a checkpoint lists it");
    assert_eq!(*segments.read(locs[0]), *value);
    let before = disk.operations();
    assert_eq!(segments.sweep(&HashSet::new()).unwrap(), 1);
    assert_eq!(disk.operations(), before + 1, "a sweep only renames");
    let has = |suffix: &str| disk.list(Path::new(DIR)).unwrap().contains(&(segment_name(first.id()) + suffix));
    assert!(!has("") && has(INTAKE_SUFFIX));
    // While anything of it may be read, the file stays as it is.
    disk.guard_mappings();
    assert_eq!(segments.reaper().step(1000).unwrap(), Reaped::Waiting);
    assert_eq!(KvView::parse(&value).unwrap().value, [1; 300]);
    let id = first.id();
    let records = first.entry().records;
    drop((first, value));
    segments.reaper().finish().unwrap();
    assert!(!disk.list(Path::new(DIR)).unwrap().contains(&(segment_name(id) + INTAKE_SUFFIX)));
    assert_eq!(segments.scan(0).next().unwrap().rev.main, 2 + records as i64);
}

#[test]
fn what_was_written_is_sent_to_the_disk_but_for_the_last_part() {
    let (disk, mut log) = new_log(64 << 20);
    let segments = Arc::clone(log.segments());
    let sent = |log: &mut Log, main: std::ops::Range<i64>| {
        for main in main {
            put(log, main, "k", &[1; 100_000]);
        }
        log.flush().unwrap();
        let before = disk.operations();
        segments.write_back().unwrap();
        disk.operations() - before
    };
    assert_eq!(sent(&mut log, 2..8), 0, "600 KB wait for more");
    assert_eq!(sent(&mut log, 8..30), 2, "2.8 MB are two steps");
    assert_eq!(sent(&mut log, 30..31), 0);
    log.listing().sync().unwrap();
    assert_eq!(sent(&mut log, 31..37), 0, "what was synced is not sent again");
    assert!(sent(&mut log, 37..90) >= 4);
    assert!(segments.count() > 1 && segments.order().iter().rev().skip(1).all(|segment| segment.is_sent()));
}

#[test]
fn after_a_failed_write_back_no_sync_succeeds() {
    let (disk, mut log) = new_log(64 << 20);
    for main in 2..30 {
        put(&mut log, main, "k", &[1; 100_000]);
    }
    log.flush().unwrap();
    disk.fail_write_back_after(0);
    let error = log.segments().write_back().unwrap_err();
    assert!(error.to_string().starts_with("cannot write back `"), "{error}");
    // The disk has told once, and would not say it again.
    assert!(log.listing().sync().is_err());
    assert!(log.segments().write_back().is_err());
}

#[test]
fn every_flipped_bit_and_every_cut_of_a_segment_is_found() {
    let (disk, mut log) = new_log(1 << 20);
    for main in 2..12 {
        put(&mut log, main, "key", &vec![3; main as usize]);
    }
    log.append_tombstone(rev(12), b"key");
    log.flush().unwrap();
    let entry = log.listing().entries()[0];
    let bytes = disk.contents(&Path::new(DIR).join(segment_name(entry.id))).unwrap()[..entry.length as usize].to_vec();
    assert_eq!(scan_segment(&bytes), Ok(11));
    let mut starts = vec![SEGMENT_HEADER_BYTES];
    let mut walk = Walk::new(&bytes, SEGMENT_HEADER_BYTES);
    while walk.next().is_some() {
        starts.push(walk.offset());
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let damage = scan_segment(&damaged).unwrap_err();
            assert!(damage.offset <= at as u64 && at as u64 - damage.offset < 100, "{at}: {damage:?}");
        }
        assert_eq!(scan_segment(&bytes[..at]).is_ok(), starts.contains(&at), "cut at {at}");
    }
}
