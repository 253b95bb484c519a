//! Damaged directories: refused with file and offset, never a panic, never a wrong value.

use crate::OpenError;
use crate::log::{Error, key_file_name};
use crate::recovery::recover;
use crate::test_support::{DIR, Model, OPTIONS, Rig, wanted};
use crate::upkeep::checkpoint;
use crate::upkeep::keyfiles::Made;
use disk::sim::SimDisk;
use disk::{Disk, Mode};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SEED: u64 = 11;

/// A store with several segments, two checkpoints, and records after the last one.
fn store() -> SimDisk {
    store_of(SEED)
}

fn store_of(seed: u64) -> SimDisk {
    filled(seed, false)
}

/// The same with key files, which the checkpoints list.
fn store_with_keys_of(seed: u64) -> SimDisk {
    filled(seed, true)
}

fn filled(seed: u64, with_keys: bool) -> SimDisk {
    let disk = SimDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone()), seed).unwrap();
    for _ in 0..3 {
        for _ in 0..12 {
            rig.apply().unwrap();
        }
        while with_keys && rig.make_keys(u64::MAX).unwrap() != Made::Nothing {}
        rig.capture();
        rig.write_checkpoint().unwrap();
    }
    for _ in 0..10 {
        rig.apply().unwrap();
    }
    disk
}

fn copy(disk: &SimDisk) -> SimDisk {
    let copy = SimDisk::new();
    for name in disk.list(Path::new(DIR)).unwrap() {
        let path = Path::new(DIR).join(name);
        copy.install(&path, &disk.contents(&path).unwrap()).unwrap();
    }
    copy
}

fn open(disk: &SimDisk) -> Result<Rig, OpenError> {
    Rig::open(Arc::new(disk.clone()), SEED)
}

/// The newest checkpoint, and the segments it lists with their lengths.
fn newest(disk: &SimDisk) -> (PathBuf, checkpoint::Checkpoint) {
    let names = disk.list(Path::new(DIR)).unwrap();
    let path = Path::new(DIR).join(names.iter().rfind(|name| name.ends_with(".ckpt")).unwrap());
    let content = checkpoint::decode_checkpoint(&disk.contents(&path).unwrap()).unwrap();
    (path, content)
}

fn refused(disk: &SimDisk, path: &Path, at: usize) {
    match open(disk).map(|_| ()) {
        Err(OpenError::Corrupt { file, offset, .. }) => {
            assert_eq!(file, path, "byte {at}");
            // At the damaged byte, or at the beginning of the record that it is in.
            assert!(offset <= at as u64, "byte {at} is reported at {offset}");
        }
        other => panic!("byte {at} of {}: {other:?}", path.display()),
    }
}

/// A flipped byte of a segment that may have a key file is found by the start, or else it is never told to anybody: what reads it panics, naming the
/// file and a place not behind the byte; the check finds it; and the next start refuses it.
fn found(disk: &SimDisk, path: &Path, at: usize, model: &Model) -> Found {
    let disk = copy(disk);
    let mut rig = match Rig::open(Arc::new(disk.clone()), model.seed) {
        Err(_) => {
            refused(&disk, path, at);
            return Found::AtStart;
        }
        Ok(rig) => rig,
    };
    // Half of them nobody reads before the check comes to them.
    let read = at.is_multiple_of(2).then(|| std::panic::catch_unwind(AssertUnwindSafe(|| rig.check(model, true))));
    let was_read = matches!(read, Some(Err(_)));
    if let Some(Err(panic)) = read {
        let said = panic.downcast_ref::<String>().map_or("", String::as_str);
        let expected = format!("`{}` is damaged at offset ", path.display());
        let offset = said.strip_prefix(&expected).and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
        assert!(offset.is_some_and(|offset| offset <= at), "byte {at}: {said}");
        // The process would end here.
        refused(&disk, path, at);
    }
    let checked = loop {
        match rig.scrub(1000) {
            Ok(true) => {}
            Ok(false) => panic!("byte {at} of {} is not found", path.display()),
            Err(error) => break error,
        }
    };
    let Error::Damaged { path: file, damage } = checked else { panic!("byte {at}: {checked}") };
    assert!(file == path && damage.offset <= at as u64, "byte {at} is reported at {}", damage.offset);
    drop(rig);
    refused(&disk, path, at);
    if was_read { Found::OnRead } else { Found::InCheck }
}

