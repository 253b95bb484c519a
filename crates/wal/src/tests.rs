//! Damage to every byte of a log, on the reader alone: opening the whole log for each would take minutes.

#![allow(clippy::unwrap_used)]

use crate::batch::Batch;
use crate::reader::{Reader, Tail};
use crate::{EntryRef, Options, Wal, decode_segment};
use disk::sim::{Random, SimDisk};
use std::path::Path;
use std::sync::Arc;

const SEGMENT_BYTES: u64 = 1 << 20;
const NAME: &str = "/wal/0000000000000000-0000000000000000.wal";

/// The first segment of a log, nearly full, and where its batches begin. The last item is the end.
fn segment(seed: u64) -> (Vec<u8>, Vec<Tail>) {
    let disk = SimDisk::new();
    let options = Options { segment_bytes: SEGMENT_BYTES, segments_min: 1, rest: || {} };
    let mut wal = Wal::create(Arc::new(disk.clone()), Path::new("/wal"), b"metadata", options).unwrap();
    let mut random = Random::new(seed);
    while wal.offset + 20_000 < SEGMENT_BYTES {
        for _ in 0..1 + random.below(6) {
            let data: Vec<u8> = (0..random.below(1200)).map(|_| random.next_u64() as u8).collect();
            let entry = EntryRef { term: 1, index: wal.last_index() + 1, kind: 0, data: &data };
            wal.append(&mut [entry].into_iter(), None);
        }
        wal.commit(true).unwrap();
    }
    let bytes = disk.contents(Path::new(NAME)).unwrap();
    let mut reader = Reader::new(&bytes, 0, None);
    let mut tails = vec![reader.tail()];
    while reader.next_batch().unwrap().is_some() {
        tails.push(reader.tail());
    }
    assert!(tails.len() > 200);
    (bytes, tails)
}

#[test]
fn every_byte_of_a_log_flipped() {
    let (mut bytes, tails) = segment(1);
    let (end, last) = (tails[tails.len() - 1], tails[tails.len() - 2]);
    let mut cut = 0;
    let mut batch = 0;
    // Behind the end all bytes are alike: zeros.
    for offset in 0..end.offset + 2048 {
        while batch + 1 < tails.len() && offset >= tails[batch + 1].offset {
            batch += 1;
        }
        let byte = bytes[offset as usize];
        for damage in [byte ^ 0xff, byte ^ (1 << (offset % 8)), 0, byte.wrapping_add(1)] {
            if damage == byte {
                continue;
            }
            bytes[offset as usize] = damage;
            let mut reader = Reader::resume(&bytes, 0, tails[batch]);
            if batch == 0 {
                reader = Reader::new(&bytes, 0, None);
            }
            let found = reader.next_batch().err();
            let found = found.unwrap_or_else(|| panic!("byte {offset} changed from {byte} to {damage} unseen"));
            assert_eq!(found.batch_offset, tails[batch].offset);
            assert!(found.offset >= found.batch_offset);
            assert!(!found.torn || offset >= last.offset, "byte {offset} passed for a torn batch");
            cut += u64::from(found.torn && offset < end.offset);
        }
        bytes[offset as usize] = byte;
    }
    // Nothing in random data looks like a lost sector.
    assert!(cut == 0, "{cut} of the changes passed for a torn batch");
}

#[test]
fn a_log_cut_at_every_byte_of_its_last_64_kib() {
    let (bytes, tails) = segment(2);
    for len in bytes.len() - 65_536..bytes.len() {
        let found = decode_segment(&bytes[..len], 0, &mut |_| {}).unwrap_err();
        assert_eq!((found.offset, found.torn), (len as u64, false));
    }
    // Also where the written part ends, and in the first batch.
    let end = tails[tails.len() - 1].offset as usize;
    for len in (end - 65_536..end).chain(0..200) {
        let found = decode_segment(&bytes[..len], 0, &mut |_| {}).unwrap_err();
        assert!(!found.torn, "{len}");
    }
}

