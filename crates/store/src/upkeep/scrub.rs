//! Checking the records that a start has not read.
//!
//! A start with key files does not look at the records of their segments. Each is checked when it is read ([`Segment::check_stored`]), and all of
//! them are here, in steps, so that damage to what nobody reads is found too while other members have the data.

use crate::log::{Damage, Error, SEGMENT_HEADER_BYTES, Segment, Segments, Walk};
use crate::types::Revision;
use std::sync::Arc;

/// Checks one segment after the other, oldest first. One owner.
pub(crate) struct Scrub {
    segments: Arc<Segments>,
    at: Option<Checking>,
}

/// A segment that is checked up to [`Segment::verified`].
struct Checking {
    segment: Arc<Segment>,
    first: Revision,
    last: Revision,
    records: u64,
}

impl Scrub {
    pub(crate) fn new(segments: Arc<Segments>) -> Scrub {
        Scrub { segments, at: None }
    }

    /// Gives up the segment under way if it is not a part of the log any more: its space comes back once nobody reads it.
    pub(crate) fn let_go(&mut self) {
        self.at.take_if(|at| !self.segments.has(&at.segment));
    }

    /// Gives up the segment under way: the whole log is to be replaced.
    pub(crate) fn abandon(&mut self) {
        self.at = None;
    }

    /// Checks about `budget_bytes`. False when all records were checked since the start.
    pub(crate) fn step(&mut self, budget_bytes: u64) -> Result<bool, Error> {
        let Some(segment) = self.segments.unverified() else {
            self.at = None;
            return Ok(false);
        };
        let at = match &mut self.at {
            Some(at) if Arc::ptr_eq(&at.segment, &segment) => at,
            // The one before is whole, or a rewrite has read all of it.
            at => at.insert(Checking::new(segment)),
        };
        at.step(budget_bytes).map_err(|damage| Error::Damaged { path: at.segment.path().to_path_buf(), damage })?;
        Ok(true)
    }
}

impl Checking {
    fn new(segment: Arc<Segment>) -> Checking {
        segment.set_verified(SEGMENT_HEADER_BYTES as u64);
        Checking { segment, first: Revision::default(), last: Revision::default(), records: 0 }
    }

    fn step(&mut self, budget_bytes: u64) -> Result<(), Damage> {
        let bytes = self.segment.published();
        let begin = self.segment.verified() as usize;
        let end = begin.saturating_add(budget_bytes.max(1) as usize).min(bytes.len());
        let mut walk = Walk::after(bytes, begin, self.last);
        while walk.offset() < end {
            let offset = walk.offset() as u64;
            let Some(stored) = walk.next() else { break };
            let stored = stored?;
            if stored.view().is_none() {
                return Err(Damage { offset, what: "a record whose content does not fit its header" });
            }
            if self.records == 0 {
                self.first = stored.rev;
            }
            self.last = stored.rev;
            self.records += 1;
        }
        if walk.offset() < bytes.len() {
            self.segment.set_verified(walk.offset() as u64);
            return Ok(());
        }
        let entry = self.segment.entry();
        if (self.first, self.last, self.records) != (entry.first(), entry.last(), entry.records) {
            return Err(Damage {
                offset: SEGMENT_HEADER_BYTES as u64,
                what: "other records than the checkpoint lists",
            });
        }
        self.segment.set_verified(u64::MAX);
        Ok(())
    }
}
