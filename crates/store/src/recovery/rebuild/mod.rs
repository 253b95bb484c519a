//! From records to the index: verify, sort by key, drop what the compaction dropped, load.

mod place;
mod sort;
mod versions;

#[cfg(test)]
mod tests;

use super::{OpenError, Source};
use crate::index::Index;
use crate::log::{Batch, Damage, SEGMENT_HEADER_BYTES, Walk};
use api::limits::REQUEST_BYTES_LIMIT;
use place::{Place, Places};
use sort::Item;
use versions::Versions;

/// The index, and what belongs to each segment of it.
pub(crate) struct Rebuilt {
    pub(crate) index: Index,
    pub(crate) shares: Vec<Share>,
}

/// What one segment holds.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Its records, for the segment's own sparse index.
    pub(crate) batch: Batch,
    /// Bytes of the records that the index refers to.
    pub(crate) live: u64,
    /// Bytes of tombstones that the index does not refer to.
    pub(crate) graves: u64,
}

/// Records that are dealt with between two rests.
const REST_RECORDS: usize = 32;

/// Rebuilds the index as it was after the compaction at `compact` had finished. Calls `rest` every now and then.
pub(crate) fn rebuild(sources: &[Source], compact: i64, rest: fn()) -> Result<Rebuilt, OpenError> {
    let mut shares: Vec<Share> = Vec::with_capacity(sources.len());
    let records = sources.iter().map(|source| source.entry.records).sum::<u64>();
    let mut verified = Verified { items: Vec::with_capacity(records as usize), first: None };
    for (segment, source) in sources.iter().enumerate() {
        shares.push(verified.add(segment as u32, source, rest).map_err(OpenError::damage(&source.path))?);
    }
    let Verified { mut items, first } = verified;
    let places = Places::new(sources.iter().map(Source::bytes).collect());
    sort::sort(&mut items, first.map_or(0, |(_, shared)| shared), &places, rest);
    let index = Index::build(Versions::new(&items, &places, sources, compact, &mut shares, rest));
    Ok(Rebuilt { index, shares })
}

/// Records that were found to be what was written.
struct Verified<'a> {
    items: Vec<Item>,
    /// The first key, and how many of its bytes all keys begin with.
    first: Option<(&'a [u8], usize)>,
}

impl<'a> Verified<'a> {
    fn add(&mut self, segment: u32, source: &'a Source, rest: fn()) -> Result<Share, Damage> {
        let mut share = Share::default();
        let mut walk = Walk::new(source.bytes(), SEGMENT_HEADER_BYTES);
        let mut spans = None;
        loop {
            let offset = walk.offset();
            let Some(stored) = walk.next() else { break };
            let stored = stored?;
            if self.items.len().is_multiple_of(REST_RECORDS) {
                rest();
            }
            let Some(view) = stored.view() else {
                return Err(Damage { offset: offset as u64, what: "a record whose content does not fit its header" });
            };
            if view.key.len() > REQUEST_BYTES_LIMIT {
                return Err(Damage { offset: offset as u64, what: "a record whose key is longer than any request" });
            }
            match &mut self.first {
                Some((first, shared)) => *shared = sort::shared(&first[..*shared], view.key),
                None => self.first = Some((view.key, view.key.len())),
            }
            self.items.push(Item::new(Place { segment, offset: offset as u32 }));
            share.batch.add(stored.rev, offset as u64, stored.whole.len() as u64);
            let (first, _, records) = spans.unwrap_or((stored.rev, stored.rev, 0));
            spans = Some((first, stored.rev, records + 1));
        }
        let entry = &source.entry;
        if spans == Some((entry.first(), entry.last(), entry.records)) {
            return Ok(share);
        }
        Err(Damage { offset: SEGMENT_HEADER_BYTES as u64, what: "other records than the checkpoint lists" })
    }
}