#[test]
fn lost_sectors_are_a_torn_tail_in_the_last_batch_only() {
    let (bytes, tails) = segment(3);
    let mut random = Random::new(4);
    for _ in 0..2000 {
        let batch = 1 + random.below(tails.len() as u64 - 2) as usize;
        let (start, end) = (tails[batch].offset as usize, tails[batch + 1].offset as usize);
        let last = batch + 2 == tails.len();
        let mut damaged = bytes.clone();
        for sector in start / 512..end.div_ceil(512) {
            if random.chance(50) {
                damaged[(sector * 512).max(start)..(sector * 512 + 512).min(end)].fill(0);
            }
        }
        let mut reader = Reader::resume(&damaged, 0, tails[batch]);
        match reader.next_batch() {
            Err(found) => assert_eq!(found.torn, last, "{found:?}"),
            // Nothing was lost, or the whole of the last batch.
            Ok(None) => assert!(last),
            Ok(Some(_)) => assert!(damaged == bytes),
        }
    }
}

/// A segment whose last batch holds values of zeros, which fill whole sectors. Also where that batch begins and ends.
fn zeros_at_the_end(seed: u64) -> (Vec<u8>, Tail, usize) {
    let disk = SimDisk::new();
    let options = Options { segment_bytes: SEGMENT_BYTES, segments_min: 1, rest: || {} };
    let mut wal = Wal::create(Arc::new(disk.clone()), Path::new("/wal"), b"metadata", options).unwrap();
    let mut random = Random::new(seed);
    for _ in 0..2 {
        for _ in 0..6 {
            let fill = if random.chance(50) { 0 } else { 0xa5 };
            let data = vec![fill; random.below(3000) as usize];
            let entry = EntryRef { term: 1, index: wal.last_index() + 1, kind: 0, data: &data };
            wal.append(&mut [entry].into_iter(), None);
        }
        wal.commit(true).unwrap();
    }
    let end = wal.offset as usize;
    let bytes = disk.contents(Path::new(NAME)).unwrap();
    let mut reader = Reader::new(&bytes, 0, None);
    reader.next_batch().unwrap();
    reader.next_batch().unwrap();
    let tail = reader.tail();
    (bytes, tail, end)
}

#[test]
fn zeros_that_were_written_do_not_pass_for_lost_sectors() {
    for seed in 0..20 {
        let (mut bytes, last, end) = zeros_at_the_end(seed);
        let start = last.offset as usize;
        // But for the length word, whose loss looks like that of the sector.
        for at in start + 8..end {
            bytes[at] ^= 0x10;
            let found = Reader::resume(&bytes, 0, last).next_batch().unwrap_err();
            assert!(!found.torn, "seed {seed}: byte {at} of {start}..{end} passed for a torn batch");
            bytes[at] ^= 0x10;
        }
    }
}

#[test]
fn sectors_lost_among_zeros_are_found() {
    let mut random = Random::new(9);
    for seed in 0..20 {
        let (bytes, last, end) = zeros_at_the_end(seed);
        let start = last.offset as usize;
        for _ in 0..200 {
            let mut damaged = bytes.clone();
            for sector in start / 512..end.div_ceil(512) {
                if random.chance(30) {
                    damaged[(sector * 512).max(start)..(sector * 512 + 512).min(end)].fill(0);
                }
            }
            match Reader::resume(&damaged, 0, last).next_batch() {
                Err(found) => assert!(found.torn, "seed {seed}: {found:?}"),
                Ok(None) => {}
                Ok(Some(_)) => assert!(damaged == bytes),
            }
        }
    }
}

#[test]
fn a_batch_in_a_value_is_no_batch() {
    // A client stores bytes that look like a batch; they do not stand where such a batch would.
    let (bytes, tails) = segment(5);
    let disk = SimDisk::new();
    let options = Options { segment_bytes: SEGMENT_BYTES, segments_min: 1, rest: || {} };
    let mut wal = Wal::create(Arc::new(disk.clone()), Path::new("/wal"), b"metadata", options).unwrap();
    let batch = &bytes[tails[7].offset as usize..tails[9].offset as usize];
    wal.append(&mut [EntryRef { term: 1, index: 1, kind: 0, data: batch }].into_iter(), None);
    let offset = wal.offset as usize;
    wal.commit(true).unwrap();
    let mut torn = disk.contents(Path::new(NAME)).unwrap();
    torn[offset..512].fill(0);
    let found = decode_segment(&torn, 0, &mut |_| {}).unwrap_err();
    assert_eq!((found.offset, found.torn), (offset as u64, true));
}

