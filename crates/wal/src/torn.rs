//! Tells a torn batch from damage.
//!
//! At most one batch is unsynced, and the file holds zeros after it. If the power goes while it is written, the disk may keep any
//! of its 512-byte sectors. A lost sector reads as before: zeros, from the end of the previous batch on. So a break is a torn tail only
//! if no batch begins after it, and the batch has more sectors of zeros than it says it was written with. Every other break is
//! damage, and is refused. `docs/design/torn-tail.md` has the whole rule.

use crate::batch::{START_BYTES_MAX, Start, read_start};
use crate::frame::{self, ALIGN_BYTES, Kind, WORD_BYTES};

/// The unit that a disk writes as a whole.
const SECTOR_BYTES: usize = 512;

/// True when the batch that should begin at `offset` is torn: its Crc record cannot be read.
pub(crate) fn is_torn_start(bytes: &[u8], sequence: u64, offset: usize) -> bool {
    let into_next = SECTOR_BYTES.saturating_sub(offset % SECTOR_BYTES);
    let first_lost = is_zero(range(bytes, offset, into_next));
    // The record may lie across two sectors, and the second one be lost.
    let second_lost =
        into_next < START_BYTES_MAX && is_zero(range(bytes, offset.saturating_add(into_next), SECTOR_BYTES));
    // Or across the end of the file, whose longer length was lost.
    let length_lost = frame::reaches_beyond(bytes, offset, START_BYTES_MAX);
    (first_lost || second_lost || length_lost) && !batch_begins_behind(bytes, sequence, offset)
}

/// True when the batch in `bytes[batch_offset..batch_end]` is torn, given that one of its records cannot be read. `start` is its intact
/// Crc record.
pub(crate) fn is_torn_inside(bytes: &[u8], start: &Start, batch_offset: usize, batch_end: usize) -> bool {
    let Some((before, behind)) = bytes.split_at_checked(batch_end) else {
        // The longer length was lost with the sectors.
        return true;
    };
    let batch = before.get(batch_offset..).unwrap_or_default();
    // Zeros that were written are no sign of a loss.
    is_zero(behind) && zero_sectors(batch, batch_offset as u64) > start.zero_sectors
}

/// Counts the sectors of the file that begin behind the first byte of the batch at `offset` and hold nothing but zeros. Bytes after the
/// batch count as zeros. One that begins within the Crc record has the length word of the next record, too, so it is never all zeros as
/// it is written; but its part of the Crc record may be, and then that record is intact where the sector is lost.
pub(crate) fn zero_sectors(batch: &[u8], offset: u64) -> u32 {
    let first = SECTOR_BYTES.saturating_sub(offset as usize % SECTOR_BYTES);
    let sectors = range(batch, first, batch.len()).chunks(SECTOR_BYTES);
    // A batch is far smaller than 2 TiB.
    sectors.filter(|sector| is_zero(sector)).count() as u32
}

/// Looks for a record that can only be the beginning of a batch.
pub(crate) fn batch_begins_behind(bytes: &[u8], sequence: u64, offset: usize) -> bool {
    let mut offset = offset.saturating_add(ALIGN_BYTES);
    while let Some(word) = bytes.get(offset..).and_then(|rest| rest.first_chunk::<WORD_BYTES>()) {
        if *word != [0; WORD_BYTES]
            && let Ok(frame) = frame::read(range(bytes, 0, offset.saturating_add(START_BYTES_MAX)), offset)
            && frame.kind == Kind::Crc
            && read_start(sequence, offset as u64, frame.crc, frame.data).is_some()
        {
            return true;
        }
        offset = offset.saturating_add(ALIGN_BYTES);
    }
    false
}

/// `len` bytes from `start` on, or fewer at the end of the file.
fn range(bytes: &[u8], start: usize, len: usize) -> &[u8] {
    let rest = bytes.get(start..).unwrap_or_default();
    rest.get(..len).unwrap_or(rest)
}

/// True when there is nothing but zeros.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    let (chunks, rest) = bytes.as_chunks();
    chunks.iter().all(|chunk| *chunk == ZEROS) && rest.iter().all(|byte| *byte == 0)
}

/// Bytes up to and including the last one that is not zero.
pub(crate) fn written_len(bytes: &[u8]) -> usize {
    let mut end = bytes.len();
    for chunk in bytes.rchunks(4096) {
        if !is_zero(chunk) {
            return end.saturating_sub(chunk.iter().rev().take_while(|byte| **byte == 0).count());
        }
        end = end.saturating_sub(chunk.len());
    }
    0
}