/// Has thousands of panics that a test expects say nothing.
fn expect_damage() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let is_expected = panic.payload_as_str().is_some_and(|said| said.contains("` is damaged at offset "));
            if !is_expected {
                usual(panic);
            }
        }));
    });
}

/// What found a flipped byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    AtStart,
    OnRead,
    InCheck,
}

/// The two checkpoints, older first: file, bytes, content.
fn checkpoints(disk: &SimDisk) -> [(PathBuf, Vec<u8>, checkpoint::Checkpoint); 2] {
    let names = disk.list(Path::new(DIR)).unwrap();
    let paths = names.iter().filter(|name| name.ends_with(".ckpt")).map(|name| Path::new(DIR).join(name));
    let all: Vec<_> = paths
        .map(|path| {
            let bytes = disk.contents(&path).unwrap();
            let content = checkpoint::decode_checkpoint(&bytes).unwrap();
            (path, bytes, content)
        })
        .collect();
    all.try_into().unwrap()
}

/// Opens with one damaged checkpoint, at the other one. Nothing that it may list goes before two more were written.
fn passed_over(disk: &SimDisk, path: &Path, at: usize, other: &checkpoint::Checkpoint) {
    let disk = copy(disk);
    let before: Vec<_> = segments(&disk);
    let mut rig = open(&disk).unwrap();
    let [OpenError::Corrupt { file, offset, .. }] = &rig.store.passed_over[..] else { panic!("byte {at}") };
    assert!(file == path && *offset <= at as u64, "byte {at} is reported at {offset}");
    rig.check(&Model::at(SEED, other.applied_index), true);
    for written in 0..2 {
        for segment in &before {
            assert!(segments(&disk).contains(segment), "{segment:?} is gone after {written} checkpoints");
        }
        assert!(disk.contents(path).is_ok(), "the damaged file is evidence");
        rig.apply().unwrap();
        rig.capture();
        rig.write_checkpoint().unwrap();
        if at.is_multiple_of(16) {
            let rig = open(&copy(&disk)).unwrap();
            rig.check(&Model::at(SEED, rig.applied), true);
        }
    }
    assert!(disk.contents(path).is_err());
    drop(rig);
    let rig = open(&disk).unwrap();
    assert!(rig.store.passed_over.is_empty());
    rig.check(&Model::at(SEED, other.applied_index + 2), true);
}

/// Names of the segments' files.
fn segments(disk: &SimDisk) -> Vec<String> {
    disk.list(Path::new(DIR)).unwrap().into_iter().filter(|name| name.ends_with(".seg")).collect()
}

#[test]
fn one_damaged_checkpoint_is_passed_over() {
    let disk = store();
    let [older, newer] = checkpoints(&disk);
    for ((path, bytes, _), other) in [(&older, &newer.2), (&newer, &older.2)] {
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            disk.install(path, &damaged).unwrap();
            passed_over(&disk, path, at, other);
            disk.install(path, &bytes[..at]).unwrap();
            passed_over(&disk, path, at, other);
        }
        disk.install(path, bytes).unwrap();
    }
    assert!(open(&disk).unwrap().store.passed_over.is_empty());
}

#[test]
fn what_a_damaged_checkpoint_lists_is_not_cut_off() {
    let disk = store();
    let [_, (path, bytes, content)] = checkpoints(&disk);
    disk.install(&path, &bytes[1..]).unwrap();
    drop(open(&disk).unwrap());
    disk.install(&path, &bytes).unwrap();
    let rig = open(&disk).unwrap();
    rig.check(&Model::at(SEED, content.applied_index), true);
}

#[test]
fn two_damaged_checkpoints_are_refused() {
    let disk = store();
    let names = disk.list(Path::new(DIR)).unwrap();
    let [older, newer] = checkpoints(&disk);
    for at in 0..newer.1.len() {
        for (path, bytes, _) in [&older, &newer] {
            let mut damaged = bytes.clone();
            damaged[at.min(bytes.len() - 1)] ^= 0x40;
            disk.install(path, &damaged).unwrap();
        }
        refused(&disk, &newer.0, at);
    }
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), names, "a refusal leaves the directory as it was");
    disk.remove(&older.0).unwrap();
    refused(&disk, &newer.0, newer.1.len());
}

