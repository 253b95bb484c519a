//! Bringing the directory into the state that the checkpoint describes, after everything in it was verified.

use super::files::{Files, Found, Stored};
use super::rebuild::Share;
use super::{OpenError, Source};
use crate::keyfile::KeyFile;
use crate::log::{INTAKE_SUFFIX, Origin, Segment, Segments, segment_name};
use crate::upkeep::checkpoint::{Doubted, KEPT, Kept};
use disk::{Disk, KnownFiles, Reaper};
use std::collections::HashSet;
use std::sync::Arc;

/// What recovery leaves of the checkpoints and of what they list.
#[derive(Debug, Default)]
pub(super) struct Tidied {
    pub(super) kept: Vec<Kept>,
    pub(super) doubted: Option<Doubted>,
    /// Why checkpoints were passed over.
    pub(super) passed_over: Vec<OpenError>,
    /// Checkpoints that let the files go which only older or damaged ones list.
    pub(super) checkpoints_due: u32,
}

impl Files {
    /// Has given back what no kept checkpoint refers to. While one is damaged it may be the one that lists a segment: then all stay.
    /// Of the key files those of the segments `with_keys` stay.
    pub(super) fn tidy(
        &self,
        disk: &dyn Disk,
        found: Found,
        segments: &Segments,
        with_keys: &HashSet<u32>,
    ) -> Result<Tidied, OpenError> {
        // The newest checkpoint's name may not be durable yet. It must be before anything goes that an older one needs.
        segments.reaper().sync_names().map_err(OpenError::io("sync", &self.dir))?;
        let ids = |stored: &Stored| stored.content.segments.iter().map(|entry| entry.id).collect::<Vec<u32>>();
        let listed: HashSet<u32> = found.kept.iter().flat_map(ids).collect();
        let live: HashSet<u32> = found.kept.last().map(ids).unwrap_or_default().into_iter().collect();
        let (leftovers, orphans): (Vec<u32>, Vec<u32>) =
            self.segments.iter().filter(|id| !live.contains(id)).partition(|id| listed.contains(id));
        let kept = found.kept.iter().map(|stored| Kept { name: stored.name, ids: ids(stored), bytes: stored.bytes });
        let mut tidied = Tidied { kept: kept.collect(), ..Tidied::default() };
        let mut useless: Vec<String> = found.old.iter().map(ToString::to_string).collect();
        let kept_files = found.kept.iter().map(|stored| stored.name.to_string());
        let data = kept_files.chain(listed.iter().map(|id| segment_name(*id))).map(|name| self.dir.join(name));
        let data = KnownFiles::of(disk, data);
        let is_data = |name: &&String| data.has_uncounted(disk, &self.dir.join(name));
        useless.extend(self.unfinished.iter().filter(|name| !is_data(name)).cloned());
        if found.damaged.is_empty() {
            for id in &orphans {
                segments.retire(*id, segments.segment_bytes(), None).map_err(OpenError::Log)?;
            }
            tidied.checkpoints_due = u32::from(!leftovers.is_empty());
        } else {
            let (names, passed_over) = found.damaged.into_iter().unzip();
            tidied.passed_over = passed_over;
            tidied.doubted = Some(Doubted { names, ids: orphans.clone(), written: 0 });
            tidied.checkpoints_due = KEPT as u32;
            segments.adopt(orphans);
        }
        segments.adopt(leftovers);
        // Large files take long to remove. They only lose their names: what is given back has one that nothing else will get.
        for name in useless {
            if name.ends_with(INTAKE_SUFFIX) {
                segments.reaper().retire_found(self.dir.join(name));
            } else {
                segments.retire_named(&name).map_err(OpenError::Log)?;
            }
        }
        for id in self.keys.iter().filter(|id| !with_keys.contains(id)) {
            segments.retire_keys(*id).map_err(OpenError::Log)?;
        }
        clear_low_disk(segments.reaper())?;
        Ok(tidied)
    }
}

/// Gives back at once what is left of earlier processes, if it is much of what is free: nobody waits yet, and the store may need the space.
fn clear_low_disk(reaper: &Reaper) -> Result<(), OpenError> {
    if !reaper.is_urgent() {
        return Ok(());
    }
    match reaper.finish() {
        Err(error) if error.is_fatal => Err(OpenError::io(error.operation, &error.path)(error.source)),
        // What cannot be given back is tried again later.
        _ => Ok(()),
    }
}

/// Makes the sources the segments of the log. Returns the last one if it takes more records; it takes none if the files stay `as_it_is`.
pub(super) fn adopt_segments(
    segments: &Segments,
    sources: Vec<Source>,
    shares: &[Share],
    as_it_is: bool,
) -> Result<Option<Arc<Segment>>, OpenError> {
    let count = sources.len();
    let mut tail = None;
    for (at, (source, share)) in sources.into_iter().zip(shares).enumerate() {
        let is_reopened = at + 1 == count && !as_it_is;
        let keys = source.keys.as_ref().map(KeyFile::keys);
        let (segment, takes_more) =
            if is_reopened { reopen(source, segments.next_capacity())? } else { sealed(source) };
        if let Some(keys) = keys {
            segment.set_keys(keys);
            segments.set_unread(&segment);
        }
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

/// Cuts off what the checkpoint does not cover, and reserves space again: what is after the last record reads as zeros.
fn reopen(source: Source, capacity: u64) -> Result<(Segment, bool), OpenError> {
    let Source { entry, path, file, .. } = &source;
    file.truncate(entry.length).map_err(OpenError::io("truncate", path))?;
    let capacity = capacity.max(entry.length.next_multiple_of(4096)).min(u64::from(u32::MAX));
    match file.allocate(capacity) {
        // A full disk must not prevent a restart. The next record needs a segment, and gets it when the disk has space again.
        Err(error) if disk::is_full(&error) => return Ok(sealed(source)),
        allocated => allocated.map_err(OpenError::io("reserve space for", path))?,
    }
    let mapping = file.map(capacity).map_err(OpenError::io("map", path))?;
    Ok((Segment::new(source.entry.id, source.path, source.file, mapping, Origin::Tail), true))
}
