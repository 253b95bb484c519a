//! Damaged files through the front door: refused with file and offset, or cut and said so.

#![allow(clippy::unwrap_used)]

mod wanted;

use api::raftpb;
use disk::sim::{Random, SimDisk};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wal::{EntryRef, Error, Options, Record, Wal, decode_segment};
use wanted::wanted;

const OPTIONS: Options = Options { segment_bytes: 65_536, segments_min: 1, rest: || {} };

struct Log {
    disk: SimDisk,
    /// Paths and contents of all segments.
    files: Vec<(PathBuf, Vec<u8>)>,
    entries: Vec<raftpb::Entry>,
    /// Entries before the last batch.
    before_last: usize,
    last_batch: u64,
}

fn log(segments: usize) -> Log {
    let disk = SimDisk::new();
    let dir = Path::new("/wal");
    let mut wal = Wal::create(Arc::new(disk.clone()), dir, b"metadata", OPTIONS).unwrap();
    let mut random = Random::new(segments as u64);
    let mut before_last = 0;
    let mut in_last = 0;
    while wal.segments() < segments || in_last < 8 {
        in_last = if wal.segments() < segments { 0 } else { in_last + 1 };
        before_last = wal.last_index() as usize;
        for _ in 0..4 {
            let data: Vec<u8> = (0..100 + random.below(700)).map(|_| random.next_u64() as u8).collect();
            wal.append(
                &mut [EntryRef { term: 1, index: wal.last_index() + 1, kind: 0, data: &data }].into_iter(),
                None,
            );
        }
        wal.commit(true).unwrap();
    }
    drop(wal);
    let (wal, recovered) = Wal::open(Arc::new(disk.clone()), dir, &Default::default(), OPTIONS).unwrap();
    drop(wal);
    let paths = disk::Disk::list(&disk, dir).unwrap().into_iter().map(|name| dir.join(name));
    let files: Vec<_> = paths.map(|path| (path.clone(), disk.contents(&path).unwrap())).collect();
    let last_batch = start_of_last_batch(&files[files.len() - 1].1, segments as u64 - 1, before_last as u64);
    Log { disk, files, entries: recovered.entries, before_last, last_batch }
}

/// By zeroing from the end: the offset from which on nothing may be missing for the last batch to be read.
fn start_of_last_batch(bytes: &[u8], sequence: u64, before_last: u64) -> u64 {
    let mut last_index = 0;
    let end = decode_segment(bytes, sequence, &mut |record| {
        if let Record::Entry(entry) = record {
            last_index = entry.index;
        }
    });
    assert!(last_index > before_last);
    let mut damaged = bytes.to_vec();
    damaged[end.unwrap().offset as usize - 20] ^= 1;
    decode_segment(&damaged, sequence, &mut |_| {}).unwrap_err().batch_offset
}

/// Opens the log with one file replaced. `Ok` holds the entries and whether a cut was reported.
fn open_with(log: &Log, path: &Path, bytes: &[u8]) -> Result<(Vec<raftpb::Entry>, bool), Error> {
    let disk = SimDisk::new();
    for (other, contents) in &log.files {
        disk.install(other, if other == path { bytes } else { contents }).unwrap();
    }
    let (wal, recovered) = Wal::open(Arc::new(disk.clone()), Path::new("/wal"), &Default::default(), OPTIONS)?;
    if let Some(cut) = &recovered.cut {
        assert_eq!(cut.file, path);
        assert!(cut.to_string().contains(path.to_str().unwrap()), "{cut}");
        let after = disk.contents(path).unwrap();
        assert!(after[cut.offset as usize..].iter().all(|byte| *byte == 0), "the torn batch is still there");
        drop(wal);
        let (_, again) = Wal::open(Arc::new(disk), Path::new("/wal"), &Default::default(), OPTIONS).unwrap();
        assert!(again.cut.is_none() && again.entries == recovered.entries);
    }
    Ok((recovered.entries, recovered.cut.is_some()))
}

fn check(log: &Log, path: &Path, bytes: &[u8], in_last_batch: bool) {
    match open_with(log, path, bytes) {
        Ok((entries, cut)) => {
            assert!(in_last_batch && cut, "damage before the last batch was accepted");
            assert_eq!(entries, log.entries[..log.before_last]);
        }
        Err(error) => {
            let Error::Corrupt { file, offset, .. } = &error else { panic!("{error}") };
            assert_eq!(file, path);
            assert!(error.to_string().contains(&format!("at offset {offset}")), "{error}");
        }
    }
}

#[test]
fn flipped_bytes() {
    let log = log(3);
    assert!(log.disk.operations() > 0);
    for (number, (path, bytes)) in log.files.iter().enumerate() {
        let last_file = number + 1 == log.files.len();
        let written = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let all = (0..written).step_by(61).chain(0..300).chain(written - 300..written);
        let last = if last_file { log.last_batch as usize..written } else { 0..0 };
        for offset in all.chain(last) {
            let mut damaged = bytes.clone();
            damaged[offset] ^= 0xff;
            check(&log, path, &damaged, last_file && offset >= log.last_batch as usize);
        }
    }
}

/// Every byte of one log after the other, one at a time.
#[test]
fn as_many_flipped_bytes_as_are_asked_for() {
    let wanted = wanted("FLIPS", 4_000);
    let (mut flips, mut segments) = (0, 1);
    while flips < wanted {
        let log = log(segments);
        for (number, (path, bytes)) in log.files.iter().enumerate() {
            let last_file = number + 1 == log.files.len();
            let written = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
            for offset in 0..written {
                let mut damaged = bytes.clone();
                damaged[offset] ^= 1 << (offset % 8);
                check(&log, path, &damaged, last_file && offset >= log.last_batch as usize);
                flips += 1;
                if flips == wanted {
                    println!(
                        "{flips} flipped bytes of the log: each was refused, or cut a batch off that nothing came after"
                    );
                    return;
                }
            }
        }
        segments += 1;
    }
}

#[test]
fn files_cut_short() {
    let log = log(2);
    for (number, (path, bytes)) in log.files.iter().enumerate() {
        let last_file = number + 1 == log.files.len();
        for len in (0..bytes.len()).step_by(127) {
            match open_with(&log, path, &bytes[..len]) {
                Ok(_) => panic!("a file of {len} bytes was accepted"),
                Err(Error::Corrupt { file, .. }) => assert_eq!(&file, path),
                Err(error) => panic!("{error} ({len}, {last_file})"),
            }
        }
    }
}

#[test]
fn zeroed_ends_of_a_segment_that_is_not_the_last() {
    let log = log(2);
    let (path, bytes) = &log.files[0];
    let written = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for start in (0..written).step_by(97) {
        let mut damaged = bytes.clone();
        damaged[start..].fill(0);
        check(&log, path, &damaged, false);
    }
}
