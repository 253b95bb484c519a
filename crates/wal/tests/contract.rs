//! What the log promises, without power cuts.

#![allow(clippy::unwrap_used)]

mod common;

use api::{Message, etcdserverpb, raftpb, walpb};
use common::{Model, Op};
use disk::sim::SimDisk;
use disk::{Disk, Mode};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use wal::{Contents, EntryRef, Error, Options, Wal};

const DIR: &str = "/member/wal";
const SMALL: Options = Options { segment_bytes: 8192, segments_min: 2, rest: || {} };

fn dir() -> &'static Path {
    Path::new(DIR)
}

/// A state that has applied nothing.
fn start() -> walpb::Snapshot {
    at(0, 0)
}

/// A state that has applied an entry of this index and term last.
fn at(index: u64, term: u64) -> walpb::Snapshot {
    walpb::Snapshot { index: Some(index), term: Some(term), conf_state: None }
}

fn metadata() -> Vec<u8> {
    etcdserverpb::Metadata { node_id: Some(7), cluster_id: Some(9) }.encode_to_vec()
}

fn new_log(options: Options) -> (SimDisk, Wal) {
    let disk = SimDisk::new();
    let wal = Wal::create(Arc::new(disk.clone()), dir(), &metadata(), options).unwrap();
    (disk, wal)
}

fn append(wal: &mut Wal, indexes: std::ops::RangeInclusive<u64>, term: u64, data: &[u8]) {
    let mut entries = indexes.map(|index| EntryRef { term, index, kind: 0, data });
    wal.append(&mut entries, None);
    wal.commit(true).unwrap();
}

fn state(term: u64, commit: u64) -> raftpb::HardState {
    raftpb::HardState { term: Some(term), vote: Some(7), commit: Some(commit) }
}

fn indexes(entries: &[raftpb::Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.index()).collect()
}

/// Fills about `segments` segments, a commit per entry; returns the last index.
fn fill(wal: &mut Wal, segments: usize) -> u64 {
    fill_in(wal, segments, 1)
}

fn fill_in(wal: &mut Wal, segments: usize, term: u64) -> u64 {
    let mut index = wal.last_index();
    while wal.segments() < segments {
        index += 1;
        append(wal, index..=index, term, &[5; 700]);
    }
    index
}

#[test]
fn an_empty_log_can_be_opened() {
    let (disk, wal) = new_log(Options::default());
    assert_eq!(disk.list(dir()).unwrap(), ["0000000000000000-0000000000000000.wal"]);
    drop(wal);
    let (wal, recovered) = Wal::open(Arc::new(disk), dir(), &start(), Options::default()).unwrap();
    assert_eq!((wal.last_index(), wal.segments()), (0, 1));
    assert_eq!(recovered.metadata, metadata());
    assert!(recovered.entries.is_empty() && recovered.cut.is_none());
    assert_eq!(recovered.hard_state, raftpb::HardState::default());
    assert_eq!(recovered.snapshot.index(), 0);
}

#[test]
fn create_refuses_a_log_and_open_refuses_none() {
    let disk = Arc::new(SimDisk::new());
    assert!(matches!(Wal::open(disk.clone(), dir(), &start(), SMALL), Err(Error::Missing(_))));
    disk.create_dir(dir()).unwrap();
    assert!(matches!(Wal::open(disk.clone(), dir(), &start(), SMALL), Err(Error::Missing(_))));
    assert!(!Wal::exists(&*disk, dir()).unwrap());
    let _wal = Wal::create(disk.clone(), dir(), b"", SMALL).unwrap();
    assert!(Wal::exists(&*disk, dir()).unwrap());
    assert!(matches!(Wal::create(disk, dir(), b"", SMALL), Err(Error::Exists(_))));
}

#[test]
fn a_second_process_is_refused() {
    let (disk, mut wal) = new_log(SMALL);
    let locked =
        |disk: &SimDisk| matches!(Wal::open(Arc::new(disk.clone()), dir(), &start(), SMALL), Err(Error::Locked(_)));
    assert!(locked(&disk));
    fill(&mut wal, 3);
    assert!(locked(&disk));
    drop(wal);
    assert!(!locked(&disk));
}

