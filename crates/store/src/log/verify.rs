//! Walking over the bytes of a segment with every check: what recovery, rewriting and the fuzzer use.

use super::KvView;
use super::layout::{
    Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_FORMAT, SEGMENT_HEADER_BYTES, SEGMENT_MAGIC, is_sealed_record,
    record_bytes, segment_header, u32_at,
};
use crate::types::Revision;

/// So often no key is written.
const VERSION_MAX: i64 = 1 << 62;

/// Bytes that are not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where in the file the damaged part begins.
    pub offset: u64,
    /// What is wrong with it.
    pub what: &'static str,
}

/// A record as it is stored, its checksum verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    pub(crate) rev: Revision,
    pub(crate) tombstone: bool,
    /// Offset of the `KeyValue` bytes in the segment.
    pub(crate) offset: usize,
    /// The `KeyValue` bytes.
    pub(crate) bytes: &'a [u8],
    /// The whole record with header and padding.
    pub(crate) whole: &'a [u8],
}

/// Checks a segment's header and returns the id in it.
pub(crate) fn check_header(bytes: &[u8]) -> Result<u32, Damage> {
    let Some(header) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else {
        return Err(Damage { offset: 0, what: "shorter than a segment header" });
    };
    if header[..8] != SEGMENT_MAGIC {
        return Err(Damage { offset: 0, what: "not a segment" });
    }
    let id = u32_at(header, 12);
    if u32_at(header, 8) != SEGMENT_FORMAT {
        return Err(Damage { offset: 8, what: "a segment format that this version does not know" });
    }
    if *header != segment_header(id) {
        return Err(Damage { offset: 12, what: "the checksum of the segment header is wrong" });
    }
    Ok(id)
}

/// The records of a segment in order. Ends after the last one, or with the first damage.
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    offset: usize,
    last: Revision,
}

impl<'a> Walk<'a> {
    /// Walks over `bytes`, a segment up to the length that is known to hold records, starting at the record at `offset`.
    pub(crate) fn new(bytes: &'a [u8], offset: usize) -> Self {
        Walk { bytes, offset, last: Revision::default() }
    }

    /// Goes on behind the record of the revision `last`.
    pub(crate) fn after(bytes: &'a [u8], offset: usize, last: Revision) -> Self {
        Walk { bytes, offset, last }
    }

    /// Where the next record begins.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    fn step(&self) -> Result<Stored<'a>, &'static str> {
        let rest = &self.bytes[self.offset..];
        let Some(header) = rest.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Err("ends inside of a record's header");
        };
        let len = u32_at(header, 4) as usize;
        let Some(whole) = rest.get(..record_bytes(len)) else {
            return Err("a record is longer than what is left of the segment");
        };
        if !is_sealed_record(whole) {
            return Err("the checksum of a record is wrong");
        }
        let Some(header) = RecordHeader::decode(header) else {
            return Err("a record of an unknown kind");
        };
        if header.rev <= self.last {
            return Err("a record out of revision order");
        }
        let (rev, tombstone) = (header.rev, header.kind == Kind::Tombstone);
        let bytes = &whole[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + len];
        Ok(Stored { rev, tombstone, offset: self.offset + RECORD_HEADER_BYTES, bytes, whole })
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<Stored<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.bytes.len() {
            return None;
        }
        match self.step() {
            Ok(stored) => {
                self.offset += stored.whole.len();
                self.last = stored.rev;
                Some(Ok(stored))
            }
            Err(what) => {
                let offset = self.offset as u64;
                self.offset = self.bytes.len();
                Some(Err(Damage { offset, what }))
            }
        }
    }
}

impl<'a> Stored<'a> {
    /// Takes the `KeyValue` apart; `None` when it does not belong to this record's header.
    pub(crate) fn view(&self) -> Option<KvView<'a>> {
        let view = KvView::parse(self.bytes)?;
        let fits = if self.tombstone {
            view == KvView { key: view.key, ..KvView::default() }
        } else {
            view.modified == self.rev.main && view.create <= view.modified && view.create > 0 && view.version > 0
        };
        // Both are counted on from here.
        let is_possible = self.rev.sub < u32::MAX && view.version <= VERSION_MAX;
        (fits && is_possible).then_some(view)
    }
}

/// Checks a whole segment file, all of whose bytes must be records. Returns how many there are.
pub fn scan_segment(bytes: &[u8]) -> Result<u64, Damage> {
    check_header(bytes)?;
    let mut records = 0;
    let mut walk = Walk::new(bytes, SEGMENT_HEADER_BYTES);
    loop {
        let offset = walk.offset() as u64;
        match walk.next() {
            None => return Ok(records),
            Some(stored) if stored?.view().is_none() => {
                return Err(Damage { offset, what: "a record whose content does not fit its header" });
            }
            Some(_) => records += 1,
        }
    }
}