#[test]
fn an_unfinished_checkpoint_is_ignored() {
    let disk = store();
    let (path, content) = newest(&disk);
    let bytes = disk.contents(&path).unwrap();
    for at in 0..bytes.len() {
        let unfinished = Path::new(DIR).join("00000000000000ff.ckpt.tmp");
        disk.install(&unfinished, &bytes[..at]).unwrap();
        let rig = open(&disk).unwrap();
        assert_eq!(rig.applied, content.applied_index);
        assert!(disk.contents(&unfinished).is_err(), "it is removed");
    }
}

#[test]
fn every_flipped_byte_of_a_segment_is_refused() {
    let disk = store();
    let (_, content) = newest(&disk);
    assert!(content.segments.len() >= 2);
    for entry in &content.segments {
        let path = Path::new(DIR).join(format!("{:016x}.seg", entry.id));
        let bytes = disk.contents(&path).unwrap();
        for at in 0..entry.length as usize {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            disk.install(&path, &damaged).unwrap();
            refused(&disk, &path, at);
        }
        disk.install(&path, &bytes).unwrap();
    }
    // Behind what the checkpoint covers anything may be, and is cut off.
    let last = content.segments.last().unwrap();
    let path = Path::new(DIR).join(format!("{:016x}.seg", last.id));
    let mut bytes = disk.contents(&path).unwrap();
    bytes[last.length as usize..].fill(0xee);
    disk.install(&path, &bytes).unwrap();
    let rig = open(&disk).unwrap();
    rig.check(&Model::at(SEED, content.applied_index), true);
    let after = disk.contents(&path).unwrap();
    assert!(after[last.length as usize..].iter().all(|byte| *byte == 0));
}

/// Every byte of one store after the other, one at a time: of its segments as far as the newest checkpoint lists them, and of both
/// checkpoints.
#[test]
fn as_many_flipped_bytes_as_are_asked_for() {
    let wanted = wanted("FLIPS", 4_000);
    let (mut in_segments, mut in_checkpoints, mut seed) = (0, 0, SEED);
    while in_segments < wanted || in_checkpoints < wanted {
        seed += 1;
        let disk = store_of(seed);
        let (_, content) = newest(&disk);
        for entry in &content.segments {
            let path = Path::new(DIR).join(format!("{:016x}.seg", entry.id));
            let bytes = disk.contents(&path).unwrap();
            for at in 0..(entry.length as usize).min((wanted - in_segments) as usize) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                disk.install(&path, &damaged).unwrap();
                refused(&disk, &path, at);
                in_segments += 1;
            }
            disk.install(&path, &bytes).unwrap();
        }
        let [older, newer] = checkpoints(&disk);
        for ((path, bytes, _), other) in [(&older, &newer.2), (&newer, &older.2)] {
            for at in 0..bytes.len().min((wanted - in_checkpoints) as usize) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                let copy = copy(&disk);
                copy.install(path, &damaged).unwrap();
                let rig = Rig::open(Arc::new(copy), seed).unwrap();
                let [OpenError::Corrupt { file, offset, .. }] = &rig.store.passed_over[..] else { panic!("byte {at}") };
                assert!(file == path && *offset <= at as u64, "byte {at} is reported at {offset}");
                assert_eq!(rig.applied, other.applied_index);
                in_checkpoints += 1;
            }
        }
    }
    println!(
        "{in_segments} flipped bytes of segments, each refused; {in_checkpoints} of checkpoints, each passed over"
    );
}

/// Every byte of stores with key files: of the segments as far as the newest checkpoint lists them, and of the key files.
#[test]
fn as_many_flipped_bytes_beside_key_files() {
    let wanted = wanted("FLIPS", 4_000);
    expect_damage();
    let (mut by, mut in_keys, mut seed) = ([0_u64; 3], 0, SEED);
    while by.iter().sum::<u64>() < wanted || in_keys < wanted {
        seed += 1;
        let disk = store_with_keys_of(seed);
        let (_, content) = newest(&disk);
        let model = Model::at(seed, content.applied_index);
        for entry in &content.segments {
            let path = Path::new(DIR).join(format!("{:016x}.seg", entry.id));
            let bytes = disk.contents(&path).unwrap();
            for at in 0..(entry.length as usize).min((wanted - by.iter().sum::<u64>()) as usize) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                disk.install(&path, &damaged).unwrap();
                by[found(&disk, &path, at, &model) as usize] += 1;
            }
            disk.install(&path, &bytes).unwrap();
        }
        for entry in content.segments.iter().filter(|entry| entry.keys_crc.is_some()) {
            let path = Path::new(DIR).join(key_file_name(entry.id));
            let bytes = disk.contents(&path).unwrap();
            for at in 0..bytes.len().min((wanted - in_keys) as usize) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                let copy = copy(&disk);
                copy.install(&path, &damaged).unwrap();
                let rig = Rig::open(Arc::new(copy.clone()), seed).unwrap();
                let [(file, _)] = &rig.store.refused[..] else { panic!("byte {at}: {:?}", rig.store.refused) };
                assert_eq!(file, &path, "byte {at}");
                rig.check(&model, true);
                assert!(copy.contents(&path).is_err(), "byte {at}: the damaged key file is removed");
                in_keys += 1;
            }
        }
    }
    println!(
        "{by:?} flipped bytes of segments found by the start, a read and the check; {in_keys} of key files, each passed over"
    );
    assert!(by[0] > 0 && by[1] > wanted / 3 && by[2] > wanted / 3, "{by:?}");
}