#[test]
fn hostile_bytes_end_in_an_error() {
    let (bytes, tails) = segment(6);
    let mut random = Random::new(7);
    for _ in 0..300 {
        let mut damaged = bytes[..65_536].to_vec();
        for _ in 0..random.below(20) {
            let at = random.below(tails[6].offset) as usize;
            damaged[at] = random.next_u64() as u8;
        }
        let _ = decode_segment(&damaged, random.below(2), &mut |_| {});
    }
    for len in 0..64 {
        assert!(decode_segment(&vec![0; len], 0, &mut |_| {}).is_err());
        assert!(decode_segment(&vec![0xff; len], 0, &mut |_| {}).is_err());
    }
}

/// The Crc record of a batch ends in a second sector, with bytes that are all zeros: it is whole where that sector is lost.
#[test]
fn a_lost_sector_that_begins_with_zeros_of_the_checksum() {
    let mut found = 0;
    // The checks of some of so many end with a zero, and behind it is the padding.
    for crc in 1 << 27..(1 << 27) + 4_000 {
        let (mut batch, offset) = (Batch::new(crc), 1024 - 32);
        batch.push_entry(&EntryRef { term: 1, index: 1, kind: 0, data: &[1; 100] });
        let mut bytes = vec![0; 4096];
        let written = batch.finish(0, offset);
        bytes[offset as usize..][..written.len()].copy_from_slice(written);
        let tail = Tail { offset, crc };
        assert!(Reader::resume(&bytes, 0, tail).next_batch().unwrap().is_some());
        let is_zero = bytes[1024..1032] == [0; 8];
        found += usize::from(is_zero);
        bytes[1024..1536].fill(0);
        let torn = Reader::resume(&bytes, 0, tail).next_batch().unwrap_err();
        assert!(torn.torn, "with the checksum {crc}: {torn:?}");
        // Where anything was written behind it, it was durable.
        bytes[2048] = 1;
        let damaged = Reader::resume(&bytes, 0, tail).next_batch().unwrap_err();
        assert!(!is_zero || !damaged.torn, "with the checksum {crc}: {damaged:?}");
    }
    assert!(found > 2, "{found} of the checks end with a zero");
}

/// A writer can choose data of which whole sectors may become zeros without changing a checksum: CRC-32C is linear.
#[test]
fn a_lost_sector_that_no_checksum_shows() {
    let filler = [7; 508];
    let register = !crc32c::crc32c_append(!0, &filler);
    let neutral = [&filler[..], &register.to_le_bytes()].concat();
    let (crc, offset) = (5, 1000_u64);
    let written = |data: &[u8]| {
        let mut batch = Batch::new(crc);
        batch.push_entry(&EntryRef { term: 1, index: 1, kind: 0, data });
        batch.finish(0, offset).to_vec()
    };
    let mut data = vec![1; 3_000];
    let begin = written(&data).windows(8).position(|bytes| bytes == [1; 8]).unwrap();
    let place = 2048 - offset as usize - begin;
    data[place..place + 512].copy_from_slice(&neutral);
    let batch = written(&data);
    let mut bytes = vec![0; 8192];
    bytes[offset as usize..][..batch.len()].copy_from_slice(&batch);
    let tail = Tail { offset, crc };
    assert_eq!(bytes[2048..2560], neutral);
    assert!(Reader::resume(&bytes, 0, tail).next_batch().unwrap().is_some());
    bytes[2048..2560].fill(0);
    assert!(Reader::resume(&bytes, 0, tail).next_batch().unwrap_err().torn);
    // Something was written behind it: it was durable.
    bytes[6000] = 1;
    assert!(!Reader::resume(&bytes, 0, tail).next_batch().unwrap_err().torn);
}

/// The file ends within the Crc record of its last batch: the power went before its longer length was durable.
#[test]
fn a_checksum_record_across_the_end_of_the_file() {
    for crc in [5, u32::MAX] {
        let (mut batch, offset) = (Batch::new(crc), 1024 + 8);
        batch.push_entry(&EntryRef { term: 1, index: 1, kind: 0, data: &[1; 100] });
        let mut bytes = vec![0; offset as usize];
        bytes.extend_from_slice(batch.finish(0, offset));
        for len in offset as usize + 1..bytes.len() {
            let found = Reader::resume(&bytes[..len], 0, Tail { offset, crc }).next_batch().unwrap_err();
            assert!(found.torn, "of {len} bytes: {found:?}");
        }
        // A record that says so, and could not.
        bytes[offset as usize] = 200;
        let found = Reader::resume(&bytes[..offset as usize + 24], 0, Tail { offset, crc }).next_batch().unwrap_err();
        assert!(!found.torn, "{found:?}");
    }
}
