//! From records to the index: verify, sort by key, drop what the compaction dropped, load.

mod crew;
mod place;
mod sort;
mod versions;

#[cfg(test)]
mod tests;

use super::{OpenError, Source};
use crate::index::Index;
use crate::log::{Batch, Damage, SEGMENT_HEADER_BYTES, Walk};
use api::limits::REQUEST_BYTES_LIMIT;
use crew::share;
use place::{Place, Places};
use sort::Item;
use std::sync::atomic::{AtomicBool, Ordering};
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

pub(crate) use crew::Crew;

/// Records that are dealt with between two rests.
const REST_RECORDS: usize = 32;
/// Places for records that are made between two rests.
const MADE_ITEMS: usize = 1 << 16;

/// Rebuilds the index as it was after the compaction at `compact` had finished.
pub(crate) fn rebuild(sources: &[Source], compact: i64, crew: Crew) -> Result<Rebuilt, OpenError> {
    let records = sources.iter().map(|source| source.entry.records as usize).sum::<usize>();
    let threads = crew.threads(records);
    let mut items = Vec::with_capacity(records);
    while items.len() < records {
        items.resize(records.min(items.len() + MADE_ITEMS), Item::default());
        (crew.rest)();
    }
    let is_damaged = AtomicBool::new(false);
    let (mut works, mut left) = (Vec::with_capacity(sources.len()), &mut items[..]);
    for (segment, source) in sources.iter().enumerate() {
        let (own, others) = left.split_at_mut(source.entry.records as usize);
        works.push((segment as u32, source, own));
        left = others;
    }
    let mut shares: Vec<Share> = Vec::with_capacity(sources.len());
    let mut common: Option<&[u8]> = None;
    let verified = share(threads, works, |(segment, source, items)| {
        // Works are taken in their order: one that is left out is behind one that is damaged.
        if is_damaged.load(Ordering::Relaxed) {
            return Err(Damage { offset: 0, what: "a segment behind a damaged one" });
        }
        verify(segment, source, items, crew.rest).inspect_err(|_| is_damaged.store(true, Ordering::Relaxed))
    });
    for (verified, source) in verified.into_iter().zip(sources) {
        let (share, shared) = verified.map_err(OpenError::damage(&source.path))?;
        common = Some(common.map_or(shared, |common| &common[..sort::shared(common, shared)]));
        shares.push(share);
    }
    let places = Places::new(sources.iter().map(Source::bytes).collect());
    sort::sort(&mut items, common.map_or(0, <[u8]>::len), &places, threads, crew.rest);
    let parts = share(threads, parts(&items, threads), |items| {
        let mut shares: Vec<Share> = sources.iter().map(|_| Share::default()).collect();
        let part = Index::load(Versions::new(items, &places, sources, compact, &mut shares, crew.rest));
        (part, shares)
    });
    let mut loaded = Vec::with_capacity(parts.len());
    for (part, counted) in parts {
        loaded.push(part);
        for (share, counted) in shares.iter_mut().zip(counted) {
            share.live += counted.live;
            share.graves += counted.graves;
        }
    }
    Ok(Rebuilt { index: Index::of_parts(loaded), shares })
}

/// Cuts sorted records into so many parts, not within a key.
fn parts(mut items: &[Item], threads: usize) -> Vec<&[Item]> {
    let mut parts = Vec::with_capacity(threads);
    for left in (2..=threads).rev() {
        let mut cut = items.len() / left;
        while cut > 0 && cut < items.len() && items[cut - 1].may_share_key(&items[cut]) {
            cut += 1;
        }
        let (part, others) = items.split_at(cut);
        parts.push(part);
        items = others;
    }
    parts.push(items);
    parts
}

/// Checks the records of a segment, and notes where they are. Returns, besides its share, the bytes that its keys begin with.
fn verify<'a>(segment: u32, source: &'a Source, items: &mut [Item], rest: fn()) -> Result<(Share, &'a [u8]), Damage> {
    let mut share = Share::default();
    let mut walk = Walk::new(source.bytes(), SEGMENT_HEADER_BYTES);
    let mut spans = None;
    let mut common: Option<&[u8]> = None;
    let mut places = items.iter_mut();
    loop {
        let offset = walk.offset();
        let Some(stored) = walk.next() else { break };
        let stored = stored?;
        if places.len().is_multiple_of(REST_RECORDS) {
            rest();
        }
        let Some(view) = stored.view() else {
            return Err(Damage { offset: offset as u64, what: "a record whose content does not fit its header" });
        };
        if view.key.len() > REQUEST_BYTES_LIMIT {
            return Err(Damage { offset: offset as u64, what: "a record whose key is longer than any request" });
        }
        common = Some(common.map_or(view.key, |common| &common[..sort::shared(common, view.key)]));
        if let Some(item) = places.next() {
            *item = Item::new(Place { segment, offset: offset as u32 });
        }
        share.batch.add(stored.rev, offset as u64, stored.whole.len() as u64);
        let (first, _, records) = spans.unwrap_or((stored.rev, stored.rev, 0));
        spans = Some((first, stored.rev, records + 1));
    }
    let entry = &source.entry;
    if spans == Some((entry.first(), entry.last(), entry.records)) {
        return Ok((share, common.unwrap_or_default()));
    }
    Err(Damage { offset: SEGMENT_HEADER_BYTES as u64, what: "other records than the checkpoint lists" })
}
