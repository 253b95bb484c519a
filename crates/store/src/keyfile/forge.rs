//! Key files that are made up: their checksums are right, and something in them is not.

use super::layout::{HEADER_BYTES, MARK_BYTES, ROW_BYTES, u32_at};
use disk::sim::Random;

/// Changes some bytes of a key file, and makes every checksum right again. Returns that of its header.
pub(crate) fn forge(bytes: &mut [u8], random: &mut Random) -> u32 {
    let (blocks, marks) = (u32_at(bytes, 64) as usize, u32_at(bytes, 68) as usize);
    let marks_at = bytes.len() - marks * MARK_BYTES;
    let table_at = marks_at - blocks * ROW_BYTES;
    let mut bounds = vec![HEADER_BYTES];
    for row in 0..blocks {
        bounds.push(bounds[row] + u32_at(bytes, table_at + row * ROW_BYTES) as usize);
    }
    for _ in 0..1 + random.below(4) {
        // Mostly in the blocks, and often the low bits of a number there.
        let at = match random.below(10) {
            0 => 56 + random.below(20) as usize,
            1 => table_at + random.below((bytes.len() - table_at) as u64) as usize,
            _ => HEADER_BYTES + random.below((table_at - HEADER_BYTES) as u64) as usize,
        };
        bytes[at] = match random.below(4) {
            0 => random.next_u64() as u8,
            1 => 0xff,
            2 => bytes[at].wrapping_add(1),
            _ => bytes[at] ^ 1 << random.below(8),
        };
    }
    for row in 0..blocks {
        let crc = crc32c::crc32c(&bytes[bounds[row]..bounds[row + 1]]);
        bytes[table_at + row * ROW_BYTES + 4..][..4].copy_from_slice(&crc.to_le_bytes());
    }
    let tail = crc32c::crc32c(&bytes[table_at..]);
    bytes[76..80].copy_from_slice(&tail.to_le_bytes());
    let header = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
    header
}
