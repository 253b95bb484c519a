//! Bytes of a segment file: a header, then records, each aligned to 8 bytes. Drawn in `docs/formats.md`.

use crate::types::Revision;

/// First bytes of every segment.
pub(crate) const SEGMENT_MAGIC: [u8; 8] = *b"CAIRNSEG";
/// Version of the segment format that this code writes, and the only one there has been.
pub(crate) const SEGMENT_FORMAT: u32 = 1;
/// Length of the segment header: magic, format, id, 12 zero bytes, CRC-32C of all before.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 32;
/// Length of a record's header: CRC-32C of all after it, length, main, sub, kind, 3 zero bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 24;
/// Records begin at multiples of this.
const ALIGN_BYTES: usize = 8;
/// The longest `KeyValue` of a record. Offsets in a segment are 32 bits wide, and a record may need a segment of its own.
pub(crate) const KV_BYTES_MAX: usize = u32::MAX as usize - 4096;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A key got a value.
    Put = 0,
    /// A key was deleted.
    Tombstone = 1,
}

/// A record's header without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Length of the `KeyValue` bytes after the header.
    pub(crate) len: u32,
    /// When the change was made.
    pub(crate) rev: Revision,
    /// What the change was.
    pub(crate) kind: Kind,
}

/// Bytes that a record with `len` bytes of `KeyValue` takes in the file: header and padding included.
pub fn record_bytes(len: usize) -> usize {
    (RECORD_HEADER_BYTES + len).next_multiple_of(ALIGN_BYTES)
}

/// Name of a segment file.
pub(crate) fn segment_name(id: u32) -> String {
    format!("{id:016x}.seg")
}

/// Name of the key file of a segment. Versions that know no key files leave it alone.
pub(crate) fn key_file_name(id: u32) -> String {
    format!("{id:016x}.keys")
}

/// The id of the segment in a key file's name; `None` for any other name.
pub(crate) fn parse_key_file_name(name: &str) -> Option<u32> {
    let id = u32::from_str_radix(name.strip_suffix(".keys")?, 16).ok()?;
    (key_file_name(id) == name).then_some(id)
}

/// What follows a segment's or a checkpoint's name in that of a file that is no data: one that another member sends, or one that is given back
/// (`disk::Reaper`). A start of this version, and of those before, removes it.
pub(crate) const INTAKE_SUFFIX: &str = ".intake";

/// Name of the file of a checkpoint that is no data, by a number of [`Segments::new_id`](super::Segments::new_id).
pub(crate) fn intake_checkpoint_name(number: u32) -> String {
    format!("{number:016x}.ckpt{INTAKE_SUFFIX}")
}

/// The number in the name of a file that is no data, if it is one that could be given to another such file.
pub(crate) fn parse_intake_name(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(INTAKE_SUFFIX)?;
    let digits = stem.strip_suffix(".seg").or_else(|| stem.strip_suffix(".ckpt"))?;
    u32::from_str_radix(digits, 16).ok().filter(|number| *number < u32::MAX / 2 - 1)
}

/// The id in a segment file's name; `None` for any other name.
pub fn parse_segment_name(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".seg")?;
    let id = u32::from_str_radix(digits, 16).ok()?;
    (segment_name(id) == name).then_some(id)
}

/// The header of segment `id`.
pub(crate) fn segment_header(id: u32) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut header = [0; SEGMENT_HEADER_BYTES];
    header[..8].copy_from_slice(&SEGMENT_MAGIC);
    header[8..12].copy_from_slice(&SEGMENT_FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&id.to_le_bytes());
    let crc = crc32c::crc32c(&header[..28]);
    header[28..].copy_from_slice(&crc.to_le_bytes());
    header
}

impl RecordHeader {
    /// The header with room for the checksum, which [`seal_record`] fills in once the whole record is there.
    pub(crate) fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut header = [0; RECORD_HEADER_BYTES];
        header[4..8].copy_from_slice(&self.len.to_le_bytes());
        header[8..16].copy_from_slice(&self.rev.main.to_le_bytes());
        header[16..20].copy_from_slice(&self.rev.sub.to_le_bytes());
        header[20] = self.kind as u8;
        header
    }

    /// Reads a header; `None` when the kind is unknown. The checksum is not looked at.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Option<RecordHeader> {
        let kind = match bytes[20] {
            0 => Kind::Put,
            1 => Kind::Tombstone,
            _ => return None,
        };
        let main = i64::from(u32_at(bytes, 12)) << 32 | i64::from(u32_at(bytes, 8));
        Some(RecordHeader { len: u32_at(bytes, 4), rev: Revision { main, sub: u32_at(bytes, 16) }, kind })
    }
}

/// The header of a whole record with these bytes of `KeyValue`, its checksum included.
pub(crate) fn record_header(rev: Revision, is_tombstone: bool, bytes: &[u8]) -> [u8; RECORD_HEADER_BYTES] {
    let Ok(len) = u32::try_from(bytes.len()) else { panic!("a record of {} bytes", bytes.len()) };
    let kind = if is_tombstone { Kind::Tombstone } else { Kind::Put };
    let mut header = RecordHeader { len, rev, kind }.encode();
    let padding = record_bytes(bytes.len()) - RECORD_HEADER_BYTES - bytes.len();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[4..]), bytes);
    let crc = crc32c::crc32c_append(crc, &[0; ALIGN_BYTES][..padding]);
    header[..4].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Writes the checksum of a whole record (header, `KeyValue`, padding) into its first four bytes.
pub(crate) fn seal_record(record: &mut [u8]) {
    let crc = crc32c::crc32c(&record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Whether a whole record's checksum is that of its bytes.
pub(crate) fn is_sealed_record(record: &[u8]) -> bool {
    crc32c::crc32c(&record[4..]) == u32_at(record, 0)
}

/// The little-endian number at `offset`; the caller has checked the length.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back() {
        let header =
            RecordHeader { len: 7, rev: Revision { main: 0x0123_4567_89ab_cdef, sub: 3 }, kind: Kind::Tombstone };
        assert_eq!(RecordHeader::decode(&header.encode()), Some(header));
        assert_eq!(record_bytes(1), 32);
        assert_eq!(record_bytes(8), 32);
        assert_eq!(record_bytes(9), 40);
    }

    #[test]
    fn headers_of_whole_records() {
        for (len, is_tombstone) in [(0, false), (1, true), (7, false), (8, true), (1_000, false)] {
            let (bytes, rev) = (vec![7; len], Revision { main: 9, sub: 2 });
            let kind = if is_tombstone { Kind::Tombstone } else { Kind::Put };
            let mut record = RecordHeader { len: len as u32, rev, kind }.encode().to_vec();
            record.extend_from_slice(&bytes);
            record.resize(record_bytes(len), 0);
            seal_record(&mut record);
            assert_eq!(record_header(rev, is_tombstone, &bytes), record[..RECORD_HEADER_BYTES]);
        }
    }

    #[test]
    fn only_our_own_names_are_segments() {
        assert_eq!(parse_segment_name(&segment_name(0xabc)), Some(0xabc));
        assert_eq!(parse_key_file_name(&key_file_name(0xabc)), Some(0xabc));
        assert_eq!(parse_key_file_name("+000000000000001.keys"), None);
        for name in ["abc.seg", "000000000000ABC0.seg", "0000000000000abc.ckpt", "+000000000000001.seg", "lost+found"] {
            assert_eq!(parse_segment_name(name), None, "{name}");
        }
    }
}
