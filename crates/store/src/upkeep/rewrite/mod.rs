//! Giving space back: the live records of mostly dead segments are copied to a new segment that replaces them.
//!
//! Sealed segments never change, so their readers are not disturbed; a file is removed when no kept checkpoint lists it. The work is done
//! in steps off the apply thread. It holds the index lock for [`STRIDE_RECORDS`] records at a time.
//!
//! **Graves.** A dead put may be dropped at any time, because the index is rebuilt from what is newest. A dead tombstone may
//! not: should an older put of its key still lie in an earlier segment, dropping the tombstone would bring the key back at
//! the next restart. So a tombstone goes only when no earlier segment holds a dead put, and nothing died while the copy was
//! made; until then it is copied. Every dead tombstone counts as a *grave*, so what a copy will take is known before. When the graves become many, the first segment that makes them necessary is
//! rewritten, however much of it is live.

mod copy;
mod draft;
mod pick;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::index::Index;
use crate::log::RwLock;
use crate::log::{Error, SEGMENT_HEADER_BYTES, Segment, Segments, Walk, record_bytes, write};
use crate::types::Loc;
use copy::{Copied, Copying};
use std::sync::Arc;

/// Records that are looked up or moved under one hold of the index lock.
const STRIDE_RECORDS: usize = 64;

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing is worth rewriting.
    Idle,
    /// There is more to do.
    Working,
    /// One rewrite is finished. Its space comes back once two checkpoints were written, so one is wanted.
    Finished,
}

/// What the disk has for a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Whether the disk is low: then segments with a small dead share are worth a rewrite too.
    pub(crate) is_low: bool,
    /// Bytes that a copy may take.
    pub(crate) copy_max_bytes: u64,
}

/// Rewrites one run of segments after the other. One owner.
#[derive(Debug)]
pub(crate) struct Rewriter {
    segments: Arc<Segments>,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle,
    /// Live records go from the sources to a new file.
    Copying(Box<Copying>),
    /// The index is told where they are now.
    Moving(Moving),
}

/// A finished copy to which the index is being moved.
#[derive(Debug)]
struct Moving {
    sources: Vec<Arc<Segment>>,
    target: Arc<Segment>,
    /// The next record to move.
    offset: usize,
}

impl Rewriter {
    /// A rewriter for the log of `segments`.
    pub(crate) fn new(segments: Arc<Segments>) -> Rewriter {
        Rewriter { segments, state: State::Idle }
    }

    /// Does the next part of the work: reads, or moves, about `budget_bytes` of records. Segments that hold a revision after
    /// `published` are left alone, because the index may not know all of their records yet. `space` says what there is for a copy.
    ///
    /// A full disk fails here without harm, and the rewrite starts over at the next step. Any other error is fatal.
    pub(crate) fn step(
        &mut self,
        index: &RwLock<Index>,
        published: i64,
        space: Space,
        budget_bytes: u64,
    ) -> Result<Step, Error> {
        let (state, step) = match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => match pick::pick(&self.segments.order(), published, space, self.segments.segment_bytes()) {
                None => (State::Idle, Step::Idle),
                Some(run) => (State::Copying(Box::new(Copying::new(&self.segments, run))), Step::Working),
            },
            State::Copying(mut copying) => match copying.step(&self.segments, index, budget_bytes) {
                Ok(false) => (State::Copying(copying), Step::Working),
                Ok(true) => self.place(*copying)?,
                Err(error) => {
                    copying.abandon(&self.segments);
                    return Err(error);
                }
            },
            State::Moving(moving) => self.move_some(moving, index, budget_bytes)?,
        };
        self.state = state;
        Ok(step)
    }

    /// Whether no rewrite is under way.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Gives up the rewrite under way: the whole log is to be replaced. What the index was moved to stays known until it is.
    pub(crate) fn abandon(&mut self, segments: &Segments) {
        if let State::Copying(copying) = std::mem::replace(&mut self.state, State::Idle) {
            copying.abandon(segments);
        }
    }

    /// Makes the finished copy known, if there is anything in it.
    fn place(&self, copying: Copying) -> Result<(State, Step), Error> {
        failpoint::point!(REWRITE_BEFORE_PLACE);
        let Copied { sources, target } = copying.finish(&self.segments)?;
        let Some(target) = target else {
            self.segments.replace(&sources, None);
            return Ok((State::Idle, Step::Finished));
        };
        self.segments.admit(&target);
        Ok((State::Moving(Moving { sources, target, offset: SEGMENT_HEADER_BYTES }), Step::Working))
    }

    /// Verifies copied records and moves the index to them. What died since it was copied is dead in the copy too.
    fn move_some(&self, mut moving: Moving, index: &RwLock<Index>, budget_bytes: u64) -> Result<(State, Step), Error> {
        let target = Arc::clone(&moving.target);
        let end = target.len().min((moving.offset as u64).saturating_add(budget_bytes.max(1))) as usize;
        let mut walk = Walk::new(target.published(), moving.offset);
        let mut stride = Vec::with_capacity(STRIDE_RECORDS);
        while moving.offset < end {
            stride.clear();
            while stride.len() < STRIDE_RECORDS && walk.offset() < end {
                let at = walk.offset();
                let Some(stored) = walk.next() else { break };
                let stored = stored.map_err(|damage| copy::damaged(&target, damage))?;
                let Some(view) = stored.view() else { return Err(copy::unfit(&target, at)) };
                // Offsets are 32 bits wide, checked when the copy was written.
                let loc = Loc { segment: target.id(), offset: stored.offset as u32, len: stored.bytes.len() as u32 };
                stride.push((view.key, stored.rev, loc, stored.tombstone));
            }
            let mut index = write(index);
            for (key, rev, loc, is_tombstone) in &stride {
                let Some(version) = index.version_at(key, *rev) else {
                    // Dead when it was copied, or since: it counted in a source that is about to go.
                    if *is_tombstone {
                        target.add_graves(record_bytes(loc.len as usize) as u64);
                    }
                    continue;
                };
                assert!(version.loc.len == loc.len, "a copy of another length than the original");
                assert!(index.relocate(key, *rev, *loc), "a version that was just found cannot be moved");
                self.segments.move_live(version.loc, &target);
            }
            drop(index);
            moving.offset = walk.offset();
        }
        if (moving.offset as u64) < target.len() {
            return Ok((State::Moving(moving), Step::Working));
        }
        failpoint::point!(REWRITE_BEFORE_REPLACE);
        self.segments.replace(&moving.sources, Some(target));
        failpoint::point!(REWRITE_AFTER_REPLACE);
        Ok((State::Idle, Step::Finished))
    }
}
