//! Merging key files, and the records of the segments that were scanned, into the order of the index.
//!
//! Each of them is a run in that order. The keys are cut into spans; each span is merged by one thread, whatever the number of runs, and
//! takes a key and a position of each run in memory.

use super::versions::{Loaded, Versions};
use super::{Share, Source};
use crate::keyfile::{Cursor, Misfit};
use crate::sorting::{Decoded, Item, Places, shared};
use crate::types::Version;

/// Records of the scanned segments that are brought into the cache together.
const TOUCHED: usize = 32;
/// Records between two rests.
const REST_RECORDS: usize = 32;
/// First keys of blocks, of all key files together, among which the bounds of the spans are sought.
const SAMPLES: usize = 8192;

/// A key file, by the position of its segment, that is not what it should be.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) source: usize,
    pub(super) misfit: Misfit,
}

/// What is merged.
pub(super) struct Runs<'a> {
    pub(super) sources: &'a [Source],
    /// The records of the segments without key files, sorted.
    pub(super) items: &'a [Item],
    pub(super) places: &'a Places<'a>,
    /// Bytes that all keys begin with.
    pub(super) common: usize,
}

/// Keys from one on, and up to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'a> {
    pub(super) from: Option<&'a [u8]>,
    pub(super) to: Option<&'a [u8]>,
}

impl<'a> Runs<'a> {
    /// Cuts the keys into about so many spans with about as many records each.
    pub(super) fn spans(&self, count: usize) -> Result<Vec<Span<'a>>, Refused> {
        if count <= 1 {
            return Ok(vec![Span { from: None, to: None }]);
        }
        let mut samples = Vec::new();
        let files = self.sources.iter().filter(|source| source.keys.is_some()).count();
        let mut records = 0;
        for (source, found) in self.sources.iter().enumerate() {
            let Some(keys) = &found.keys else { continue };
            for key in keys.samples(SAMPLES / files) {
                samples.push(key.map_err(|misfit| Refused { source, misfit })?);
            }
            records += found.entry.records as usize;
        }
        // As many of the others as are their share, however few records the blocks have.
        let step = (self.items.len() / SAMPLES).max(records / samples.len().max(1)).max(1);
        samples.extend(self.items.iter().step_by(step).map(|item| self.places.key(item.place())));
        samples.sort_unstable();
        let cuts = (1..count).filter_map(|cut| samples.get(cut * samples.len() / count).copied());
        let mut bounds: Vec<&[u8]> = cuts.collect();
        bounds.dedup();
        let from = std::iter::once(None).chain(bounds.iter().copied().map(Some));
        let to = bounds.iter().copied().map(Some).chain([None]);
        Ok(from.zip(to).map(|(from, to)| Span { from, to }).collect())
    }

    /// Loads the records of a span, and counts those of each key file.
    pub(super) fn merge(&self, span: Span<'a>, compact: i64, rest: fn()) -> Result<Loaded, Refused> {
        let mut versions = Versions::new(self.sources, compact);
        let mut counts = vec![0; self.sources.len()];
        let mut runs = self.open(span)?;
        let mut heap = Heap::new(&runs, self.common);
        let mut until_rest = REST_RECORDS;
        while let Some(run) = heap.first() {
            let run = &mut runs[run];
            let (version, lease) = run.version();
            versions.push(run.key(), version, lease);
            if let Run::File(..) = run {
                counts[version.loc.segment as usize] += 1;
            }
            let is_left = run.advance()? && span.to.is_none_or(|to| run.key() < to);
            heap.moved(&runs, is_left);
            until_rest -= 1;
            if until_rest == 0 {
                until_rest = REST_RECORDS;
                rest();
            }
        }
        let mut loaded = versions.finish();
        for (share, count) in loaded.shares.iter_mut().zip(counts) {
            share.merged = count;
        }
        Ok(loaded)
    }

    /// The runs that have records of a span, each at the first.
    fn open(&self, span: Span<'a>) -> Result<Vec<Run<'a>>, Refused> {
        let mut runs = Vec::new();
        for (number, source) in self.sources.iter().enumerate() {
            let Some(keys) = &source.keys else { continue };
            let cursor = keys.cursor(number as u32, span.from).map_err(|misfit| Refused { source: number, misfit })?;
            runs.extend(cursor.map(|cursor| Run::File(number, cursor)));
        }
        let from = span.from.map_or(0, |from| self.items.partition_point(|item| self.places.key(item.place()) < from));
        runs.extend(Items::new(&self.items[from..], self.places).map(Run::Items));
        runs.retain(|run| span.to.is_none_or(|to| run.key() < to));
        Ok(runs)
    }
}