#[test]
fn everything_comes_back_across_segments() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 5);
    wal.append(&mut std::iter::empty(), Some(&state(1, last)));
    wal.commit(true).unwrap();
    drop(wal);
    // A state that was made from this log is never ahead of it; one that another member sent may be.
    let is_ahead = |from: u64| from > last;
    for from in [0, 1, last / 2, last - 1, last, last + 10] {
        for open in [Wal::open, Wal::open_installed].into_iter().skip(usize::from(is_ahead(from))) {
            let (wal, recovered) = open(Arc::new(disk.clone()), dir(), &at(from, u64::from(from > 0)), SMALL).unwrap();
            assert_eq!(indexes(&recovered.entries), (from + 1..=last).collect::<Vec<_>>());
            assert!(recovered.entries.iter().all(|entry| entry.data() == [5; 700]));
            assert_eq!(recovered.hard_state, state(1, last.max(from)));
            assert_eq!((wal.last_index(), recovered.restarted), (last.max(from), is_ahead(from)));
        }
    }
}

#[test]
fn one_commit_is_one_write_and_one_sync() {
    let (disk, mut wal) = new_log(Options::default());
    let before = disk.operations();
    wal.append(&mut (1..=1000).map(|index| EntryRef { term: 1, index, kind: 0, data: &[1; 300] }), Some(&state(1, 0)));
    assert_eq!(disk.operations(), before);
    wal.commit(true).unwrap();
    assert_eq!(disk.operations(), before + 2);
    wal.commit(true).unwrap();
    assert_eq!(disk.operations(), before + 2);
}

#[test]
fn a_hard_state_may_wait_but_entries_may_not() {
    let (disk, mut wal) = new_log(SMALL);
    append(&mut wal, 1..=1, 1, b"a");
    let before = disk.operations();
    wal.append(&mut std::iter::empty(), Some(&state(1, 1)));
    wal.commit(false).unwrap();
    assert_eq!(disk.operations(), before);
    wal.append(&mut [EntryRef { term: 1, index: 2, kind: 0, data: b"b" }].into_iter(), None);
    wal.commit(false).unwrap();
    assert_eq!(disk.operations(), before + 2);
    disk.cut();
    let (_, recovered) = Wal::open(Arc::new(disk.after_cut(1)), dir(), &start(), SMALL).unwrap();
    assert_eq!((recovered.hard_state, indexes(&recovered.entries)), (state(1, 1), vec![1, 2]));
}

#[test]
fn a_later_entry_replaces_those_from_its_index_on() {
    let (disk, mut wal) = new_log(SMALL);
    append(&mut wal, 1..=10, 1, b"old");
    append(&mut wal, 4..=5, 2, b"new");
    drop(wal);
    let open = |from, term| Wal::open(Arc::new(disk.clone()), dir(), &at(from, term), SMALL).unwrap().1.entries;
    let entries = open(0, 0);
    assert_eq!(indexes(&entries), [1, 2, 3, 4, 5]);
    assert_eq!(entries.iter().map(|entry| entry.term()).collect::<Vec<_>>(), [1, 1, 1, 2, 2]);
    assert_eq!(indexes(&open(4, 2)), [5]);
    // Entries 6 to 10 are gone even for a state that is ahead of the replacement.
    assert!(open(5, 2).is_empty());
}

#[test]
fn a_snapshot_from_another_member_restarts_the_log_behind_it() {
    let (disk, mut wal) = new_log(SMALL);
    append(&mut wal, 1..=10, 1, b"x");
    let conf_state = raftpb::ConfState { voters: vec![1, 2, 3], ..Default::default() };
    let snapshot = walpb::Snapshot { index: Some(1000), term: Some(3), conf_state: Some(conf_state) };
    wal.save_snapshot(&snapshot);
    wal.append(&mut std::iter::empty(), Some(&state(3, 1000)));
    wal.commit(true).unwrap();
    append(&mut wal, 1001..=1003, 3, b"y");
    fill(&mut wal, 4);
    drop(wal);
    let (_, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &at(1000, 3), SMALL).unwrap();
    assert_eq!(recovered.snapshot, snapshot);
    assert_eq!(recovered.entries[0].index(), 1001);
    let error = Wal::open(Arc::new(disk), dir(), &at(10, 1), SMALL).err().unwrap();
    assert!(matches!(error, Error::Behind { first_index: 1001, from_index: 10, .. }), "{error}");
}

