//! Key files are read as they were written, and nothing else is taken for one.

use super::forge::forge;
use super::*;
use crate::log::{Mark, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentEntry, record_bytes};
use crate::sorting::Decoded;
use crate::types::{Loc, Revision, Version};
use disk::sim::{Random, SimDisk};
use disk::{Disk, File, Mode};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// A record as a key file tells it, with position 0 of its segment.
type Record = (Vec<u8>, Version, i64);

struct Made {
    bytes: Vec<u8>,
    entry: SegmentEntry,
    crc: u32,
    marks: Vec<Mark>,
    records: Vec<Record>,
}

/// The key file of a segment with such records: key, main revisions since the record before, what kind of record, length.
fn make(drawn: &[(Vec<u8>, i64, u8, u32)]) -> Made {
    let (mut records, mut marks) = (Vec::new(), Vec::new());
    let (mut offset, mut rev) = (SEGMENT_HEADER_BYTES, Revision { main: 1 << 40, sub: 0 });
    for (key, step, kind, len) in drawn {
        rev =
            if *step == 0 { Revision { sub: rev.sub + 1, ..rev } } else { Revision { main: rev.main + step, sub: 0 } };
        let (create, version) = match kind % 4 {
            0 => (0, 0),
            1 => (rev.main, 1),
            2 => (rev.main, 2),
            _ => (1 + i64::from(*kind), i64::from(*kind) << 50),
        };
        let lease = if version != 0 && kind & 64 != 0 { -i64::from(*kind) } else { 0 };
        let loc = Loc { segment: 0, offset: (offset + RECORD_HEADER_BYTES) as u32, len: *len };
        if records.len() % 7 == 0 {
            marks.push(Mark { rev, offset: offset as u32 });
        }
        records.push((key.clone(), Version { rev, create, version, loc }, lease));
        offset += record_bytes(*len as usize);
    }
    let (first, last) = (records[0].1.rev, rev);
    let entry = SegmentEntry {
        id: 7,
        length: offset as u64,
        records: records.len() as u64,
        first_main: first.main,
        first_sub: first.sub,
        last_main: last.main,
        last_sub: last.sub,
        ..SegmentEntry::default()
    };
    records.sort_by(|a, b| (&a.0, a.1.rev).cmp(&(&b.0, b.1.rev)));
    let common = records
        .iter()
        .fold(records[0].0.len(), |common, record| crate::sorting::shared(&records[0].0[..common], &record.0));
    let mut encoder = Encoder::new(entry, common);
    let mut bytes = vec![0; Encoder::HEADER_BYTES];
    for (key, version, lease) in &records {
        encoder.push(&Decoded { key, version: *version, lease: *lease });
        if encoder.waiting() > 0 {
            encoder.take_blocks(&mut bytes);
        }
    }
    encoder.close_block();
    encoder.take_blocks(&mut bytes);
    let Finished { tail, header, crc } = encoder.finish(&marks);
    bytes.extend_from_slice(&tail);
    bytes[..header.len()].copy_from_slice(&header);
    Made { bytes, entry, crc, marks, records }
}

/// A key file of several blocks.
fn large(seed: u64) -> Made {
    let mut random = Random::new(seed);
    let mut record = || {
        let key = format!("/registry/{:03}/{}", random.below(300), "k".repeat(random.below(30) as usize));
        (key.into_bytes(), random.below(3) as i64, random.next_u64() as u8, 1 + random.below(200) as u32)
    };
    let drawn: Vec<_> = std::iter::once((b"/registry/".to_vec(), 1, 1, 5)).chain((0..3000).map(|_| record())).collect();
    make(&drawn)
}

/// A file with these bytes.
fn file(bytes: &[u8]) -> Arc<dyn File> {
    let (disk, path) = (SimDisk::new(), Path::new("/0.keys"));
    disk.install(path, bytes).unwrap();
    disk.open(path, Mode::Write).unwrap()
}

fn open(bytes: &[u8], entry: &SegmentEntry, crc: u32) -> Result<KeyFile, Misfit> {
    open_file(file(bytes), entry, crc)
}

fn open_file(file: Arc<dyn File>, entry: &SegmentEntry, crc: u32) -> Result<KeyFile, Misfit> {
    let mut keys = KeyFile::open(file, entry, crc)?;
    keys.verify(|| {})?;
    Ok(keys)
}

