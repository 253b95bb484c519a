//! A database file of etcd: any bytes, and a good one changed here and there, with heads and checksums that are right again. Whatever
//! comes is read or refused, and what is read one way is there the other way too.
#![no_main]

#[path = "file.rs"]
mod file;

use api::Message;
use api::mvccpb::KeyValue;
use file::File;
use etcd_import::{Database, SnapshotFile};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use std::sync::OnceLock;
use store::Image;
use store::image::Table;

const PAGE_BYTES: usize = 4096;
/// Where a head says what it is for, and what of it has a checksum.
const META: usize = 16;
const SUMMED: usize = 56;

/// A small database with a tree of its own, and one inside a value.
fn good() -> &'static [u8] {
    static GOOD: OnceLock<Vec<u8>> = OnceLock::new();
    GOOD.get_or_init(|| {
        let row = |main: u64| {
            let name = [&main.to_be_bytes()[..], b"_", &[0; 8]].concat();
            let key = format!("k{}", main % 50);
            let value = KeyValue { key: key.into(), mod_revision: main as i64, value: vec![7; 60].into(), ..Default::default() };
            (name, value.encode_to_vec())
        };
        let few = |name| Table::new(name, vec![(b"consistent_index".to_vec(), 400u64.to_be_bytes().to_vec())]);
        let mut image = Image::new(vec![
            Box::new(Table::new("key", (2..400).map(row).collect())),
            Box::new(few("meta")),
            Box::new(Table::new("members", vec![(b"1f".to_vec(), br#"{"id":31,"peerURLs":["http://a:1"]}"#.to_vec())])),
            Box::new(Table::new("lease", vec![(7u64.to_be_bytes().to_vec(), vec![8, 7, 16, 60])])),
            Box::new(Table::new("auth", vec![(b"authEnabled".to_vec(), vec![0])])),
        ]);
        let mut bytes = Vec::new();
        while let Some(part) = image.next(1 << 16) {
            bytes.extend_from_slice(&part);
        }
        bytes
    })
}

/// Makes the checksums of both heads right, so that what they say is believed.
fn seal(bytes: &mut [u8]) {
    for head in [0, PAGE_BYTES] {
        let meta = &mut bytes[head + META..];
        let sum = meta[..SUMMED]
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        meta[SUMMED..SUMMED + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

fn edited(data: &[u8]) -> Vec<u8> {
    let mut bytes = good().to_vec();
    let (edits, _) = data.as_chunks::<4>();
    for [page, low, high, value] in edits.iter().take(64) {
        // The first bytes of a page are what a reader goes by, so they are met more often.
        let within = if high & 0x80 == 0 { usize::from(*low) } else { usize::from(u16::from_le_bytes([*low, high & 0x0f])) };
        let at = usize::from(*page) * PAGE_BYTES + within;
        let at = at % bytes.len();
        bytes[at] = *value;
    }
    seal(&mut bytes);
    bytes
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else { return };
    let bytes = if mode % 8 == 0 { rest.to_vec() } else { edited(rest) };
    let file = File::new("db", &[&bytes[..], &Sha256::digest(&bytes)].concat());
    let _ = SnapshotFile::check(file.path(), false);
    let Ok(database) = Database::open(file.path()) else { return };
    let mut records = 0;
    let read = database.records(&mut |_| {
        records += 1;
        Ok(())
    });
    if let Ok(status) = database.status() {
        assert!(read.is_ok() && status.total_key <= records, "what can be summed up can be read");
    }
    let _ = database.contents();
    let _ = database.hash_kv(0);
    let _ = database.hash_kv(i64::from(*mode));
});
