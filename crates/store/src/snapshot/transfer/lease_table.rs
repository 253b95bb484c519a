//! The leases of a snapshot, as bytes that are fetched like those of a segment: there may be millions of them, too many for one message.
//!
//! A record of 24 bytes for each lease, all numbers little endian: id, granted seconds, seconds left at the last lease checkpoint.

use super::IntakeError;
use crate::state::{Lease, LeaseCapture, Leases};
use crate::upkeep::checkpoint::LeaseTable;

/// The number under which the table is asked for. No segment has it.
pub(super) const NUMBER: u32 = u32::MAX;
/// Bytes of one lease.
const RECORD_BYTES: usize = 24;

/// Bytes of a table.
pub(super) fn length(table: &LeaseTable) -> u64 {
    table.leases.saturating_mul(RECORD_BYTES as u64)
}

/// Describes the table of these leases.
pub(super) fn describe(leases: &LeaseCapture, rest: fn()) -> LeaseTable {
    let (mut crc, mut count) = (0, 0u64);
    for lease in leases.iter() {
        crc = crc32c::crc32c_append(crc, &record(&lease));
        count = count.saturating_add(1);
        if count.is_multiple_of(4096) {
            rest();
        }
    }
    LeaseTable { leases: count, crc }
}

/// Up to `len` bytes of the table, from `offset` on.
pub(super) fn read(leases: &LeaseCapture, offset: u64, len: usize) -> Vec<u8> {
    let (first, within) = (offset / RECORD_BYTES as u64, (offset % RECORD_BYTES as u64) as usize);
    let mut bytes = Vec::with_capacity(len);
    for lease in leases.iter_from(first) {
        let skip = if bytes.is_empty() { within } else { 0 };
        let record = record(&lease);
        let rest = record.get(skip..).unwrap_or_default();
        let take = rest.len().min(len.saturating_sub(bytes.len()));
        bytes.extend_from_slice(rest.get(..take).unwrap_or_default());
        if bytes.len() >= len {
            break;
        }
    }
    bytes
}

fn record(lease: &Lease) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    for (place, number) in record.chunks_exact_mut(8).zip([lease.id, lease.ttl, lease.remaining_ttl]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    record
}

/// A table that is being received. Takes no more memory than the leases that it is said to have.
pub(super) struct Incoming {
    table: LeaseTable,
    pub(super) written: u64,
    crc: u32,
    /// What came of the next record.
    begun: Vec<u8>,
    leases: Leases,
}

impl Incoming {
    pub(super) fn new(table: LeaseTable) -> Incoming {
        Incoming { table, written: 0, crc: 0, begun: Vec::with_capacity(RECORD_BYTES), leases: Leases::new([]) }
    }

    pub(super) fn total(&self) -> u64 {
        length(&self.table)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.written == self.total()
    }

    /// Takes the next bytes. When they are the last ones, the whole is compared with the sender's checksum.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), IntakeError> {
        let (length, total) = (bytes.len() as u64, self.total());
        let end = offset.checked_add(length).filter(|end| offset == self.written && *end <= total);
        let Some(end) = end else {
            return Err(IntakeError::Misplaced { segment: NUMBER, offset, length, expected: self.written, total });
        };
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.len().min(RECORD_BYTES.saturating_sub(self.begun.len())));
            self.begun.extend_from_slice(part);
            rest = behind;
            if let [i0, i1, i2, i3, i4, i5, i6, i7, t0, t1, t2, t3, t4, t5, t6, t7, r0, r1, r2, r3, r4, r5, r6, r7] =
                *self.begun
            {
                let lease = Lease {
                    id: i64::from_le_bytes([i0, i1, i2, i3, i4, i5, i6, i7]),
                    ttl: i64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
                    remaining_ttl: i64::from_le_bytes([r0, r1, r2, r3, r4, r5, r6, r7]),
                };
                self.begun.clear();
                if lease.id == 0 || !self.leases.restore(lease) {
                    return Err(damaged(offset, "a lease that cannot be, or that was there before"));
                }
            }
        }
        self.written = end;
        if self.is_whole() && self.crc != self.table.crc {
            return Err(damaged(0, "its bytes do not have the sender's checksum"));
        }
        Ok(())
    }

    /// All of them, once it is whole.
    pub(super) fn finish(self) -> Leases {
        self.leases
    }
}

fn damaged(offset: u64, what: &str) -> IntakeError {
    IntakeError::Damaged { segment: NUMBER, offset, what: what.into() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn leases(count: i64) -> Leases {
        Leases::new((1..=count).map(|id| Lease { id: id * 7919, ttl: id, remaining_ttl: -id }))
    }

    #[test]
    fn bytes_are_the_same_wherever_a_read_begins() {
        let capture = leases(1000).capture();
        let table = describe(&capture, || {});
        let all = read(&capture, 0, usize::MAX >> 40);
        assert_eq!((all.len() as u64, crc32c::crc32c(&all)), (length(&table), table.crc));
        for (offset, len) in [(0, 1), (1, 23), (23, 2), (24, 24), (4711, 3001), (all.len() - 1, 10), (all.len(), 10)] {
            let end = (offset + len).min(all.len());
            assert_eq!(read(&capture, offset as u64, len), all[offset..end], "{len} bytes from {offset}");
        }
    }

    #[test]
    fn a_table_arrives_in_pieces_of_any_size() {
        let capture = leases(500).capture();
        let table = describe(&capture, || {});
        for size in [1, 5, 24, 100, 1 << 20] {
            let mut incoming = Incoming::new(table);
            while !incoming.is_whole() {
                let bytes = read(&capture, incoming.written, size);
                incoming.write(incoming.written, &bytes).unwrap();
            }
            let (mut came, mut sent) = (incoming.finish().list(), leases(500).list());
            came.sort_unstable_by_key(|lease| lease.id);
            sent.sort_unstable_by_key(|lease| lease.id);
            assert_eq!(came, sent);
        }
    }

    #[test]
    fn what_is_not_what_was_announced_is_refused() {
        let capture = leases(3).capture();
        let table = describe(&capture, || {});
        let bytes = read(&capture, 0, 72);
        let refused = |offset, bytes: &[u8], table| Incoming::new(table).write(offset, bytes).unwrap_err().to_string();
        assert!(refused(0, &[&bytes[..], &[0]].concat(), table).contains("where byte 0 of 72 was due"));
        assert!(refused(1, &bytes[..5], table).contains("where byte 0"));
        assert!(refused(u64::MAX, &bytes[..5], table).contains("where byte 0"));
        assert!(refused(0, &[&bytes[..24], &bytes[..48]].concat(), table).contains("was there before"));
        assert!(refused(0, &[0; 24], table).contains("cannot be"));
        let mut flipped = bytes;
        flipped[12] ^= 1;
        assert!(refused(0, &flipped, table).contains("checksum"));
    }
}