fn walk(file: &KeyFile, from: Option<&[u8]>) -> Result<Vec<Record>, Misfit> {
    let mut found = Vec::new();
    let Some(mut cursor) = file.cursor(0, from)? else { return Ok(found) };
    loop {
        let (version, lease) = cursor.version();
        found.push((cursor.key().to_vec(), version, lease));
        if !cursor.advance()? {
            return Ok(found);
        }
    }
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    let part = prop::sample::select(vec![&b"\0"[..], b"a", b"b", b"/registry/pods/", b"\xff\xff"]);
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn what_was_written_is_read(drawn in prop::collection::vec((keys(), 0..3_i64, any::<u8>(), 1..5000_u32), 1..200),
            from in keys()) {
        let made = make(&drawn);
        let file = open(&made.bytes, &made.entry, made.crc).unwrap();
        prop_assert_eq!(walk(&file, None).unwrap(), made.records.clone());
        let later: Vec<_> = made.records.iter().filter(|(key, ..)| *key >= from).cloned().collect();
        prop_assert_eq!(walk(&file, Some(&from)).unwrap(), later);
        let batch = file.batch();
        let body = made.entry.length - SEGMENT_HEADER_BYTES as u64;
        let expected = (made.entry.first(), made.entry.last(), made.entry.records, body);
        prop_assert_eq!(batch.summary(), (expected, &made.marks[..]));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let made = make(&[(b"k".to_vec(), 1, 1, 5)]);
        prop_assert!(open(&bytes, &made.entry, made.crc).is_err());
    }
}

#[test]
fn a_cursor_begins_anywhere() {
    let made = large(1);
    let file = open(&made.bytes, &made.entry, made.crc).unwrap();
    assert!(file.samples(usize::MAX).count() > 2, "several blocks");
    for at in (0..made.records.len()).step_by(3) {
        let from = &made.records[at].0;
        let first = made.records.iter().position(|(key, ..)| key == from).unwrap();
        assert_eq!(walk(&file, Some(from)).unwrap(), made.records[first..], "from {at}");
    }
    assert_eq!(walk(&file, Some(b"\xff")).unwrap(), []);
}

#[test]
fn every_flipped_byte_is_refused() {
    let made = large(2);
    let whole = file(&made.bytes);
    for (at, byte) in made.bytes.iter().enumerate() {
        whole.write_at(&[byte ^ 1 << (at % 8)], at as u64).unwrap();
        assert!(open_file(Arc::clone(&whole), &made.entry, made.crc).is_err(), "byte {at}");
        whole.write_at(&[*byte], at as u64).unwrap();
    }
    open_file(Arc::clone(&whole), &made.entry, made.crc).unwrap();
    for at in (0..made.bytes.len()).step_by(17) {
        assert!(open(&made.bytes[..at], &made.entry, made.crc).is_err(), "cut at {at}");
    }
    let longer = [&made.bytes[..], &[0]].concat();
    assert!(open(&longer, &made.entry, made.crc).is_err());
}

#[test]
fn the_key_file_of_another_segment_is_refused() {
    let made = large(3);
    let entry = made.entry;
    let others = [
        SegmentEntry { id: 8, ..entry },
        SegmentEntry { length: entry.length + 8, ..entry },
        SegmentEntry { records: entry.records + 1, ..entry },
        SegmentEntry { first_main: entry.first_main - 1, ..entry },
        SegmentEntry { first_sub: entry.first_sub + 1, ..entry },
        SegmentEntry { last_main: entry.last_main + 1, ..entry },
        SegmentEntry { last_sub: entry.last_sub + 1, ..entry },
    ];
    for other in others {
        assert!(open(&made.bytes, &other, made.crc).is_err(), "{other:?}");
    }
    // One of the same segment, as far as its numbers go, but with other records.
    let twin = Made { entry, ..large(4) };
    assert!(open(&twin.bytes, &entry, made.crc).is_err());
    assert!(open(&made.bytes, &entry, made.crc ^ 1).is_err());
    open(&made.bytes, &SegmentEntry { keys_crc: Some(made.crc), ..entry }, made.crc).unwrap();
}

#[test]
fn what_is_made_up_is_read_or_refused() {
    let (made, mut random) = (large(5), Random::new(5));
    let (mut refused, mut read, forged) = (0, 0, file(&made.bytes));
    for _ in 0..5_000 {
        let mut bytes = made.bytes.clone();
        let crc = forge(&mut bytes, &mut random);
        forged.write_at(&bytes, 0).unwrap();
        let walked = open_file(Arc::clone(&forged), &made.entry, crc).and_then(|file| {
            file.common()?;
            file.samples(10).try_for_each(|key| key.map(|_| ()))?;
            walk(&file, Some(b"/registry/150")).and(walk(&file, None))
        });
        match walked {
            Ok(records) => {
                assert!(records.len() as u64 == made.entry.records, "every record of every block is read");
                assert!(records.is_sorted_by(|a, b| (&a.0, a.1.rev) < (&b.0, b.1.rev)));
                read += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 1_000 && read > 25, "{refused} refused, {read} read");
}
