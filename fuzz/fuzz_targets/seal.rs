//! Checksums of the store's files that are right again after a change, as far as there are records.
#![allow(dead_code, reason = "targets seal segments, checkpoints, or both")]

/// Of segments and of checkpoints.
pub const HEADER_BYTES: usize = 32;
/// Where both have the checksum of their header.
const HEADER_CRC: usize = 28;
pub const RECORD_HEADER_BYTES: usize = 24;

fn header(bytes: &mut [u8]) {
    if let Some(header) = bytes.first_chunk_mut::<HEADER_BYTES>() {
        let crc = crc32c::crc32c(&header[..HEADER_CRC]);
        header[HEADER_CRC..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The length of the record at the beginning, header and padding included.
pub fn record_bytes(bytes: &[u8]) -> Option<usize> {
    let length: [u8; 4] = *bytes.get(4..RECORD_HEADER_BYTES)?.first_chunk()?;
    let record = (RECORD_HEADER_BYTES + u32::from_le_bytes(length) as usize).next_multiple_of(8);
    (record <= bytes.len()).then_some(record)
}

/// A segment: its header, and each record whose length it has.
pub fn segment(bytes: &mut [u8]) {
    header(bytes);
    let mut rest = bytes.get_mut(HEADER_BYTES..).unwrap_or_default();
    while let Some(length) = record_bytes(rest) {
        let (record, behind) = rest.split_at_mut(length);
        let crc = crc32c::crc32c(&record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        rest = behind;
    }
}

/// A checkpoint with this content.
pub fn checkpoint(format: u32, body: &[u8]) -> Vec<u8> {
    let crc = crc32c::crc32c(body).to_le_bytes();
    let length = (body.len() as u64).to_le_bytes();
    let mut bytes = [b"CAIRNCKP", &format.to_le_bytes()[..], &crc, &length, &[0; 8], body].concat();
    header(&mut bytes);
    bytes
}