#[test]
fn a_snapshot_replaces_entries_of_another_history() {
    let (disk, mut wal) = new_log(SMALL);
    append(&mut wal, 1..=10, 2, b"never committed");
    wal.save_snapshot(&walpb::Snapshot { index: Some(5), term: Some(4), conf_state: None });
    wal.append(&mut std::iter::empty(), Some(&state(4, 5)));
    wal.commit(true).unwrap();
    drop(wal);
    let open = |from, term| Wal::open(Arc::new(disk.clone()), dir(), &at(from, term), SMALL);
    // Entries 6 to 10 are of a term that cannot follow the snapshot's.
    let (wal, recovered) = open(5, 4).unwrap();
    assert!(recovered.entries.is_empty());
    assert_eq!(wal.last_index(), 5);
    drop(wal);
    assert!(matches!(open(4, 2).err().unwrap(), Error::Behind { first_index: 6, .. }));

    // The snapshot of a member's own checkpoint leaves the entries after it.
    let (disk, mut wal) = new_log(SMALL);
    append(&mut wal, 1..=10, 2, b"x");
    wal.save_snapshot(&walpb::Snapshot { index: Some(5), term: Some(2), conf_state: None });
    wal.commit(true).unwrap();
    drop(wal);
    for from in [0, 3, 5, 8] {
        let (_, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &at(from, 2), SMALL).unwrap();
        assert_eq!(indexes(&recovered.entries), (from + 1..=10).collect::<Vec<_>>());
    }
}

#[test]
fn an_installed_snapshot_ahead_of_the_log_continues_it() {
    let (disk, mut wal) = new_log(SMALL);
    append(&mut wal, 1..=10, 1, b"x");
    drop(wal);
    let (mut wal, recovered) = Wal::open_installed(Arc::new(disk.clone()), dir(), &at(50, 1), SMALL).unwrap();
    assert!(recovered.entries.is_empty());
    append(&mut wal, 51..=52, 1, b"y");
    drop(wal);
    let (_, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &at(50, 1), SMALL).unwrap();
    assert_eq!(indexes(&recovered.entries), [51, 52]);
    let error = Wal::open(Arc::new(disk), dir(), &at(20, 1), SMALL).err().unwrap();
    assert!(matches!(error, Error::Behind { first_index: 51, from_index: 20, .. }), "{error}");
}

#[test]
fn a_log_that_lost_what_was_applied_from_it_is_refused_unchanged() {
    let open = |disk: &SimDisk, from, term| Wal::open(Arc::new(disk.clone()), dir(), &at(from, term), SMALL);
    let (disk, mut wal) = new_log(SMALL);
    append(&mut wal, 1..=10, 2, b"x");
    drop(wal);
    let before = disk.operations();
    let error = open(&disk, 12, 2).err().unwrap();
    assert!(matches!(error, Error::Ends { last_index: 10, from_index: 12, .. }), "{error}");
    assert!(error.to_string().contains("ends at entry 10") && error.to_string().contains("has entry 12"), "{error}");
    let error = open(&disk, 10, 3).err().unwrap();
    assert!(matches!(error, Error::Differs { from_index: 10, .. }), "{error}");
    assert_eq!(disk.operations(), before);
    assert!(open(&disk, 10, 2).is_ok());
    // An empty one in its place.
    let (disk, wal) = new_log(SMALL);
    drop(wal);
    assert!(matches!(open(&disk, 12, 2).err().unwrap(), Error::Ends { last_index: 0, from_index: 12, .. }));
}

/// The only segment that is left has no entry yet: its name tells how far the log goes.
#[test]
fn a_state_at_the_end_of_a_log_without_entries_is_not_ahead_of_it() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill_in(&mut wal, 3, 2);
    // One that is older stands at the head of the segment.
    wal.save_snapshot(&at(last - 2, 2));
    wal.commit(true).unwrap();
    wal.release_all(last + 1).unwrap();
    assert_eq!(wal.segments(), 1);
    drop(wal);
    let (wal, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &at(last, 2), SMALL).unwrap();
    assert_eq!((wal.last_index(), recovered.entries.len(), recovered.restarted), (last, 0, false));
    drop(wal);
    let error = Wal::open(Arc::new(disk), dir(), &at(last + 1, 2), SMALL).err().unwrap();
    assert!(matches!(error, Error::Ends { last_index, .. } if last_index == last), "{error}");
}