/// What the key files say of each segment must be all of its records.
pub(super) fn check_counts(sources: &[Source], shares: &[Share]) -> Result<(), Refused> {
    let wrong = sources
        .iter()
        .zip(shares)
        .position(|(source, share)| source.keys.is_some() && share.merged != source.entry.records);
    match wrong {
        Some(source) => Err(Refused { source, misfit: Misfit("its keys are not in order") }),
        None => Ok(()),
    }
}

/// Records in order.
enum Run<'a> {
    File(usize, Cursor<'a>),
    Items(Items<'a>),
}

impl Run<'_> {
    fn key(&self) -> &[u8] {
        match self {
            Run::File(_, cursor) => cursor.key(),
            Run::Items(items) => items.record.key,
        }
    }

    fn version(&self) -> (Version, i64) {
        match self {
            Run::File(_, cursor) => cursor.version(),
            Run::Items(items) => (items.record.version, items.record.lease),
        }
    }

    /// False at the end.
    fn advance(&mut self) -> Result<bool, Refused> {
        match self {
            Run::File(source, cursor) => cursor.advance().map_err(|misfit| Refused { source: *source, misfit }),
            Run::Items(items) => Ok(items.advance()),
        }
    }
}

/// Goes over records that were scanned and sorted.
struct Items<'a> {
    items: &'a [Item],
    places: &'a Places<'a>,
    /// The next of the items.
    at: usize,
    record: Decoded<'a>,
}

impl<'a> Items<'a> {
    fn new(items: &'a [Item], places: &'a Places<'a>) -> Option<Items<'a>> {
        let record = places.decode(items.first()?.place());
        Some(Items { items, places, at: 1, record })
    }

    fn advance(&mut self) -> bool {
        let Some(item) = self.items.get(self.at) else { return false };
        if self.at % TOUCHED == 1 {
            self.places.touch(self.items[self.at..].iter().take(TOUCHED).map(Item::place));
        }
        self.record = self.places.decode(item.place());
        self.at += 1;
        true
    }
}

/// Which run has the next record: a binary heap of runs, by the bytes of the key that follow those that all have in common.
struct Heap {
    slots: Vec<Slot>,
    common: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    head: u64,
    run: u32,
}

impl Heap {
    fn new(runs: &[Run<'_>], common: usize) -> Heap {
        let slots = (0..runs.len() as u32).map(|run| Slot { head: head(runs[run as usize].key(), common), run });
        let mut heap = Heap { slots: slots.collect(), common };
        for at in (0..heap.slots.len() / 2).rev() {
            heap.sink(runs, at);
        }
        heap
    }

    fn first(&self) -> Option<usize> {
        self.slots.first().map(|slot| slot.run as usize)
    }

    /// Puts the first run where it belongs now; it goes if nothing is left of it.
    fn moved(&mut self, runs: &[Run<'_>], is_left: bool) {
        if is_left {
            let slot = &mut self.slots[0];
            slot.head = head(runs[slot.run as usize].key(), self.common);
        } else {
            self.slots.swap_remove(0);
        }
        self.sink(runs, 0);
    }

    fn sink(&mut self, runs: &[Run<'_>], mut at: usize) {
        let Some(&sinking) = self.slots.get(at) else { return };
        loop {
            let mut child = 2 * at + 1;
            let Some(&left) = self.slots.get(child) else { break };
            let mut least = left;
            if let Some(&right) = self.slots.get(child + 1)
                && is_before(runs, right, left)
            {
                (child, least) = (child + 1, right);
            }
            if !is_before(runs, least, sinking) {
                break;
            }
            self.slots[at] = least;
            at = child;
        }
        self.slots[at] = sinking;
    }
}

/// Records of one key are in the order of their segments.
fn is_before(runs: &[Run<'_>], a: Slot, b: Slot) -> bool {
    if a.head != b.head {
        return a.head < b.head;
    }
    let (a, b) = (&runs[a.run as usize], &runs[b.run as usize]);
    a.key().cmp(b.key()).then_with(|| a.version().0.loc.segment.cmp(&b.version().0.loc.segment)).is_lt()
}

/// Eight bytes of a key as a number that orders as they do, zeros where there are none.
fn head(key: &[u8], common: usize) -> u64 {
    let rest = key.get(common..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

/// How many bytes all keys of the runs begin with.
pub(super) fn common(sources: &[Source], scanned: Option<&[u8]>) -> Result<usize, Refused> {
    let mut common = scanned;
    for (source, found) in sources.iter().enumerate() {
        let Some(keys) = &found.keys else { continue };
        let own = keys.common().map_err(|misfit| Refused { source, misfit })?;
        common = Some(common.map_or(own, |common| &common[..shared(common, own)]));
    }
    Ok(common.map_or(0, <[u8]>::len))
}
