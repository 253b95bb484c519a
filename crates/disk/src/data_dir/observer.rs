//! The marks of an observer's data directory: what is in it is in no cluster's configuration, and must never vote.

use super::error::{DataDirError, failed};
use crate::{Disk, Mode};
use std::io;
use std::path::{Path, PathBuf};

/// A mark of an observer's directory. The file itself is the mark; its text is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserverMark {
    /// It is an observer's. Made before the log is.
    Observer,
    /// The observer has had everything that the cluster had at some time: what is there may be shown before anybody is reached.
    Level,
}

impl ObserverMark {
    fn path(self, dir: &Path) -> PathBuf {
        dir.join("member").join(match self {
            ObserverMark::Observer => "observer",
            ObserverMark::Level => "observer-level",
        })
    }

    fn text(self) -> &'static str {
        match self {
            ObserverMark::Observer => {
                "This is the data directory of an observer: a start without --observer refuses it. A member needs an empty directory.\n"
            }
            ObserverMark::Level => "This observer has once had everything that its cluster had.\n",
        }
    }
}

/// Whether the directory has this mark.
pub fn check_observer(disk: &dyn Disk, dir: &Path, mark: ObserverMark) -> Result<bool, DataDirError> {
    let path = mark.path(dir);
    match disk.open(&path, Mode::Read) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("open", &path)(error)),
    }
}

/// Marks the directory durably.
pub fn mark_observer(disk: &dyn Disk, dir: &Path, mark: ObserverMark) -> Result<(), DataDirError> {
    let path = mark.path(dir);
    let file = match disk.open(&path, Mode::Create) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        file => file.map_err(failed("create", &path))?,
    };
    let parent = path.parent().unwrap_or(Path::new("."));
    file.write_at(mark.text().as_bytes(), 0).and_then(|()| file.sync_data()).map_err(failed("write", &path))?;
    disk.sync_dir(parent).map_err(failed("sync", parent))
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::sim::SimDisk;

    #[test]
    fn marks_outlast_a_power_cut() {
        let (disk, dir) = (SimDisk::new(), Path::new("/data"));
        disk.install(&dir.join("member/lock"), b"").expect("room");
        let has = |disk: &SimDisk, mark| check_observer(disk, dir, mark).expect("it can be read");
        assert!(!has(&disk, ObserverMark::Observer));
        mark_observer(&disk, dir, ObserverMark::Observer).expect("it is written");
        mark_observer(&disk, dir, ObserverMark::Observer).expect("it is there");
        for seed in 0..20 {
            let after = disk.after_cut(seed);
            assert!(has(&after, ObserverMark::Observer) && !has(&after, ObserverMark::Level));
        }
    }
}