/// A failed sync leaves pages that the system takes for written. What a start reads of them must be on the disk before it counts,
/// whatever later syncs say.
#[test]
fn what_is_found_after_a_failed_sync_survives_a_power_cut() {
    // Within a segment, and beyond the length that it was allocated with.
    for bytes in [40, 3000, 40_000] {
        let (disk, mut wal) = new_log(SMALL);
        disk.sync_dir(Path::new("/")).unwrap();
        append(&mut wal, 1..=3, 2, b"durable");
        let entry = EntryRef { term: 2, index: 4, kind: 0, data: &vec![7; bytes] };
        wal.append(&mut [entry].into_iter(), Some(&state(3, 3)));
        disk.fail_sync_after(0);
        assert!(wal.commit(true).is_err());
        drop(wal);
        // The process is started again: the pages are still there.
        let (wal, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &start(), SMALL).unwrap();
        assert_eq!((indexes(&recovered.entries), recovered.hard_state), (vec![1, 2, 3, 4], state(3, 3)));
        drop(wal);
        for seed in 0..50 {
            let after = disk.after_cut(seed);
            let (_, recovered) = Wal::open(Arc::new(after), dir(), &start(), SMALL).unwrap();
            let found = (indexes(&recovered.entries), recovered.hard_state, recovered.cut);
            assert_eq!(found, (vec![1, 2, 3, 4], state(3, 3), None), "{bytes} bytes, seed {seed}");
        }
    }
}

/// The same of the zeros that a start writes over a torn batch.
#[test]
fn what_a_start_has_cut_off_does_not_come_back_after_a_failed_sync() {
    // One piece of zeros, and three, of which the last ends within the first record of the batch if they are counted from the end.
    let large = Options { segment_bytes: (2 << 20) + 248 + 24, ..SMALL };
    let mut torn = 0;
    for (options, syncs, seeds) in [(SMALL, 0, 40), (large, 0, 10), (large, 1, 10), (large, 2, 10), (large, 3, 10)] {
        for seed in 0..seeds {
            let (disk, mut wal) = new_log(options);
            disk.sync_dir(Path::new("/")).unwrap();
            append(&mut wal, 1..=3, 2, b"durable");
            let entry = EntryRef { term: 2, index: 4, kind: 0, data: &vec![7; 3000] };
            wal.append(&mut [entry].into_iter(), None);
            disk.fail_sync_after(0);
            assert!(wal.commit(true).is_err());
            drop(wal);
            let disk = disk.after_cut(seed);
            disk.fail_sync_after(syncs);
            let first = Wal::open(Arc::new(disk.clone()), dir(), &start(), options);
            if first.is_ok() {
                continue;
            }
            let (mut wal, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &start(), options).unwrap();
            if recovered.entries.len() == 4 {
                continue;
            }
            torn += 1;
            append(&mut wal, 4..=4, 3, b"short");
            drop(wal);
            for seed in 0..20 {
                let after = disk.after_cut(seed);
                let (_, recovered) = Wal::open(Arc::new(after), dir(), &start(), options).unwrap();
                let found = (indexes(&recovered.entries), recovered.cut);
                assert_eq!(found, (vec![1, 2, 3, 4], None), "after {syncs} syncs, seed {seed}");
            }
        }
    }
    assert!(torn > 20, "{torn} torn batches");
}

