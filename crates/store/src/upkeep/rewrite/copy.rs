//! The first half of a rewrite: live records go to a new file.

use super::STRIDE_RECORDS;
use super::draft::Draft;
use crate::index::Index;
use crate::log::RwLock;
use crate::log::{Damage, Error, SEGMENT_HEADER_BYTES, Segment, Segments, Walk, read};
use crate::mistake::Mistake;
use crate::types::{Loc, Revision};
use std::sync::Arc;

/// A run of neighbours that is being copied.
#[derive(Debug)]
pub(super) struct Copying {
    sources: Vec<Arc<Segment>>,
    /// The source being read, and the next record in it.
    at: usize,
    offset: usize,
    /// Created for the first record that is kept.
    draft: Option<Draft>,
    /// [`Segments::deaths`] when the copy began.
    deaths: u64,
}

/// A finished copy.
pub(super) struct Copied {
    pub(super) sources: Vec<Arc<Segment>>,
    /// Missing when nothing was kept.
    pub(super) target: Option<Arc<Segment>>,
}

/// A record of a stride, verified.
struct Candidate<'a> {
    key: &'a [u8],
    rev: Revision,
    tombstone: bool,
    loc: Loc,
    whole: &'a [u8],
    is_kept: bool,
}

impl Copying {
    pub(super) fn new(segments: &Segments, sources: Vec<Arc<Segment>>) -> Copying {
        Copying { sources, at: 0, offset: SEGMENT_HEADER_BYTES, draft: None, deaths: segments.deaths() }
    }

    /// Copies what is live in about `budget_bytes` of the sources. True when all are read.
    pub(super) fn step(
        &mut self,
        segments: &Segments,
        index: &RwLock<Index>,
        budget_bytes: u64,
    ) -> Result<bool, Error> {
        let mut left = budget_bytes.max(1);
        while let Some(source) = self.sources.get(self.at).map(Arc::clone) {
            if self.is_read(&source) {
                continue;
            }
            let before = self.offset;
            let mut stride = self.read_stride(&source)?;
            self.decide(segments, &read(index), &mut stride);
            for record in stride.iter().filter(|record| record.is_kept) {
                let draft = match &mut self.draft {
                    Some(draft) => draft,
                    none => none.insert(Draft::create(segments)?),
                };
                draft.push(record.rev, record.whole)?;
            }
            left = left.saturating_sub((self.offset - before) as u64);
            if left == 0 {
                break;
            }
        }
        let is_done = self.at == self.sources.len() || self.at + 1 == self.sources.len() && self.is_at_end();
        if let (true, Some(draft)) = (is_done, &mut self.draft) {
            draft.write()?;
        }
        Ok(is_done)
    }

    /// Makes the new segment, if anything was kept, durable. All of it was written by the last step. An error removes the file.
    pub(super) fn finish(self, segments: &Segments) -> Result<Copied, Error> {
        let target = self.draft.map(|draft| draft.finish(segments)).transpose()?;
        Ok(Copied { sources: self.sources, target })
    }

    /// Removes the new file.
    pub(super) fn abandon(self, segments: &Segments) {
        if let Some(draft) = self.draft {
            draft.abandon(segments);
        }
    }

    /// Moves on to the next source at the end of one.
    fn is_read(&mut self, source: &Segment) -> bool {
        let is_read = self.offset as u64 == source.len();
        if is_read {
            self.at += 1;
            self.offset = SEGMENT_HEADER_BYTES;
        }
        is_read
    }

    fn is_at_end(&self) -> bool {
        self.sources.get(self.at).is_some_and(|source| self.offset as u64 == source.len())
    }

    fn read_stride<'a>(&mut self, source: &'a Segment) -> Result<Vec<Candidate<'a>>, Error> {
        let mut walk = Walk::new(source.published(), self.offset);
        let mut stride = Vec::with_capacity(STRIDE_RECORDS);
        while stride.len() < STRIDE_RECORDS {
            let at = walk.offset();
            let Some(stored) = walk.next() else { break };
            let stored = stored.map_err(|damage| damaged(source, damage))?;
            let Some(view) = stored.view() else { return Err(unfit(source, at)) };
            let loc = Loc { segment: source.id(), offset: stored.offset as u32, len: stored.bytes.len() as u32 };
            let (rev, tombstone, whole) = (stored.rev, stored.tombstone, stored.whole);
            stride.push(Candidate { key: view.key, rev, tombstone, loc, whole, is_kept: false });
        }
        self.offset = walk.offset();
        Ok(stride)
    }

    /// Under the index lock. Nothing dies meanwhile, see [`Segments::mark_dead`].
    fn decide(&self, segments: &Segments, index: &Index, stride: &mut [Candidate<'_>]) {
        let tombstones_go = Mistake::RewriteDropsGraves.is_planted() || self.tombstones_go(segments);
        for record in stride {
            let version = index.version_at(record.key, record.rev);
            if let Some(version) = version {
                assert!(version.loc == record.loc, "the index refers to another record of the same revision");
            }
            record.is_kept = version.is_some() || record.tombstone && !tombstones_go;
        }
    }

    /// True when no dead put can be left in the log that a dead tombstone of the sources covers: earlier segments have none, and
    /// whatever was copied here so far is live still.
    fn tombstones_go(&self, segments: &Segments) -> bool {
        let is_earlier = |segment: &&Arc<Segment>| !Arc::ptr_eq(segment, &self.sources[0]);
        segments.deaths() == self.deaths
            && segments.order().iter().take_while(is_earlier).all(|s| s.live() + s.graves() >= s.body())
    }
}

/// The error for damage in a segment.
pub(super) fn damaged(segment: &Segment, damage: Damage) -> Error {
    Error::Damaged { path: segment.path().to_path_buf(), damage }
}

/// The error for a record whose content is not that of its header.
pub(super) fn unfit(segment: &Segment, offset: usize) -> Error {
    damaged(segment, Damage { offset: offset as u64, what: "a record whose content does not fit its header" })
}
