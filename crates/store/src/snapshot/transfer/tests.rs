//! Hostile input: whatever a peer sends is refused with its place, and the store stays as it was.

use super::*;
use crate::log::{KvParts, Listing, Log, Options, SEGMENT_HEADER_BYTES, SegmentEntry, Segments, segment_header};
use crate::types::Revision;
use crate::upkeep::checkpoint::{Checkpoint, decode_checkpoint, encode_checkpoint};
use crate::{Opened, Response, Sink, Store};
use api::Message;
use api::etcdserverpb::range_request::SortTarget;
use api::etcdserverpb::{InternalRaftRequest, PutRequest, RangeRequest};
use api::raftpb::{ConfChange, Entry};
use disk::Disk;
use disk::sim::{Random, SimDisk};
use std::path::Path;
use std::sync::Arc;

mod moved;

const DIR: &str = "/store";

fn receiver() -> (SimDisk, Opened) {
    let disk = SimDisk::new();
    let opened = crate::open(Arc::new(disk.clone()), Path::new(DIR), crate::Options::default()).unwrap();
    (disk, opened)
}

/// A snapshot as a peer would send it: the checkpoint and the bytes of its segments.
#[derive(Clone)]
struct State {
    content: Checkpoint,
    segments: Vec<Vec<u8>>,
}

/// Segments of a few records, as `write` makes them.
fn state(write: impl Fn(&mut Log)) -> State {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let dir = Path::new("/sender");
    disk.create_dir(dir).unwrap();
    let segments = Arc::new(Segments::new(Arc::clone(&disk), dir, Options { segment_bytes: 4096 }, 40));
    let mut log = Log::new(Arc::clone(&segments), None, Revision::default());
    write(&mut log);
    log.flush().unwrap();
    let listing: Listing = log.listing();
    let bytes = listing.segments().iter().map(|segment| segment.published().to_vec()).collect();
    let last = listing.entries().last().map_or(1, |entry| entry.last_main);
    let mut state = State {
        content: Checkpoint {
            applied_index: 100,
            applied_term: 2,
            revision: last,
            compact_revision: -1,
            segments: listing.entries().to_vec(),
            ..Checkpoint::default()
        },
        segments: bytes,
    };
    state.sum();
    state
}

fn put(log: &mut Log, main: i64, key: &[u8], lease: i64) {
    let value = &[7; 300][..];
    log.append_put(Revision { main, sub: 0 }, KvParts { key, create: main, version: 1, value, lease });
}

fn usual() -> State {
    state(|log| (2..40).for_each(|main| put(log, main, format!("key{main}").as_bytes(), 0)))
}

impl State {
    /// Makes the checksums right.
    fn sum(&mut self) {
        for (entry, bytes) in self.content.segments.iter_mut().zip(&self.segments) {
            entry.body_crc = Some(crc32c::crc32c(&bytes[SEGMENT_HEADER_BYTES..]));
        }
    }

    /// Sends it as far as it is taken.
    fn send(&self, store: &Arc<Store>) -> Result<Prepared, IntakeError> {
        let mut intake = Intake::begin(store, 3, &encode_checkpoint(&self.content))?;
        for (segment, from, length) in intake.needed() {
            let at = self.content.segments.iter().position(|entry| entry.id == segment).unwrap();
            let end = ((from + length) as usize).min(self.segments[at].len());
            intake.write(segment, from, &self.segments[at][from as usize..end])?;
        }
        intake.finish()
    }

    /// Sends it and returns why it is refused. Nothing is left of it.
    fn refused(&self) -> IntakeError {
        let (disk, opened) = receiver();
        let reaper = opened.store.segments.reaper();
        reaper.finish().unwrap();
        let before = disk.list(Path::new(DIR)).unwrap();
        let error = self.send(&opened.store).unwrap_err();
        opened.store.shelf.clear(reaper);
        reaper.finish().unwrap();
        assert_eq!(disk.list(Path::new(DIR)).unwrap(), before, "{error}");
        error
    }
}

#[test]
fn a_good_snapshot_is_taken() {
    let (_, mut opened) = receiver();
    assert!(!opened.store.has_second_index());
    let ready = usual().send(&opened.store).unwrap();
    assert!(opened.store.has_second_index());
    opened.applier.install(ready).unwrap();
    assert_eq!((opened.store.revision(), opened.store.usage().keys), (39, 38));
    assert!(opened.store.has_second_index(), "the old one is dropped with the next housekeeping");
    opened.store.maintain(1).unwrap();
    assert!(!opened.store.has_second_index());
    drop(usual().send(&opened.store).unwrap());
    assert!(!opened.store.has_second_index());
}

#[test]
fn every_flipped_byte_of_a_checkpoint_is_refused() {
    let bytes = encode_checkpoint(&usual().content);
    let (_, opened) = receiver();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        assert!(matches!(Intake::begin(&opened.store, 3, &damaged), Err(IntakeError::Checkpoint(_))), "byte {at}");
        assert!(matches!(Intake::begin(&opened.store, 3, &bytes[..at]), Err(IntakeError::Checkpoint(_))));
    }
}