/// A log whose member never committed entries 6 to 10, and that then lay still while its state was replaced.
fn left_behind(last_term: u64) -> SimDisk {
    let (disk, mut wal) = new_log(SMALL);
    append(&mut wal, 1..=5, 2, b"committed");
    append(&mut wal, 6..=10, last_term, b"never committed");
    wal.append(&mut std::iter::empty(), Some(&state(last_term, 5)));
    wal.commit(true).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

#[test]
fn a_log_that_was_not_told_of_a_snapshot_is_restarted_behind_it() {
    // The state ends inside of the log, at its end, and after it.
    for (index, stale_term, term) in [(7, 3, 4), (10, 3, 4), (50, 3, 4), (7, 5, 4), (50, 9, 4)] {
        let disk = left_behind(stale_term);
        for restarted in [true, false] {
            if restarted {
                let (before, refused) =
                    (disk.operations(), Wal::open(Arc::new(disk.clone()), dir(), &at(index, term), SMALL));
                assert!(matches!(refused.err().unwrap(), Error::Ends { last_index: 10, .. } | Error::Differs { .. }));
                assert_eq!(disk.operations(), before, "a log that is refused stays as it is");
            }
            let (wal, recovered) = Wal::open_installed(Arc::new(disk.clone()), dir(), &at(index, term), SMALL).unwrap();
            assert_eq!((recovered.entries.len(), wal.last_index(), recovered.restarted), (0, index, restarted));
            let vote = if stale_term < term { 0 } else { 7 };
            let expected =
                raftpb::HardState { term: Some(term.max(stale_term)), vote: Some(vote), commit: Some(index) };
            assert_eq!((recovered.hard_state, recovered.snapshot.index()), (expected, index));
        }
        // Whoever lost the state is told.
        let error = Wal::open(Arc::new(disk.clone()), dir(), &at(5, 2), SMALL).err().unwrap();
        assert!(matches!(error, Error::Behind { from_index: 5, .. }), "{error}");
        // The log continues after the gap, and is its own again.
        let (mut wal, _) = Wal::open(Arc::new(disk.clone()), dir(), &at(index, term), SMALL).unwrap();
        append(&mut wal, index + 1..=index + 2, 9, b"after");
        let last = fill_in(&mut wal, 3, 9);
        drop(wal);
        for from in [(index, term), (index + 1, 9)] {
            let (_, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &at(from.0, from.1), SMALL).unwrap();
            assert!(!recovered.restarted);
            assert_eq!(indexes(&recovered.entries), (from.0 + 1..=last).collect::<Vec<_>>());
        }
    }
}

#[test]
fn entries_behind_a_snapshot_of_another_history_do_not_count_any_more() {
    let disk = left_behind(3);
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), dir(), &at(5, 2), SMALL).unwrap();
    assert_eq!(wal.last_index(), 10);
    // One of its own, and an older one, which say nothing new.
    wal.save_snapshot(&at(5, 2));
    wal.save_snapshot(&at(3, 2));
    assert_eq!(wal.last_index(), 10);
    wal.save_snapshot(&at(7, 4));
    assert_eq!(wal.last_index(), 7);
    wal.append(&mut std::iter::empty(), Some(&state(4, 7)));
    wal.commit(true).unwrap();
    let last = fill_in(&mut wal, 4, 4);
    drop(wal);
    let (_, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &at(7, 4), SMALL).unwrap();
    assert_eq!((indexes(&recovered.entries), recovered.restarted), ((8..=last).collect(), false));
    assert_eq!(recovered.snapshot.index(), 7);
}

#[test]
fn every_cut_of_a_restart_leaves_a_log_behind_the_state() {
    let operations = {
        let disk = left_behind(3);
        let before = disk.operations();
        Wal::open_installed(Arc::new(disk.clone()), dir(), &at(7, 4), SMALL).unwrap();
        before..disk.operations()
    };
    for cut in operations {
        for seed in 0..20 {
            let disk = left_behind(3);
            disk.cut_at(cut);
            assert!(Wal::open_installed(Arc::new(disk.clone()), dir(), &at(7, 4), SMALL).is_err());
            let disk = disk.after_cut(seed);
            let (wal, recovered) = Wal::open_installed(Arc::new(disk), dir(), &at(7, 4), SMALL).unwrap();
            assert_eq!((wal.last_index(), recovered.entries.len(), recovered.hard_state.commit()), (7, 0, 7));
        }
    }
}

/// A log that begins after entry 7 with more than a segment of entries.
fn create_with_contents(disk: &SimDisk) -> Result<Wal, Error> {
    let mut entries = (8..=20).map(|index| EntryRef { term: 5, index, kind: 0, data: &[6; 700] });
    let contents = Contents { state: &at(7, 4), entries: &mut entries, hard_state: &state(6, 19) };
    Wal::create_with(Arc::new(disk.clone()), dir(), &metadata(), contents, SMALL)
}

