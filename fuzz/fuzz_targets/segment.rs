//! A segment of the revision log: any bytes, and bytes with checksums that are right again. Whatever comes is read or refused, and a store that
//! opens with it shows what its records say.
#![no_main]

#[path = "seal.rs"]
mod seal;

use api::Message;
use api::etcdserverpb::RangeRequest;
use api::mvccpb::KeyValue;
use disk::sim::SimDisk;
use disk::{Disk, Mode};
use libfuzzer_sys::fuzz_target;
use seal::{HEADER_BYTES, RECORD_HEADER_BYTES};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use store::Options;
use store::checkpoint::Checkpoint;
use store::log::SegmentEntry;

/// The header of the segment 1, but for its checksum.
const HEADER: &[u8; HEADER_BYTES] = b"CAIRNSEG\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// A record: its revision, whether it deletes its key, and the key as it is afterwards.
type Change = ((i64, u32), bool, KeyValue);

/// Reads a segment that was found to be whole.
fn changes(bytes: &[u8]) -> Vec<Change> {
    let (mut changes, mut rest) = (Vec::new(), &bytes[HEADER_BYTES..]);
    while !rest.is_empty() {
        let length = seal::record_bytes(rest).unwrap_or_else(|| panic!("the last record is cut off"));
        let (record, behind) = rest.split_at(length);
        let number = |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let main = i64::from(number(12)) << 32 | i64::from(number(8));
        let content = &record[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + number(4) as usize];
        let pair = KeyValue::decode(content).unwrap_or_else(|error| panic!("{error}"));
        assert!(pair.encode_to_vec() == content, "it was written in another way");
        let is_tombstone = record[20] == 1;
        assert!(pair.mod_revision == if is_tombstone { 0 } else { main }, "a revision of another change");
        changes.push(((main, number(16)), is_tombstone, pair));
        rest = behind;
    }
    changes
}

/// Opens a store of nothing but this segment, and compares.
fn open(bytes: &[u8], changes: &[Change]) {
    let (Some((first, ..)), Some((last, ..))) = (changes.first(), changes.last()) else { return };
    let entry = SegmentEntry {
        id: u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
        length: bytes.len() as u64,
        records: changes.len() as u64,
        first_main: first.0,
        first_sub: first.1,
        last_main: last.0,
        last_sub: last.1,
        ..Default::default()
    };
    let checkpoint = Checkpoint {
        applied_index: 1,
        applied_term: 1,
        revision: last.0.max(1),
        segments: vec![entry],
        ..Checkpoint::initial()
    };
    let (disk, dir) = (SimDisk::new(), Path::new("/store"));
    let write = |name: String, bytes: &[u8]| {
        disk.create_dir(dir)?;
        let file = disk.open(&dir.join(name), Mode::Create)?;
        file.write_at(bytes, 0)?;
        file.sync_data()
    };
    let written = write(format!("{:016x}.seg", entry.id), bytes)
        .and_then(|()| write(format!("{:016x}.ckpt", 1), &seal::checkpoint(1, &checkpoint.encode_to_vec())));
    written.unwrap_or_else(|error| panic!("{error}"));
    let Ok(opened) = store::open(Arc::new(disk.clone()), dir, Options::default()) else { return };
    assert!(opened.passed_over.is_empty(), "the checkpoint is good");
    let mut expected = BTreeMap::new();
    for (_, is_tombstone, pair) in changes {
        if *is_tombstone {
            expected.remove(&pair.key);
        } else {
            expected.insert(pair.key.clone(), pair.clone());
        }
    }
    let all = RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
    let shown = opened.store.range(&all).unwrap_or_else(|error| panic!("{error:?}")).into_message();
    assert!(shown.count == expected.len() as i64, "{} keys, not {}", shown.count, expected.len());
    assert!(shown.kvs.iter().eq(expected.values()), "other keys or values");
    let _ = opened.store.hash_kv(0);
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else { return };
    let bytes = match mode % 4 {
        0 => rest.to_vec(),
        1 => {
            let mut bytes = rest.to_vec();
            seal::segment(&mut bytes);
            bytes
        }
        _ => {
            let mut bytes = [&HEADER[..], rest].concat();
            seal::segment(&mut bytes);
            bytes
        }
    };
    match store::log::scan_segment(&bytes) {
        Ok(records) => {
            let changes = changes(&bytes);
            assert!(
                changes.len() as u64 == records && changes.is_sorted_by(|one, next| one.0 < next.0),
                "{records} records"
            );
            open(&bytes, &changes);
        }
        Err(damage) => assert!(damage.offset <= bytes.len() as u64, "{damage:?}"),
    }
});
