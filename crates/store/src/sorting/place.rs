//! Reading verified records by their place, in any order.

use crate::log::{KvView, RECORD_HEADER_BYTES, RecordHeader};
use crate::types::{Loc, Version};

/// What the processor loads at once.
const CACHE_LINE_BYTES: usize = 64;

/// A record: which segment of the checkpoint's list, and the offset in it. Ascends with the revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
}

/// A record read back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoded<'a> {
    pub(crate) key: &'a [u8],
    /// With the position of the segment in place of its id.
    pub(crate) version: Version,
    /// The lease it hangs on, 0 for none.
    pub(crate) lease: i64,
}

/// Segments whose records were all verified.
pub(crate) struct Places<'a> {
    segments: Vec<&'a [u8]>,
}

impl<'a> Places<'a> {
    pub(crate) fn new(segments: Vec<&'a [u8]>) -> Places<'a> {
        Places { segments }
    }

    /// The key of a record.
    pub(crate) fn key(&self, place: Place) -> &'a [u8] {
        // The key is the first field: its tag, its length, its bytes.
        let kv = &self.segments[place.segment as usize][place.offset as usize + RECORD_HEADER_BYTES..];
        if kv[1] < 0x80 { &kv[2..2 + usize::from(kv[1])] } else { self.decode(place).key }
    }

    /// Brings the beginnings of records into the cache. One after the other they would each wait for memory; here all the waiting
    /// happens at once.
    pub(crate) fn touch(&self, places: impl Iterator<Item = Place>) {
        let touched = places.fold(0, |sum, place| {
            let segment = self.segments[place.segment as usize];
            let at = place.offset as usize;
            sum ^ segment[at] ^ segment.get(at + CACHE_LINE_BYTES).unwrap_or(&0)
        });
        std::hint::black_box(touched);
    }

    /// A whole record.
    pub(crate) fn decode(&self, place: Place) -> Decoded<'a> {
        let record = &self.segments[place.segment as usize][place.offset as usize..];
        let decoded = record.split_first_chunk::<RECORD_HEADER_BYTES>().and_then(|(header, rest)| {
            let header = RecordHeader::decode(header)?;
            Some((header, KvView::parse(rest.get(..header.len as usize)?)?))
        });
        let Some((header, view)) = decoded else { panic!("a record that was verified does not parse") };
        let offset = place.offset + RECORD_HEADER_BYTES as u32;
        let loc = Loc { segment: place.segment, offset, len: header.len };
        let version = Version { rev: header.rev, create: view.create, version: view.version, loc };
        Decoded { key: view.key, version, lease: view.lease }
    }
}
