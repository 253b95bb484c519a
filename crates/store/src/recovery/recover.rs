//! From the files of a store to its parts, or an empty store where there are no files.

use super::files::{Files, Found};
use super::rebuild::LeasedKeys;
use super::{OpenError, Source, rebuild, tidy};
use crate::index::Index;
use crate::log::{Log, Options, Segments, key_file_name};
use crate::sorting::Crew;
use crate::upkeep::checkpoint::{Checkpoint, Checkpoints};
use disk::Disk;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A store as it was at its newest checkpoint.
pub(crate) struct Recovered {
    /// What the checkpoint says.
    pub(crate) checkpoint: Checkpoint,
    /// Writes the next ones.
    pub(crate) checkpoints: Checkpoints,
    /// Appends after what the checkpoint covers.
    pub(crate) log: Log,
    /// The read side of the log.
    pub(crate) segments: Arc<Segments>,
    /// Every version that the last compaction left which the checkpoint has as finished.
    pub(crate) index: Index,
    /// The keys that hang on leases.
    pub(crate) leased: LeasedKeys,
    /// Key files that were not used, and why.
    pub(crate) refused: Vec<(PathBuf, &'static str)>,
    /// Key files that were used.
    pub(crate) used_keys: usize,
    /// Damaged checkpoints that were passed over.
    pub(crate) passed_over: Vec<OpenError>,
    /// Checkpoints that let files go which nothing reads any more.
    pub(crate) checkpoints_due: u32,
}

/// Opens the store in `dir`, or creates one there. Without `uses_key_files` every record is read.
pub(crate) fn recover(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: Options,
    uses_key_files: bool,
) -> Result<Recovered, OpenError> {
    disk.create_dir(dir).map_err(OpenError::io("create", dir))?;
    let files = Files::list(&*disk, dir)?;
    let found = files.read_checkpoints(&*disk)?;
    let Some(newest) = found.kept.last() else {
        let segments = Segments::new(Arc::clone(&disk), dir, options, files.next_id(&[])?);
        return create(disk, dir, &files, segments);
    };
    let checkpoint = newest.content.clone();
    let mut sources = Source::open_all(&*disk, dir, &checkpoint)?;
    if uses_key_files {
        Source::open_keys(&*disk, &mut sources);
    }
    let rebuilt = rebuild(&mut sources, checkpoint.finished_compaction(), Crew::of_a_start())?;
    let refused =
        sources.iter().filter_map(|source| Some((dir.join(key_file_name(source.entry.id)), source.refused?.0)));
    let refused = refused.collect();
    let used_keys = sources.iter().filter(|source| source.keys.is_some()).count();
    let segments = Arc::new(Segments::new(Arc::clone(&disk), dir, options, files.next_id(&found.kept)?));
    // Those that were used, or could have been.
    let with_keys = sources.iter().filter(|source| match uses_key_files {
        true => source.keys.is_some(),
        false => source.entry.keys_crc.is_some(),
    });
    let with_keys = with_keys.map(|source| source.entry.id).collect();
    // What a damaged checkpoint may cover after the end of an older one is not cut off.
    let is_behind = found.is_behind();
    let tidied = files.tidy(&*disk, found, &segments, &with_keys)?;
    let tail = tidy::adopt_segments(&segments, sources, &rebuilt.shares, is_behind)?;
    let last = checkpoint.segments.last().map(|entry| entry.last()).unwrap_or_default();
    Ok(Recovered {
        checkpoint,
        checkpoints: Checkpoints::new(disk, dir, Arc::clone(&segments), tidied.kept, tidied.doubted),
        log: Log::new(Arc::clone(&segments), tail, last),
        segments,
        index: rebuilt.index,
        leased: rebuilt.leased,
        refused,
        used_keys,
        passed_over: tidied.passed_over,
        checkpoints_due: tidied.checkpoints_due,
    })
}

/// Begins an empty store. Its first checkpoint is durable before the first segment is created, so segments without a
/// checkpoint are never the trace of a power cut.
pub(super) fn create(
    disk: Arc<dyn Disk>,
    dir: &Path,
    files: &Files,
    segments: Segments,
) -> Result<Recovered, OpenError> {
    files.check_fresh()?;
    let segments = Arc::new(segments);
    files.tidy(&*disk, Found::default(), &segments, &HashSet::new())?;
    sync_ancestors(&*disk, dir)?;
    let mut checkpoints = Checkpoints::new(disk, dir, Arc::clone(&segments), Vec::new(), None);
    let checkpoint = Checkpoint::initial();
    checkpoints.write(checkpoint.clone(), segments.listing())?;
    let log = Log::new(Arc::clone(&segments), None, Default::default());
    Ok(Recovered {
        checkpoint,
        checkpoints,
        log,
        segments,
        index: Index::new(),
        leased: LeasedKeys::default(),
        refused: Vec::new(),
        used_keys: 0,
        passed_over: Vec::new(),
        checkpoints_due: 0,
    })
}

/// Makes the directory itself durable. Any of its ancestors may be new, or left by an attempt that did not come this far.
fn sync_ancestors(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    for ancestor in dir.ancestors().skip(1) {
        let ancestor = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
        match disk.sync_dir(ancestor) {
            // One that may not even be read was not made by us.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            synced => synced.map_err(OpenError::io("sync", ancestor))?,
        }
    }
    Ok(())
}