#[test]
fn key_files_that_no_checkpoint_lists_are_removed() {
    let disk = store_with_keys_of(SEED);
    let (_, content) = newest(&disk);
    let last = content.segments.last().unwrap();
    let listed = content.segments.iter().filter(|entry| entry.keys_crc.is_some()).count();
    assert_eq!(listed, content.segments.len() - 1);
    // Of the segment that goes on, of one that is not there, and one that was not finished.
    for id in [last.id, 0xee] {
        disk.install(&Path::new(DIR).join(key_file_name(id)), b"CAIRNKEY").unwrap();
    }
    let rig = open(&disk).unwrap();
    assert!(rig.store.refused.is_empty(), "{:?}", rig.store.refused);
    let keys = |disk: &SimDisk| {
        let names = disk.list(Path::new(DIR)).unwrap();
        names.iter().filter(|name| name.ends_with(".keys")).count()
    };
    assert_eq!(keys(&disk), listed);
    rig.store.segments.reaper().finish().unwrap();
    assert!(disk.list(Path::new(DIR)).unwrap().iter().all(|name| !name.ends_with(".intake")));
    // Without them, and with those of another store, the index is the same.
    rig.check(&Model::at(SEED, content.applied_index), true);
    drop(rig);
    let other = store_with_keys_of(SEED + 1);
    for (at, entry) in content.segments.iter().filter(|entry| entry.keys_crc.is_some()).enumerate() {
        let path = Path::new(DIR).join(key_file_name(entry.id));
        match at % 2 {
            0 => disk.remove(&path).unwrap(),
            _ => disk.install(&path, &other.contents(&path).unwrap()).unwrap(),
        }
    }
    let rig = open(&disk).unwrap();
    assert_eq!(rig.store.refused.len(), listed);
    rig.check(&Model::at(SEED, content.applied_index), true);
}

#[test]
fn a_key_file_that_cannot_be_read_is_not_used() {
    let disk = store_with_keys_of(SEED);
    let (_, content) = newest(&disk);
    let listed: Vec<_> = content.segments.iter().filter(|entry| entry.keys_crc.is_some()).collect();
    assert!(!listed.is_empty());
    for entry in listed {
        let copy = copy(&disk);
        let path = Path::new(DIR).join(key_file_name(entry.id));
        copy.spoil(&path).unwrap();
        let rig = Rig::open(Arc::new(copy.clone()), SEED).unwrap();
        let [(file, _)] = &rig.store.refused[..] else { panic!("{}: {:?}", path.display(), rig.store.refused) };
        assert_eq!(file, &path);
        rig.check(&Model::at(SEED, content.applied_index), true);
    }
}

#[test]
fn a_record_that_changes_while_its_key_file_is_made_is_found() {
    let disk = SimDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone()), SEED).unwrap();
    for _ in 0..40 {
        rig.apply().unwrap();
    }
    let segment = rig.store.segments.without_keys().unwrap();
    let last = segment.read_at(0, segment.len() as usize).unwrap();
    assert_eq!([(); 2].map(|()| rig.make_keys(u64::MAX).unwrap()), [Made::Part; 2], "its records are sorted");
    // The last byte of a value that is not padding.
    let at = last.iter().rposition(|byte| *byte != 0).unwrap();
    let file = disk.open(segment.path(), Mode::Write).unwrap();
    file.write_at(&[last[at] ^ 1], at as u64).unwrap();
    let error = rig.make_keys(u64::MAX).unwrap_err();
    let Error::Damaged { path, damage } = error else { panic!("{error}") };
    assert!(path == segment.path() && damage.offset <= at as u64, "{damage:?}, but byte {at}");
    assert!(segment.keys().is_none() && disk.contents(&path.with_extension("keys")).is_err());
}

