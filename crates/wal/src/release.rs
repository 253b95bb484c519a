//! Freeing segments that are no longer needed.
//!
//! The caller holds locks that requests wait for, so a segment only changes its name here. What takes time happens on other threads: the pool
//! of [`crate::Spare`] overwrites it with zeros when the log will soon need another segment, and what the pool does not want shrinks step by
//! step (`disk::Reaper`).

use crate::mistake::Mistake;
use crate::{Error, Wal};

impl Wal {
    /// Frees the segments that hold only entries below `below_index`, but leaves [`crate::Options::segments_min`]. As many are kept to be
    /// reused by [`crate::Spare::prepare`] as the log is likely to fill until the next release; [`Wal::reaper`] gives back the others. A
    /// durable checkpoint up to `below_index - 1` must exist.
    pub fn release(&mut self, below_index: u64) -> Result<(), Error> {
        self.free(below_index, self.options.segments_min.max(1), true)
    }

    /// As [`Wal::release`], for a disk that is nearly full: every segment that can go is given back, and none is kept to be reused.
    pub fn release_all(&mut self, below_index: u64) -> Result<(), Error> {
        self.free(below_index, 1, false)
    }

    fn free(&mut self, below_index: u64, segments_min: usize, reuses: bool) -> Result<(), Error> {
        if let Some(reason) = &self.poison {
            return Err(Error::Poisoned(reason.clone()));
        }
        self.terms.release(below_index);
        // All entries of a segment that are still valid lie below the first index of the next one.
        let mut later = self.segments.iter().skip(1);
        let below =
            later.rposition(|next| next.first_index <= below_index).map_or(0, |position| position.saturating_add(1));
        let below = below.saturating_add(usize::from(Mistake::FreesOneTooMany.is_planted()));
        let removable = self.segments.len().saturating_sub(segments_min);
        let freed = below.min(removable);
        self.spare.expect(if reuses { freed } else { 0 }, reuses);
        for _ in 0..freed {
            let Some(oldest) = self.segments.front() else { break };
            let path = self.dir.join(oldest.to_string());
            let spare = self.spare.name_for_recycled();
            let name = spare.clone().unwrap_or_else(|| self.spare.name_for_retired());
            let is_there = self.spare.reaper().put_aside(&path, &name).map_err(Error::io("rename", &path))?;
            self.segments.pop_front();
            match spare {
                _ if !is_there => {}
                Some(name) => self.spare.recycle(name),
                None => self.spare.retire(name),
            }
        }
        Ok(())
    }
}
