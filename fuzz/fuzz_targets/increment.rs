//! An increment of a snapshot, behind a whole one: any bytes, and a good one changed here and there, with checksums that are right again.
//! Whatever comes is read or refused.
#![no_main]

#[path = "file.rs"]
mod file;

use api::Message;
use api::mvccpb::KeyValue;
use etcd_import::{Database, Predecessor};
use file::File;
use libfuzzer_sys::fuzz_target;
use sha2::{Digest as _, Sha256};
use std::sync::OnceLock;
use store::Image;
use store::image::Table;
use store::increment::{Digest, HEAD_BYTES, Head, Since};
use store::types::Revision;

const PAGE_BYTES: usize = 4096;
/// Where a head of a database says what it is for, and what of it has a checksum.
const META: usize = 16;
const SUMMED: usize = 56;
/// The last revision of the whole snapshot, the last one of the increment, and what that one is compacted to.
const BASE: i64 = 99;
const LAST: i64 = 150;
const COMPACTED: i64 = 50;
/// Versions from before that a compaction has kept.
const KEPT: [i64; 3] = [10, 20, 30];

fn value_of(main: i64) -> Vec<u8> {
    let key = format!("k{}", main % 50);
    KeyValue { key: key.into(), mod_revision: main, value: vec![7; 60].into(), ..Default::default() }.encode_to_vec()
}

fn image(first: i64, last: i64, meta: Vec<(Vec<u8>, Vec<u8>)>, kept: Option<Vec<u8>>) -> Vec<u8> {
    let row = |main: i64| ([&main.to_be_bytes()[..], b"_", &[0; 8]].concat(), value_of(main));
    let mut image = Image::new(vec![
        Box::new(Table::new("key", (first..=last).map(row).collect())),
        Box::new(Table::new("kept", kept.map(|list| (0_u32.to_be_bytes().to_vec(), list)).into_iter().collect())),
        Box::new(Table::new("meta", meta)),
        Box::new(Table::new("lease", vec![(7u64.to_be_bytes().to_vec(), vec![8, 7, 16, 60])])),
    ]);
    let mut bytes = Vec::new();
    while let Some(part) = image.next(1 << 16) {
        bytes.extend_from_slice(&part);
    }
    bytes
}

fn with_sum(bytes: &[u8]) -> Vec<u8> {
    [bytes, &Sha256::digest(bytes)].concat()
}

/// A whole snapshot, and the bytes of an increment behind it.
fn good() -> &'static (File, Vec<u8>) {
    static GOOD: OnceLock<(File, Vec<u8>)> = OnceLock::new();
    GOOD.get_or_init(|| {
        let index = (b"consistent_index".to_vec(), 400u64.to_be_bytes().to_vec());
        let base = File::new("base", &with_sum(&image(2, BASE, vec![index.clone()], None)));
        let mut digest = Digest::new(0);
        for main in KEPT.into_iter().chain(COMPACTED..=BASE) {
            digest.add(Revision { main, sub: 0 }, false, &value_of(main));
        }
        let (hash, own_hash) = digest.end();
        let since = Since { revision: BASE, compact_revision: -1, start: 0 };
        let head = Head {
            cluster_id: 7,
            since,
            revision: LAST,
            compact_revision: COMPACTED,
            index: 500,
            term: 3,
            hash,
            own_hash,
        };
        let rev = [&COMPACTED.to_be_bytes()[..], b"_", &[0; 8]].concat();
        let meta = vec![index, (b"finishedCompactRev".to_vec(), rev.clone()), (b"scheduledCompactRev".to_vec(), rev)];
        // Differences of 10, times two.
        let bytes = [&head.encode()[..], &image(BASE + 1, LAST, meta, Some(vec![20, 20, 20]))].concat();
        let whole = File::new("increment", &with_sum(&bytes));
        Database::open(base.path())
            .and_then(|base_of| base_of.with_increments(base.path(), &[whole.path().to_path_buf()]))
            .expect("the good one is good");
        (base, bytes)
    })
}

/// Makes the checksums of all heads right, so that what they say is believed.
fn seal(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[..HEAD_BYTES - 4]);
    bytes[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    for head in [HEAD_BYTES, HEAD_BYTES + PAGE_BYTES] {
        let meta = &mut bytes[head + META..];
        let sum = meta[..SUMMED]
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        meta[SUMMED..SUMMED + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

fn edited(data: &[u8]) -> Vec<u8> {
    let mut bytes = good().1.clone();
    let (edits, _) = data.as_chunks::<4>();
    for [page, low, high, value] in edits.iter().take(64) {
        // What the heads and the beginnings of pages say is met more often.
        let within = if high & 0x80 == 0 { usize::from(*low) } else { usize::from(u16::from_le_bytes([*low, high & 0x0f])) };
        let begin = if high & 0x40 == 0 { 0 } else { HEAD_BYTES };
        let at = (begin + usize::from(*page) * PAGE_BYTES * (begin / HEAD_BYTES) + within) % bytes.len();
        bytes[at] = *value;
    }
    seal(&mut bytes);
    bytes
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else { return };
    let bytes = if mode % 8 == 0 { rest.to_vec() } else { edited(rest) };
    let (base, _) = good();
    let file = File::new("changed", &with_sum(&bytes));
    let chain = Database::open(base.path()).and_then(|database| {
        let increments = [file.path().to_path_buf()];
        database.with_increments(base.path(), &increments)
    });
    if let Ok(database) = chain {
        let _ = database.records(&mut |_| Ok(()));
        let _ = database.status();
        let _ = database.contents();
        let _ = database.hash_kv(0);
        let _ = database.hash_kv(i64::from(*mode));
    }
    // As what an increment is to follow, and as what a member sends.
    if let Ok(before) = Predecessor::open(file.path()) {
        let _ = before.check(file.path());
    }
    if let Ok(before) = Predecessor::open(base.path()) {
        let _ = before.check(file.path());
    }
});
