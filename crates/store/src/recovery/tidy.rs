//! Bringing the directory into the state that the checkpoint describes, after everything in it was verified.

use super::files::Files;
use super::rebuild::Share;
use super::{OpenError, Source};
use crate::checkpoint::{Checkpoint, KEPT, Kept, checkpoint_name};
use crate::log::{Origin, Segment, Segments, segment_name};
use disk::Disk;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;

impl Files {
    /// Removes what no kept checkpoint refers to.
    pub(super) fn tidy(
        &self,
        disk: &dyn Disk,
        mut found: Vec<(Checkpoint, u64)>,
        segments: &Segments,
    ) -> Result<Vec<Kept>, OpenError> {
        // The newest checkpoint's name may not be durable yet. It must be before anything goes that an older one needs.
        disk.sync_dir(&self.dir).map_err(OpenError::io("sync", &self.dir))?;
        let old: Vec<_> = found.drain(..found.len().saturating_sub(KEPT)).collect();
        let old = old.iter().map(|(old, _)| checkpoint_name(old.applied_index));
        let listed: HashSet<u32> =
            found.iter().flat_map(|(checkpoint, _)| checkpoint.segments.iter().map(|entry| entry.id)).collect();
        let orphans = self.segments.iter().filter(|id| !listed.contains(id)).map(|id| segment_name(*id));
        for name in old.chain(self.unfinished.iter().cloned()).chain(orphans) {
            let path = self.dir.join(name);
            disk.remove(&path).map_err(OpenError::io("remove", &path))?;
        }
        if let Some((newest, _)) = found.last() {
            let live: HashSet<u32> = newest.segments.iter().map(|entry| entry.id).collect();
            let here = self.segments.iter().copied();
            segments.adopt(here.filter(|id| listed.contains(id) && !live.contains(id)).collect());
        }
        let kept = found.iter().map(|(checkpoint, bytes)| Kept {
            applied_index: checkpoint.applied_index,
            ids: checkpoint.segments.iter().map(|entry| entry.id).collect(),
            bytes: *bytes,
        });
        Ok(kept.collect())
    }
}

/// Makes the sources the segments of the log. Returns the last one if it takes more records.
pub(super) fn adopt_segments(
    segments: &Segments,
    sources: Vec<Source>,
    shares: &[Share],
) -> Result<Option<Arc<Segment>>, OpenError> {
    let count = sources.len();
    let mut tail = None;
    for (at, (source, share)) in sources.into_iter().zip(shares).enumerate() {
        let is_last = at + 1 == count;
        let (segment, takes_more) = if is_last { reopen(source, segments.next_capacity())? } else { sealed(source) };
        let segment = Arc::new(segment);
        segment.publish(&share.batch);
        segment.mark_synced(segment.len());
        segment.add_graves(share.graves);
        segments.add_live(&segment, share.live);
        if takes_more {
            tail = Some(Arc::clone(&segment));
        }
        segments.push(segment);
    }
    Ok(tail)
}

fn sealed(source: Source) -> (Segment, bool) {
    (Segment::new(source.entry.id, source.path, source.file, source.mapping, Origin::Sealed), false)
}

/// Cuts off what the checkpoint does not cover, and reserves space again: what is behind the last record reads as zeros.
fn reopen(source: Source, capacity: u64) -> Result<(Segment, bool), OpenError> {
    let Source { entry, path, file, .. } = &source;
    file.truncate(entry.length).map_err(OpenError::io("truncate", path))?;
    let capacity = capacity.max(entry.length.next_multiple_of(4096)).min(u64::from(u32::MAX));
    match file.allocate(capacity) {
        // A full disk must not prevent a restart. The next record will need a segment, and get it when there is room.
        Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(sealed(source)),
        allocated => allocated.map_err(OpenError::io("reserve space for", path))?,
    }
    let mapping = file.map(capacity).map_err(OpenError::io("map", path))?;
    Ok((Segment::new(source.entry.id, source.path, source.file, mapping, Origin::Tail), true))
}
