//! Second names of files that a file system has miscounted.

use crate::{Disk, Mode};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The files that are data, whatever names they have.
pub struct KnownFiles(HashSet<(u64, u64)>);

impl KnownFiles {
    /// Looks at the files at these paths.
    pub fn of(disk: &dyn Disk, paths: impl Iterator<Item = PathBuf>) -> KnownFiles {
        let identity = |path: PathBuf| disk.open(&path, Mode::Own).and_then(|file| file.identity()).ok();
        KnownFiles(paths.filter_map(identity).collect())
    }

    /// Whether the file at `path` is one of them although it seems to have no other name: after a power cut a file system without a journal
    /// may have both names of a rename, and count one. Such a name must be left alone: the data would go, whatever became of the name.
    pub fn has_uncounted(&self, disk: &dyn Disk, path: &Path) -> bool {
        let Ok(file) = disk.open(path, Mode::Own) else { return false };
        let is_known = file.identity().is_ok_and(|identity| self.0.contains(&identity));
        is_known && !file.is_shared().unwrap_or(false)
    }
}