#[test]
fn a_log_is_created_with_all_its_contents_or_not_at_all() {
    let check = |disk: &SimDisk| {
        let (wal, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &at(7, 4), SMALL).unwrap();
        assert_eq!((wal.last_index(), indexes(&recovered.entries)), (20, (8..=20).collect()));
        assert_eq!((recovered.hard_state, recovered.restarted), (state(6, 19), false));
        assert_eq!((recovered.snapshot.index(), recovered.snapshot.term()), (7, 4));
    };
    let disk = SimDisk::new();
    let mut wal = create_with_contents(&disk).unwrap();
    append(&mut wal, 21..=21, 6, b"more");
    drop(wal);
    let (_, recovered) = Wal::open(Arc::new(disk), dir(), &at(7, 4), SMALL).unwrap();
    assert_eq!(indexes(&recovered.entries), (8..=21).collect::<Vec<_>>());
    let operations = {
        let disk = SimDisk::new();
        create_with_contents(&disk).unwrap();
        disk.operations()
    };
    let mut whole = 0;
    for cut in 0..operations {
        for seed in 0..20 {
            let disk = SimDisk::new();
            disk.cut_at(cut);
            assert!(create_with_contents(&disk).is_err());
            let disk = disk.after_cut(seed);
            if Wal::exists(&disk, dir()).unwrap() {
                whole += 1;
                check(&disk);
            } else {
                create_with_contents(&disk).unwrap();
                check(&disk);
            }
        }
    }
    assert!(whole > 0, "the last step is one that may be lost or not");
}

#[test]
fn a_log_that_ends_before_what_was_committed_is_refused() {
    let (disk, mut wal) = new_log(SMALL);
    append(&mut wal, 1..=3, 1, b"x");
    wal.append(&mut std::iter::empty(), Some(&state(1, 4)));
    wal.commit(true).unwrap();
    drop(wal);
    let error = Wal::open(Arc::new(disk.clone()), dir(), &start(), SMALL).err().unwrap();
    assert!(error.to_string().contains("ends at entry 3, but entry 4 was committed"), "{error}");
    assert!(Wal::open_installed(Arc::new(disk), dir(), &at(4, 1), SMALL).is_ok());
}

#[test]
fn a_missing_segment_is_named_unless_nobody_needs_it() {
    let (disk, mut wal) = new_log(SMALL);
    let last = fill(&mut wal, 5);
    drop(wal);
    let names = disk.list(dir()).unwrap();
    disk.remove(&dir().join(&names[2])).unwrap();
    let error = Wal::open(Arc::new(disk.clone()), dir(), &start(), SMALL).err().unwrap();
    assert!(matches!(error, Error::Gap { sequence: 2, .. }), "{error}");
    assert_eq!(error.to_string(), "segment 0000000000000002 is missing from `/member/wal`");
    let (wal, _) = Wal::open(Arc::new(disk.clone()), dir(), &at(last, 1), SMALL).unwrap();
    assert_eq!(wal.segments(), 2);
    wal.reaper().finish().unwrap();
    assert_eq!(disk.list(dir()).unwrap(), names[3..]);
}

#[test]
fn a_segment_of_another_member_is_refused() {
    let (disk, mut wal) = new_log(SMALL);
    fill(&mut wal, 3);
    drop(wal);
    let other = SimDisk::new();
    let mut wal = Wal::create(Arc::new(other.clone()), dir(), b"other", SMALL).unwrap();
    fill(&mut wal, 3);
    drop(wal);
    let path = dir().join(&disk.list(dir()).unwrap()[1]);
    disk.install(&path, &other.contents(&path).unwrap()).unwrap();
    let error = Wal::open(Arc::new(disk), dir(), &start(), SMALL).err().unwrap();
    // The running checksum tells before the metadata does.
    assert!(error.to_string().contains("batches are missing between here and the next segment"), "{error}");
}

#[test]
fn a_failed_sync_or_write_poisons_the_log() {
    for fail in [SimDisk::fail_sync_after, SimDisk::fail_write_after] {
        let (disk, mut wal) = new_log(SMALL);
        append(&mut wal, 1..=1, 1, b"kept");
        fail(&disk, 0);
        wal.append(&mut [EntryRef { term: 1, index: 2, kind: 0, data: b"lost" }].into_iter(), None);
        assert!(matches!(wal.commit(true), Err(Error::Io { .. })));
        let before = disk.operations();
        for _ in 0..3 {
            wal.append(&mut [EntryRef { term: 1, index: 3, kind: 0, data: b"late" }].into_iter(), None);
            let error = wal.commit(true).unwrap_err();
            assert!(matches!(error, Error::Poisoned(_)), "{error}");
        }
        assert!(wal.release(1).is_err());
        assert_eq!(disk.operations(), before, "a poisoned log writes nothing");
    }
}