#[test]
fn every_flipped_byte_of_a_segment_is_refused_and_named() {
    let good = usual();
    for segment in 0..good.segments.len() {
        for at in (0..good.segments[segment].len()).step_by(3) {
            let mut state = good.clone();
            state.segments[segment][at] ^= 0x10;
            let named = state.content.segments[segment].id;
            let error = state.refused();
            assert!(matches!(error, IntakeError::Damaged { segment, .. } if segment == named), "byte {at}: {error}");
            // And also when the sender's checksum matches the damaged bytes: its own files are damaged.
            state.sum();
            let error = state.refused();
            let IntakeError::Damaged { segment, offset, .. } = error else { panic!("byte {at}: {error}") };
            assert!(segment == named && offset <= at as u64, "byte {at} is reported at {offset}");
        }
    }
}

#[test]
fn a_segment_of_another_length_is_refused() {
    let mut short = usual();
    short.segments[0].truncate(100);
    let error = short.refused();
    assert!(matches!(error, IntakeError::Incomplete { segment: 40, written: 100, .. }), "{error}");

    let (_, opened) = receiver();
    let good = usual();
    let mut intake = Intake::begin(&opened.store, 3, &encode_checkpoint(&good.content)).unwrap();
    let length = good.segments[0].len();
    let mut long = good.segments[0].clone();
    long.push(0);
    let error = intake.write(40, 0, &long).unwrap_err();
    assert!(matches!(error, IntakeError::Misplaced { segment: 40, expected: 0, .. }), "{error}");
    intake.write(40, 0, &good.segments[0][..50]).unwrap();
    for (offset, bytes) in [(0, 10), (49, 10), (51, 10), (u64::MAX, 10), (50, length - 49)] {
        let error = intake.write(40, offset, &vec![0; bytes]).unwrap_err();
        assert!(matches!(error, IntakeError::Misplaced { .. }), "{offset}+{bytes}: {error}");
        intake.write(40, 0, &good.segments[0][..50]).unwrap();
    }
    assert!(matches!(intake.write(99, 0, &[0]), Err(IntakeError::Unlisted(99))));
}

type Change = Box<dyn Fn(&mut State)>;

#[test]
fn a_snapshot_that_cannot_be_is_refused() {
    let entry = |change: fn(&mut SegmentEntry)| {
        move |state: &mut State| {
            change(&mut state.content.segments[0]);
        }
    };
    let changes: Vec<(&str, Change)> = vec![
        ("an unlikely length", Box::new(entry(|entry| entry.length = 7))),
        ("a length of 10 GB", Box::new(entry(|entry| entry.length = 10 << 30))),
        ("a length that ends in a record", Box::new(entry(|entry| entry.length += 4))),
        ("more records than fit", Box::new(entry(|entry| entry.records = u64::MAX))),
        ("no checksum", Box::new(entry(|entry| entry.body_crc = None))),
        ("fewer records", Box::new(entry(|entry| entry.records -= 1))),
        ("another first record", Box::new(entry(|entry| entry.first_sub += 1))),
        ("another last record", Box::new(entry(|entry| entry.last_sub += 1))),
        ("a revision of the future", Box::new(|state| state.content.revision = i64::MAX)),
        ("an entry of the future", Box::new(|state| state.content.applied_index = u64::MAX)),
        ("a term of the future", Box::new(|state| state.content.applied_term = u64::MAX)),
        ("no entry", Box::new(|state| state.content.applied_index = 0)),
        ("a revision before the last record", Box::new(|state| state.content.revision = 5)),
        ("compacted beyond itself", Box::new(|state| state.content.compact_revision = 1000)),
        ("a segment twice", Box::new(|state| state.content.segments[1].id = 40)),
        ("segments out of order", Box::new(|state| state.content.segments.reverse())),
    ];
    for (what, change) in changes {
        let mut state = usual();
        change(&mut state);
        let error = state.refused();
        assert!(!matches!(error, IntakeError::Log(_)), "{what}: {error}");
    }
    let on_a_lease = state(|log| (2..9).for_each(|main| put(log, main, b"key", main)));
    let mut state = on_a_lease.clone();
    state.content.leases = vec![api::leasepb::Lease { id: 3, ttl: 9, remaining_ttl: 0 }];
    let error = state.refused();
    assert!(error.to_string().contains("a key is on lease 8, which was not granted"), "{error}");
}

#[test]
fn records_that_cannot_be_counted_on_from_are_refused() {
    let version = state(|log| {
        let kv = KvParts { key: b"key", create: 2, version: i64::MAX, value: b"", lease: 0 };
        log.append_put(Revision { main: 2, sub: 0 }, kv);
    });
    let sub = state(|log| {
        let kv = KvParts { key: b"key", create: 2, version: 1, value: b"", lease: 0 };
        log.append_put(Revision { main: 2, sub: u32::MAX }, kv);
    });
    for state in [version, sub] {
        let error = state.refused();
        assert!(matches!(error, IntakeError::Damaged { segment: 40, offset: 32, .. }), "{error}");
    }
}