#[test]
fn a_start_that_reads_every_record_leaves_key_files_alone() {
    let disk = store_with_keys_of(SEED);
    let (_, content) = newest(&disk);
    let listed: Vec<_> = content.segments.iter().filter(|entry| entry.keys_crc.is_some()).collect();
    let path = |id| Path::new(DIR).join(key_file_name(id));
    let last = content.segments.last().unwrap();
    disk.install(&path(last.id), b"CAIRNKEY").unwrap();
    drop(recover(Arc::new(disk.clone()), Path::new(DIR), OPTIONS, false).unwrap());
    assert!(!listed.is_empty() && listed.iter().all(|entry| disk.contents(&path(entry.id)).is_ok()));
    assert!(disk.contents(&path(last.id)).is_err(), "no checkpoint lists it");
    let rig = open(&disk).unwrap();
    assert!(rig.store.refused.is_empty(), "{:?}", rig.store.refused);
    rig.check(&Model::at(SEED, content.applied_index), true);
}

#[test]
fn a_segment_cut_anywhere_is_refused() {
    let disk = store();
    let (_, content) = newest(&disk);
    for entry in &content.segments {
        let path = Path::new(DIR).join(format!("{:016x}.seg", entry.id));
        let bytes = disk.contents(&path).unwrap();
        for length in 0..entry.length as usize {
            disk.install(&path, &bytes[..length]).unwrap();
            refused(&disk, &path, length);
        }
        disk.install(&path, &bytes[..entry.length as usize]).unwrap();
        open(&copy(&disk)).unwrap();
        disk.remove(&path).unwrap();
        refused(&disk, &path, 0);
        disk.install(&path, &bytes).unwrap();
    }
}

#[test]
fn files_under_wrong_names_are_refused() {
    let disk = store();
    let (path, content) = newest(&disk);
    let bytes = disk.contents(&path).unwrap();
    let wrong = Path::new(DIR).join("00000000000000ff.ckpt");
    disk.install(&wrong, &bytes).unwrap();
    passed_over(&disk, &wrong, 32, &content);
    disk.remove(&wrong).unwrap();
    let [a, b, ..] = &content.segments[..] else { panic!("two segments") };
    let paths = [a, b].map(|entry| Path::new(DIR).join(format!("{:016x}.seg", entry.id)));
    let other = disk.contents(&paths[1]).unwrap();
    disk.install(&paths[0], &[&other[..], &vec![0; a.length as usize]].concat()).unwrap();
    refused(&disk, &paths[0], 12);
}

#[test]
fn segments_without_a_checkpoint_are_refused() {
    let disk = store();
    for name in disk.list(Path::new(DIR)).unwrap().iter().filter(|name| name.ends_with(".ckpt")) {
        disk.remove(&Path::new(DIR).join(name)).unwrap();
    }
    assert!(matches!(open(&disk).map(|_| ()), Err(OpenError::Corrupt { offset: 0, .. })));
}

#[test]
fn ids_that_ran_out_are_refused() {
    for name in ["00000000ffffffff.seg", "00000000fffffffd.seg", "000000007fffffff.seg"] {
        let disk = store();
        let last = Path::new(DIR).join(name);
        disk.install(&last, b"").unwrap();
        refused(&disk, &last, 0);
    }
}

#[test]
fn a_checkpoint_to_which_no_other_can_be_added_is_none() {
    let disk = store();
    let (newest, content) = newest(&disk);
    let last = newest.with_file_name(format!("{:016x}-ffffffff.ckpt", content.applied_index));
    disk.install(&last, &disk.contents(&newest).unwrap()).unwrap();
    let mut rig = open(&disk).unwrap();
    rig.capture();
    rig.write_checkpoint().unwrap();
    assert!(disk.contents(&last).is_ok(), "it is left alone");
}

#[test]
fn files_of_others_are_left_alone() {
    let disk = store();
    let other = Path::new(DIR).join("notes.txt");
    disk.install(&other, b"mine").unwrap();
    open(&disk).unwrap();
    assert_eq!(disk.contents(&other).unwrap(), b"mine");
}