#[test]
fn a_full_disk_stops_the_log_only_at_a_new_segment() {
    let (disk, mut wal) = new_log(SMALL);
    disk.set_capacity(Some(8192 + 100));
    let mut index = 0;
    let error = loop {
        index += 1;
        wal.append(&mut [EntryRef { term: 1, index, kind: 0, data: &[1; 8] }].into_iter(), None);
        if let Err(error) = wal.commit(true) {
            break error;
        }
    };
    assert!(matches!(error, Error::Poisoned(_)), "{error}");
    drop(wal);
    disk.set_capacity(None);
    let (_, recovered) = Wal::open(Arc::new(disk), dir(), &start(), SMALL).unwrap();
    assert_eq!(recovered.entries.len() as u64, index - 1);
}

#[test]
fn a_batch_larger_than_a_segment_is_kept_whole() {
    let (disk, mut wal) = new_log(SMALL);
    append(&mut wal, 1..=1, 1, &[1; 100_000]);
    append(&mut wal, 2..=2, 1, &[2; 10]);
    assert_eq!(wal.segments(), 2);
    drop(wal);
    let (_, recovered) = Wal::open(Arc::new(disk), dir(), &start(), SMALL).unwrap();
    assert_eq!(recovered.entries[0].data().len(), 100_000);
    assert_eq!(recovered.entries.len(), 2);
}

#[test]
fn the_bytes_of_a_log_stay_as_they_are() {
    let (disk, mut wal) = new_log(SMALL);
    wal.append(&mut [EntryRef { term: 2, index: 1, kind: 0, data: b"abc" }].into_iter(), Some(&state(2, 1)));
    wal.commit(true).unwrap();
    let bytes = disk.contents(&dir().join("0000000000000000-0000000000000000.wal")).unwrap();
    assert_eq!(bytes.len(), 8192);
    let hex = |chunk: &[u8]| chunk.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let words: Vec<_> = bytes[..184].chunks(8).map(hex).collect();
    let expected: Vec<_> = include_str!("golden.txt").lines().collect();
    assert_eq!(words, expected);
    assert!(bytes[184..].iter().all(|byte| *byte == 0));
}

#[test]
fn it_runs_on_the_operating_systems_disk() {
    let root = std::env::temp_dir().join(format!("cairn-wal-{}", std::process::id()));
    let dir = root.join("wal");
    std::fs::create_dir(&root).unwrap();
    let disk = Arc::new(disk::OsDisk::default());
    let mut wal = Wal::create(disk.clone(), &dir, &metadata(), SMALL).unwrap();
    let last = fill(&mut wal, 4);
    wal.release(last).unwrap();
    wal.spare().prepare().unwrap();
    let last = fill(&mut wal, 4);
    assert!(matches!(Wal::open(disk.clone(), &dir, &at(last - 1, 1), SMALL), Err(Error::Locked(_))));
    drop(wal);
    let (_, recovered) = Wal::open(disk.clone(), &dir, &at(last - 1, 1), SMALL).unwrap();
    assert_eq!(indexes(&recovered.entries), [last]);
    assert!(disk.open(&dir, Mode::Read).is_ok());
    std::fs::remove_dir_all(root).unwrap();
}

/// Histories of up to `len` steps.
fn ops(len: usize) -> impl Strategy<Value = Vec<Op>> {
    let size = prop_oneof![8 => 0usize..400, 1 => 400usize..3000];
    let batch = (prop::collection::vec(size, 1..6), 0u64..4, any::<bool>());
    let op = prop_oneof![
        8 => batch.prop_map(|(sizes, back, state)| Op::Append { sizes, back, state }),
        1 => Just(Op::Advance),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Prepare),
        1 => Just(Op::Reap),
        1 => Just(Op::Reopen),
    ];
    prop::collection::vec(op, 1..len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any history, closed and reopened anywhere, leaves what a plain list would hold.
    #[test]
    fn the_log_is_a_list(ops in ops(60)) {
        let disk = SimDisk::new();
        let mut wal = Wal::create(Arc::new(disk.clone()), dir(), &metadata(), SMALL).unwrap();
        let mut model = Model::default();
        for op in ops {
            if op == Op::Reopen {
                drop(wal);
                let (reopened, recovered) = Wal::open(Arc::new(disk.clone()), dir(), &model.state(), SMALL).unwrap();
                model.check(&recovered).unwrap();
                prop_assert!(recovered.cut.is_none());
                wal = reopened;
            } else {
                model.run(&op, &mut wal).unwrap();
            }
        }
    }
}
