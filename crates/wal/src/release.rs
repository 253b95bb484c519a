//! Freeing segments that are no longer needed.

use crate::{Error, Wal};

impl Wal {
    /// Frees the segments that hold only entries below `below_index`, but leaves [`crate::Options::segments_min`]. One is kept
    /// to be reused by [`crate::Spare::prepare`], the others are removed. A durable checkpoint up to `below_index - 1` must exist.
    pub fn release(&mut self, below_index: u64) -> Result<(), Error> {
        self.free(below_index, self.options.segments_min.max(1), true)
    }

    /// As [`Wal::release`], for a disk that is nearly full: every segment that can go is removed, and none is kept to be reused.
    pub fn release_all(&mut self, below_index: u64) -> Result<(), Error> {
        self.free(below_index, 1, false)?;
        if let Some(path) = self.spare.take_recycled() {
            self.disk.remove(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
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
        let spare = self.segments.len().saturating_sub(segments_min);
        for _ in 0..below.min(spare) {
            let Some(oldest) = self.segments.front() else { break };
            let path = self.dir.join(oldest.to_string());
            match reuses.then(|| self.spare.name_for_recycled()).flatten() {
                Some(name) => {
                    self.disk.rename(&path, &name).map_err(Error::io("rename", &path))?;
                    self.spare.recycle(name);
                }
                None => self.disk.remove(&path).map_err(Error::io("remove", &path))?,
            }
            self.segments.pop_front();
        }
        Ok(())
    }
}
