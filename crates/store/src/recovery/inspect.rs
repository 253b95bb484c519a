//! Reading a store that is not open, without changing it.

use super::files::Files;
use super::{OpenError, Source, rebuild};
use crate::sorting::Crew;
use disk::Disk;
use std::path::Path;

/// What a store holds.
#[derive(Debug)]
pub struct Inspection {
    /// Index of the last entry of the Raft log that its newest checkpoint covers.
    pub applied_index: u64,
    /// Its term.
    pub applied_term: u64,
    /// All of it came from elsewhere, and the Raft log may not know of it yet.
    pub installed: bool,
    /// Revision of the last change.
    pub revision: i64,
    /// The oldest revision that can be read; -1 if nothing was compacted yet.
    pub compact_revision: i64,
    /// Segments of the revision log.
    pub segments: usize,
    /// Records in them.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes of records that can still be read.
    pub live_bytes: u64,
    /// Leases that are granted.
    pub leases: usize,
    /// Damaged checkpoints: one of the two that are kept may be.
    pub damaged: Vec<OpenError>,
}

/// Verifies every checksum of the store in `dir`.
///
/// # Errors
/// The first damage, with file and offset; or that there is no store.
pub fn inspect(disk: &dyn Disk, dir: &Path) -> Result<Inspection, OpenError> {
    let files = Files::list(disk, dir)?;
    let found = files.read_checkpoints(disk)?;
    let Some(newest) = found.kept.last() else {
        let absent = std::io::Error::new(std::io::ErrorKind::NotFound, "there is no checkpoint");
        return Err(OpenError::io("open a store in", dir)(absent));
    };
    let content = &newest.content;
    // Without the key files: every record is read.
    let mut sources = Source::open_all(disk, dir, content)?;
    let rebuilt = rebuild(&mut sources, content.compact_revision, Crew::of_a_start())?;
    Ok(Inspection {
        applied_index: content.applied_index,
        applied_term: content.applied_term,
        installed: content.installed,
        revision: content.revision,
        compact_revision: content.compact_revision,
        segments: content.segments.len(),
        records: content.segments.iter().map(|entry| entry.records).sum(),
        bytes: content.segments.iter().map(|entry| entry.length).sum(),
        live_bytes: rebuilt.shares.iter().map(|share| share.live).sum(),
        leases: content.leases.len(),
        damaged: found.damaged.into_iter().map(|(_, error)| error).collect(),
    })
}