#[test]
fn more_than_is_allowed_is_refused() {
    let mut many = usual();
    many.content.segments = (0..70_000)
        .map(|id| SegmentEntry {
            id,
            first_main: 2 + i64::from(id),
            last_main: 2 + i64::from(id),
            ..Default::default()
        })
        .collect();
    let error = many.refused();
    assert_eq!(error.to_string(), "the received snapshot has 70000 segments, more than 65536");
}

/// Puts keys of its own to the receiver, one a revision.
fn live(opened: &mut Opened, keys: u64) {
    for at in 0..keys {
        let put = PutRequest { key: format!("own{at:03}").into(), ..Default::default() };
        let request = InternalRaftRequest { put: Some(put), ..Default::default() };
        let index = Some(opened.applier.applied_index() + 1);
        let entry = Entry { term: Some(1), index, r#type: None, data: Some(request.encode_to_vec().into()) };
        opened.applier.apply(&[entry], &mut Nobody).unwrap();
    }
}

struct Nobody;

impl Sink for Nobody {
    fn done(&mut self, _: u64, _: u64, _: Result<Response, api::Error>) {}
    fn conf_change(&mut self, _: u64, _: ConfChange) {}
    fn over_quota(&mut self, _response: &Response) {}
}

fn all() -> RangeRequest {
    RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() }
}

#[test]
fn a_snapshot_whose_log_ends_before_the_own_one_is_gone_on_from() {
    for segments in [0, 1] {
        let (disk, mut opened) = receiver();
        live(&mut opened, 30);
        let mut state = state(|log| (2..2 + segments).for_each(|main| put(log, main, b"key", 0)));
        state.content.revision = 100;
        let ready = state.send(&opened.store).unwrap();
        opened.applier.install(ready).unwrap();
        live(&mut opened, 3);
        assert_eq!((opened.store.revision(), opened.store.usage().keys), (103, 3 + segments as u64));
        drop(opened);
        let opened = crate::open(Arc::new(disk), Path::new(DIR), crate::Options::default()).unwrap();
        assert_eq!((opened.store.revision(), opened.store.usage().keys), (100, segments as u64));
    }
}

#[test]
fn a_snapshot_that_the_own_revision_overtook_is_told_apart() {
    let (_, mut opened) = receiver();
    let ready = usual().send(&opened.store).unwrap();
    live(&mut opened, 38);
    assert!(!ready.is_overtaken(), "it is of the same revision");
    live(&mut opened, 1);
    assert!(ready.is_overtaken());
}

/// Another snapshot of the same revision can only come from a member that lies, or whose data are damaged.
#[test]
fn a_stream_over_a_snapshot_that_was_replaced_by_another_one_of_its_revision_ends() {
    for (keys, sort_target) in [(38, SortTarget::Key), (5, SortTarget::Key), (5, SortTarget::Value)] {
        let (_, mut opened) = receiver();
        live(&mut opened, keys);
        let other = state(|log| {
            (2..2 + keys as i64).for_each(|main| {
                let kv = KvParts { key: b"key", create: 2, version: main - 1, value: b"", lease: 0 };
                log.append_put(Revision { main, sub: 0 }, kv);
            });
        });
        let mut stream = opened.store.range_stream(RangeRequest { sort_target: sort_target as i32, ..all() }).unwrap();
        if keys > 10 {
            assert_eq!(stream.next().unwrap().unwrap().kvs.len(), 10);
        }
        let ready = other.send(&opened.store).unwrap();
        opened.applier.install(ready).unwrap();
        assert_eq!(stream.next().unwrap().unwrap_err(), api::Error::Corrupt, "{keys} keys by {sort_target:?}");
        assert!(stream.next().is_none());
    }
}

#[test]
fn random_bytes_end_in_an_error() {
    let good = usual();
    let bytes = encode_checkpoint(&good.content);
    let mut random = Random::new(1);
    let (_, opened) = receiver();
    for _ in 0..3000 {
        let mut damaged = bytes[..32 + random.below(bytes.len() as u64 - 31) as usize].to_vec();
        for _ in 0..random.below(4) {
            let at = 32 + random.below(damaged.len() as u64 - 31) as usize;
            if let Some(byte) = damaged.get_mut(at) {
                *byte = random.next_u64() as u8;
            }
        }
        // With the right checksums, so that the content is looked at.
        seal(&mut damaged);
        if let Ok(mut intake) = Intake::begin(&opened.store, 3, &damaged) {
            let needed = intake.needed();
            for (segment, _, _) in needed {
                let _ = intake.write(segment, 0, &segment_header(segment));
            }
        }
    }
    assert!(decode_checkpoint(&bytes).is_ok());
}

fn seal(checkpoint: &mut [u8]) {
    let (header, body) = checkpoint.split_at_mut(32);
    header[12..16].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    header[16..24].copy_from_slice(&(body.len() as u64).to_le_bytes());
    let crc = crc32c::crc32c(&header[..28]);
    header[28..32].copy_from_slice(&crc.to_le_bytes());
}
