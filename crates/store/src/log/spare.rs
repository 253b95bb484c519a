//! The next segment, prepared before the current one is full.

use super::guard::{lock, read};
use super::{Error, Segment, Segments};
use std::sync::Arc;

/// A handle for a slow thread that keeps one segment ready, so that the applier never waits for the allocation of a file.
/// Without it the applier allocates on its own.
#[derive(Clone, Debug)]
pub struct Spare {
    segments: Arc<Segments>,
}

impl Spare {
    pub(crate) fn new(segments: Arc<Segments>) -> Spare {
        Spare { segments }
    }

    /// True when the current segment is half full and the next one is not ready.
    pub fn needed(&self) -> bool {
        if lock(&self.segments.spare).is_some() {
            return false;
        }
        match read(&self.segments.table).order().last() {
            Some(active) => active.len() > active.capacity() / 2,
            None => true,
        }
    }

    /// Makes the next segment ready if one is needed; returns at once if not, so it may be called as often as one likes. A full
    /// disk fails here without harm: the log still has the rest of its current segment.
    pub fn prepare(&self) -> Result<(), Error> {
        if !self.needed() {
            return Ok(());
        }
        let segments = &self.segments;
        let segment = segments.create(segments.new_id(), segments.next_capacity())?;
        let rejected = {
            let mut spare = lock(&segments.spare);
            if spare.is_none() {
                *spare = Some(Arc::new(segment));
                return Ok(());
            }
            segment
        };
        segments.disk.remove(rejected.path()).map_err(Error::io("remove", rejected.path()))
    }
}

impl Segments {
    /// Takes the spare if it has at least `capacity` bytes.
    pub(super) fn take_spare(&self, capacity: u64) -> Option<Arc<Segment>> {
        lock(&self.spare).take_if(|spare| spare.capacity() >= capacity)
    }
}
