//! From key files and records to the index: verify, sort by key, merge, drop what the compaction dropped, load.

mod leased;
mod merge;
mod versions;

#[cfg(test)]
mod tests;

use super::{OpenError, Source};
use crate::index::Index;
use crate::keyfile::KeyFile;
use crate::log::{Batch, Damage, SEGMENT_HEADER_BYTES, Walk};
use crate::sorting::{Crew, Item, Place, Places, share, shared, sort};
use api::limits::REQUEST_BYTES_LIMIT;
use merge::{Refused, Runs};
use std::sync::atomic::{AtomicU32, Ordering};
use versions::Loaded;

pub(crate) use leased::LeasedKeys;

/// The index, and what belongs to each segment of it.
pub(crate) struct Rebuilt {
    pub(crate) index: Index,
    pub(crate) shares: Vec<Share>,
    /// The keys that hang on leases.
    pub(crate) leased: LeasedKeys,
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
    /// Records that its key file has told.
    merged: u64,
}

/// Records that are dealt with between two rests.
const REST_RECORDS: usize = 32;
/// Places for records that are made between two rests.
const MADE_ITEMS: usize = 1 << 16;
/// Parts of the index that each thread loads.
const SPANS_PER_THREAD: usize = 4;

/// Why a rebuild was given up.
enum Failed {
    /// It cannot be done.
    Open(OpenError),
    /// It is to be done without a key file.
    Keys(Refused),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Failed {
        Failed::Keys(refused)
    }
}

/// Rebuilds the index as it was after the compaction at `compact` had finished. A key file that turns out not to be what it should be is dropped, and
/// its segment scanned.
pub(crate) fn rebuild(sources: &mut [Source], compact: i64, crew: Crew) -> Result<Rebuilt, OpenError> {
    verify_keys(sources, crew);
    loop {
        match attempt(sources, compact, crew) {
            Ok(rebuilt) => return Ok(rebuilt),
            Err(Failed::Open(error)) => return Err(error),
            Err(Failed::Keys(Refused { source, misfit })) => sources[source].refuse_keys(misfit),
        }
    }
}

/// Compares all checksums of the key files, and drops those that are damaged.
fn verify_keys(sources: &mut [Source], crew: Crew) {
    let records = sources.iter().filter(|source| source.keys.is_some()).map(|source| source.entry.records as usize);
    let threads = crew.threads(records.sum());
    let works = sources.iter_mut().filter_map(|source| source.keys.as_mut()).collect();
    let verified = share(threads, works, |keys: &mut KeyFile| keys.verify(crew.rest));
    let with_keys = sources.iter_mut().filter(|source| source.keys.is_some());
    for (source, verified) in with_keys.zip(verified) {
        if let Err(misfit) = verified {
            source.refuse_keys(misfit);
        }
    }
}

fn attempt(sources: &[Source], compact: i64, crew: Crew) -> Result<Rebuilt, Failed> {
    let count = |source: &Source| source.entry.records as usize;
    let threads = crew.threads(sources.iter().map(count).sum());
    let records = sources.iter().filter(|source| source.keys.is_none()).map(count).sum::<usize>();
    let mut items = Vec::with_capacity(records);
    while items.len() < records {
        items.resize(records.min(items.len() + MADE_ITEMS), Item::default());
        (crew.rest)();
    }
    let first_damaged = AtomicU32::new(u32::MAX);
    let (mut works, mut left) = (Vec::with_capacity(sources.len()), &mut items[..]);
    for (segment, source) in sources.iter().enumerate() {
        let (own, others) = left.split_at_mut(if source.keys.is_some() { 0 } else { count(source) });
        works.push((segment as u32, source, own));
        left = others;
    }
    let mut shares: Vec<Share> = Vec::with_capacity(sources.len());
    let mut scanned: Option<&[u8]> = None;
    let verified = share(threads, works, |(segment, source, items)| {
        if let Some(keys) = &source.keys {
            return Ok((Share { batch: keys.batch(), ..Share::default() }, None));
        }
        // What is in front of a damaged one is looked at still: it may be damaged too, and is the one to name then.
        if first_damaged.load(Ordering::Relaxed) < segment {
            return Err(Damage { offset: 0, what: "a segment behind a damaged one" });
        }
        let verified = verify(segment, source, items, crew.rest);
        if verified.is_err() {
            first_damaged.fetch_min(segment, Ordering::Relaxed);
        }
        verified.map(|(share, own)| (share, Some(own)))
    });
    for (verified, source) in verified.into_iter().zip(sources) {
        let (share, own) = verified.map_err(OpenError::damage(&source.path)).map_err(Failed::Open)?;
        if let Some(own) = own {
            scanned = Some(scanned.map_or(own, |scanned| &scanned[..shared(scanned, own)]));
        }
        shares.push(share);
    }
    let places = Places::new(sources.iter().map(Source::bytes).collect());
    sort(&mut items, scanned.map_or(0, <[u8]>::len), &places, threads, crew.rest);
    let runs = Runs { sources, items: &items, places: &places, common: merge::common(sources, scanned)? };
    // A few for each thread, since not all take as long.
    let spans = runs.spans(if threads > 1 { threads * SPANS_PER_THREAD } else { 1 })?;
    let parts = share(threads, spans, |span| runs.merge(span, compact, crew.rest));
    let (mut loaded, mut leased) = (Vec::with_capacity(parts.len()), LeasedKeys::default());
    for part in parts {
        let Loaded { part, shares: counted, leased: of_part } = part?;
        loaded.push(part);
        leased.append(of_part);
        for (share, counted) in shares.iter_mut().zip(counted) {
            share.live += counted.live;
            share.graves += counted.graves;
            share.merged += counted.merged;
        }
    }
    merge::check_counts(sources, &shares)?;
    Ok(Rebuilt { index: Index::of_parts(loaded), shares, leased })
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
        common = Some(common.map_or(view.key, |common| &common[..shared(common, view.key)]));
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
