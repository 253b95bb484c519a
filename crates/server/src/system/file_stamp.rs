//! Whether a file has changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Tells a file from what it was before: device, inode, length, and the times of its last changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64, u64, u64, (i64, i64), (i64, i64));

/// How files look now; none for one that cannot be looked at.
pub(crate) fn stamps(files: &[impl AsRef<Path>]) -> Vec<Option<Stamp>> {
    let stamp = |path: &Path| {
        let data = std::fs::metadata(path).ok()?;
        let (modified, changed) = ((data.mtime(), data.mtime_nsec()), (data.ctime(), data.ctime_nsec()));
        Some(Stamp(data.dev(), data.ino(), data.len(), modified, changed))
    };
    files.iter().map(|path| stamp(path.as_ref())).collect()
}
