//! Small logs on a simulated disk.

use api::{raftpb, walpb};
use disk::Disk;
use disk::sim::SimDisk;
use std::path::Path;
use std::sync::Arc;
use wal::{EntryRef, Options, Wal};

pub(crate) const SMALL: Options = Options { segment_bytes: 8192, segments_min: 2, rest: || {} };

pub(crate) fn dir() -> &'static Path {
    Path::new("/member/wal")
}

/// A state that has applied an entry of this index and term last.
pub(crate) fn at(index: u64, term: u64) -> walpb::Snapshot {
    walpb::Snapshot { index: Some(index), term: Some(term), conf_state: None }
}

pub(crate) fn new_log(options: Options) -> (SimDisk, Wal) {
    let disk = SimDisk::new();
    let wal = Wal::create(Arc::new(disk.clone()), dir(), b"metadata", options).unwrap();
    (disk, wal)
}

pub(crate) fn indexes(entries: &[raftpb::Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.index()).collect()
}

/// Fills the log up to this many segments, a commit per entry; returns the last index.
pub(crate) fn fill(wal: &mut Wal, segments: usize) -> u64 {
    while wal.segments() < segments {
        let index = wal.last_index() + 1;
        wal.append(&mut [EntryRef { term: 1, index, kind: 0, data: &[5; 700] }].into_iter(), None);
        wal.commit(true).unwrap();
    }
    wal.last_index()
}

pub(crate) fn names_with(disk: &SimDisk, start: &str, end: &str) -> usize {
    disk.list(dir()).unwrap().iter().filter(|name| name.starts_with(start) && name.ends_with(end)).count()
}
