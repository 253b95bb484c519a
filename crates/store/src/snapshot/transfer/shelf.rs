//! Whole segments of broken transfers, kept for the next transfer.

use super::part::Part;
use crate::log::{SegmentEntry, lock};
use crate::upkeep::checkpoint::KEPT;
use disk::Reaper;
use std::sync::Mutex;

/// Whole segments of broken transfers. They are in temporary files, and go after as many checkpoints as are kept: a member that
/// writes checkpoints of its own no longer waits for a snapshot.
#[derive(Default)]
pub(crate) struct Shelf {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parts: Vec<Part>,
    /// Transfers begun so far. Only the last one may continue.
    begun: u64,
    /// Checkpoints written since a transfer began or ended.
    checkpoints: usize,
}

impl Shelf {
    /// Begins a transfer, which ends the one before. Returns its number.
    pub(super) fn begin(&self) -> u64 {
        let mut state = lock(&self.state);
        state.checkpoints = 0;
        state.begun += 1;
        state.begun
    }

    /// Whether no later transfer has begun.
    pub(super) fn is_last(&self, number: u64) -> bool {
        lock(&self.state).begun == number
    }

    /// A segment equal to the one listed, if an earlier transfer got it whole.
    pub(super) fn take(&self, entry: &SegmentEntry) -> Option<Part> {
        let parts = &mut lock(&self.state).parts;
        let at = parts.iter().position(|part| part.is_equal(entry))?;
        Some(parts.swap_remove(at))
    }

    /// Keeps whole segments of a broken transfer, and removes the files of the others, and of those that no other one could be told equal to.
    pub(super) fn put(&self, reaper: &Reaper, parts: impl IntoIterator<Item = Part>) {
        let is_kept = |part: &Part| part.is_whole() && part.entry.body_crc.is_some();
        let (whole, others) = parts.into_iter().partition::<Vec<Part>, _>(is_kept);
        retire(reaper, others);
        let mut state = lock(&self.state);
        state.checkpoints = 0;
        state.parts.extend(whole);
    }

    /// Removes everything.
    pub(super) fn clear(&self, reaper: &Reaper) {
        let parts = std::mem::take(&mut lock(&self.state).parts);
        retire(reaper, parts);
    }

    /// A checkpoint was written.
    pub(crate) fn age(&self, reaper: &Reaper) {
        let mut state = lock(&self.state);
        state.checkpoints += 1;
        if state.checkpoints < KEPT {
            return;
        }
        let parts = std::mem::take(&mut state.parts);
        drop(state);
        retire(reaper, parts);
    }
}

/// Has files given back. Their names are those of leftovers, or no checkpoint lists them.
fn retire(reaper: &Reaper, parts: Vec<Part>) {
    parts.into_iter().for_each(|mut part| part.discard(reaper));
}
