//! Bytes of a key file. Drawn in `docs/formats.md`.

use crate::log::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentEntry, record_bytes};
use crate::types::{Loc, Revision, Version};
use api::varint;

const MAGIC: [u8; 8] = *b"CAIRNKEY";
const FORMAT: u32 = 1;
/// Length of the header.
pub(super) const HEADER_BYTES: usize = 96;
/// A block ends with the record that makes it this long.
pub(super) const BLOCK_BYTES: usize = 16 << 10;
/// A row of the table of blocks: length, checksum, records.
pub(super) const ROW_BYTES: usize = 12;
/// A mark of the segment: main revision, sub revision, offset.
pub(super) const MARK_BYTES: usize = 16;
/// Records begin at multiples of this.
const ALIGN_BYTES: u64 = 8;
/// So often no key is written.
const VERSION_MAX: i64 = 1 << 62;

/// The key was deleted.
const TOMBSTONE: u8 = 1;
/// The first put of the key's life: its create revision is its own, and its version is 1.
const FIRST: u8 = 2;
/// It hangs on a lease.
const LEASED: u8 = 4;
/// Its sub revision is not 0.
const SUB: u8 = 8;

/// Why a key file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit(pub(crate) &'static str);

/// The header of a key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The segment as a checkpoint lists it once it is sealed.
    pub(super) entry: SegmentEntry,
    /// Bytes of all blocks.
    pub(super) block_bytes: u64,
    pub(super) blocks: u32,
    pub(super) marks: u32,
    /// Bytes that all keys begin with.
    pub(super) common: u32,
    /// Checksum of the table and the marks.
    pub(super) tail_crc: u32,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let SegmentEntry { id, length, records, first_main, first_sub, last_main, last_sub, .. } = self.entry;
        let mut bytes = [0; HEADER_BYTES];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&MAGIC);
        [FORMAT, id].iter().for_each(|number| put(&number.to_le_bytes()));
        [length, records].iter().for_each(|number| put(&number.to_le_bytes()));
        [first_main, last_main].iter().for_each(|number| put(&number.to_le_bytes()));
        [first_sub, last_sub].iter().for_each(|number| put(&number.to_le_bytes()));
        put(&self.block_bytes.to_le_bytes());
        [self.blocks, self.marks, self.common, self.tail_crc].iter().for_each(|number| put(&number.to_le_bytes()));
        let crc = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of the key file of `entry`, to whose checksum the checkpoint refers as `crc`.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES], entry: &SegmentEntry, crc: u32) -> Result<Header, Misfit> {
        let number = |at| u32_at(bytes, at);
        let header = Header {
            entry: SegmentEntry { body_crc: None, keys_crc: None, ..*entry },
            block_bytes: u64::from(number(60)) << 32 | u64::from(number(56)),
            blocks: number(64),
            marks: number(68),
            common: number(72),
            tail_crc: number(76),
        };
        if bytes[..8] == MAGIC && number(8) != FORMAT {
            return Err(Misfit("it has a format that this version does not know"));
        }
        if header.encode() != *bytes {
            return Err(Misfit("its header is damaged, or that of another segment"));
        }
        if number(HEADER_BYTES - 4) != crc {
            return Err(Misfit("it is not the one that the checkpoint lists"));
        }
        Ok(header)
    }
}

/// What a key file says about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    /// Bytes that the key has in common with the key before it in the block.
    pub(super) shared: usize,
    /// The rest of the key.
    pub(super) suffix: &'a [u8],
    /// Its place has the position of the segment in place of its id.
    pub(super) version: Version,
    pub(super) lease: i64,
}

impl<'a> Item<'a> {
    pub(super) fn encode(&self, entry: &SegmentEntry, out: &mut Vec<u8>) {
        let Version { rev, create, version, loc } = self.version;
        let is_first = version == 1 && create == rev.main;
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.version.is_tombstone(), TOMBSTONE)
            | flag(is_first, FIRST)
            | flag(self.lease != 0, LEASED)
            | flag(rev.sub != 0, SUB);
        out.push(flags);
        let mut put = |number: u64| varint::put(out, number);
        put(self.shared as u64);
        put(self.suffix.len() as u64);
        put((rev.main - entry.first_main) as u64);
        put((u64::from(loc.offset) - RECORD_HEADER_BYTES as u64) / ALIGN_BYTES);
        put(loc.len.into());
        if rev.sub != 0 {
            put(rev.sub.into());
        }
        if version != 0 && !is_first {
            put((rev.main - create) as u64);
            put(version as u64);
        }
        if self.lease != 0 {
            put(self.lease as u64);
        }
        out.extend_from_slice(self.suffix);
    }

    /// Takes an item off `bytes`. `None` unless it can be a record of the segment, whose position in the log is `segment`.
    pub(super) fn take(bytes: &mut &'a [u8], entry: &SegmentEntry, segment: u32) -> Option<Item<'a>> {
        let (&flags, rest) = bytes.split_first()?;
        *bytes = rest;
        let mut number = || varint::take(bytes);
        let shared = usize::try_from(number()?).ok()?;
        let suffix_bytes = usize::try_from(number()?).ok()?;
        let main = entry.first_main.checked_add(i64::try_from(number()?).ok()?)?;
        let offset = number()?.checked_mul(ALIGN_BYTES)?;
        let len = u32::try_from(number()?).ok()?;
        let sub = if flags & SUB == 0 { 0 } else { u32::try_from(number()?).ok()? };
        let (create, version) = match flags & (TOMBSTONE | FIRST) {
            TOMBSTONE => (0, 0),
            FIRST => (main, 1),
            0 => (main.checked_sub(i64::try_from(number()?).ok()?)?, i64::try_from(number()?).ok()?),
            _ => return None,
        };
        let lease = if flags & LEASED == 0 { 0 } else { number()? as i64 };
        let suffix;
        (suffix, *bytes) = bytes.split_at_checked(suffix_bytes)?;
        let rev = Revision { main, sub };
        let is_within = entry.first() <= rev && rev <= entry.last() && sub < u32::MAX;
        let is_put = flags & TOMBSTONE == 0;
        let is_possible = if is_put { create > 0 && version > 0 && version <= VERSION_MAX } else { lease == 0 };
        let is_in_place = offset >= SEGMENT_HEADER_BYTES as u64
            && len > 0
            && offset.checked_add(record_bytes(len as usize) as u64).is_some_and(|end| end <= entry.length);
        if !(is_within && is_possible && is_in_place) || flags > TOMBSTONE | FIRST | LEASED | SUB {
            return None;
        }
        let offset = u32::try_from(offset).ok()?.checked_add(RECORD_HEADER_BYTES as u32)?;
        Some(Item {
            shared,
            suffix,
            version: Version { rev, create, version, loc: Loc { segment, offset, len } },
            lease,
        })
    }
}

/// The little-endian number at `at`; the caller has checked the length.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
