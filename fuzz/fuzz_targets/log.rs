//! A file of a Raft log of etcd, as the tools read it: any bytes, and records whose checksums are right.
#![no_main]

#[path = "file.rs"]
mod file;

use api::Message;
use api::walpb;
use file::File;
use etcd_import::log;
use libfuzzer_sys::fuzz_target;

/// Frames a record as etcd does, and goes on with the checksum.
fn frame(out: &mut Vec<u8>, crc: &mut u32, kind: i64, data: &[u8]) {
    *crc = crc32c::crc32c_append(*crc, data);
    let record = walpb::Record { r#type: Some(kind), crc: Some(*crc), data: Some(data.to_vec().into()) }.encode_to_vec();
    let pad = record.len().next_multiple_of(8) - record.len();
    let high = if pad == 0 { 0 } else { (0x80 | pad as u64) << 56 };
    out.extend_from_slice(&(record.len() as u64 | high).to_le_bytes());
    out.extend_from_slice(&record);
    out.extend_from_slice(&[0; 8][..pad]);
}

/// Records of what the fuzzer says: type, length, bytes.
fn records(mut data: &[u8]) -> (Vec<u8>, usize) {
    let (mut out, mut crc, mut count) = (Vec::new(), 0, 0);
    while let [kind, length, rest @ ..] = data {
        let (bytes, tail) = rest.split_at(usize::from(*length).min(rest.len()));
        let kind = i64::from(kind % 8);
        if kind != 4 {
            frame(&mut out, &mut crc, kind, bytes);
            count += 1;
        }
        data = tail;
    }
    (out, count)
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else { return };
    let (bytes, sent) = if mode % 4 == 0 { (rest.to_vec(), usize::MAX) } else { records(rest) };
    let file = File::new("0000000000000000-0000000000000000.wal", &bytes);
    let mut seen = 0;
    let read = log::read(file.dir(), &mut |_| seen += 1);
    assert!(seen <= bytes.len() / 8 && seen <= sent, "there are no more records than were written");
    assert!(sent == usize::MAX || read.is_err() || seen == sent, "what is whole is read to its end");
});
