//! The data directory: its layout, its owner and its locks.
//!
//! ```text
//! <data-dir>/member/lock      held while a member runs
//! <data-dir>/member/snap      a regular file with one sentence; where etcd would have a directory, so that etcd refuses
//! <data-dir>/member/lost-log  there once a leader has proven that the log lost what was acknowledged, or once the member was exported to
//!                             etcd: says what, and how to go on
//! <data-dir>/member/observer, observer-level  there if this is an observer's, and once it has had what the cluster had
//! <data-dir>/member/wal/      the Raft log (or --wal-dir)
//! <data-dir>/member/store/    the revision log and its checkpoints
//! ```

mod error;
mod lost_log;
mod observer;

pub use error::DataDirError;
pub use lost_log::{IgnoredMark, check_lost_log, mark_lost_log};
pub use observer::{ObserverMark, check_observer, mark_observer};

use crate::{Disk, File, Mode};
use error::failed;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SENTINEL: &str =
    "This is a Cairn data directory. This file keeps etcd from starting on it: etcd expects a directory here.\n";

/// An open data directory, locked for this process.
pub struct DataDir {
    /// Directory of the Raft log.
    pub wal: PathBuf,
    /// Directory of the store.
    pub store: PathBuf,
    /// Whether there is a member here already.
    pub initialised: bool,
    /// The permissions that `<data-dir>` had when it was opened, if they let others than its owner in.
    pub open_to_others: Option<u32>,
    _locks: Vec<Arc<dyn File>>,
}

impl DataDir {
    /// Opens or creates the directory and locks it.
    pub fn open(disk: &dyn Disk, dir: &Path, wal_dir: Option<&Path>) -> Result<DataDir, DataDirError> {
        let member = dir.join("member");
        let sentinel = member.join("snap");
        let wal = wal_dir.map_or_else(|| member.join("wal"), Path::to_path_buf);
        let store = member.join("store");
        // Looked at before anything is created: a directory that is not ours stays as it is.
        let has_log = has_file(disk, &wal, ".wal");
        let has_store = disk.list(&store).is_ok();
        let has_etcd_snapshots = disk.list(&sentinel).is_ok();
        let has_sentinel = disk.open(&sentinel, Mode::Read).is_ok();
        if has_etcd_snapshots || (has_log && !has_sentinel && !has_store) {
            return Err(DataDirError::Etcd { dir: if has_etcd_snapshots { dir.into() } else { wal } });
        }
        if has_log && !has_store {
            return Err(DataDirError::Half { found: wal, missing: store });
        }
        if has_file(disk, &store, ".ckpt") && !has_log {
            return Err(DataDirError::Half { found: store, missing: wal });
        }
        let open_to_others = open_to_others(dir);
        for path in [dir, &member, &wal, &store] {
            disk.create_dir(path).map_err(failed("create", path))?;
        }
        let mut locks = Vec::new();
        for path in [member.join("lock"), wal.join("lock")] {
            locks.push(lock(disk, &path)?);
        }
        if !has_sentinel {
            let file = disk.open(&sentinel, Mode::Create).map_err(failed("create", &sentinel))?;
            file.write_at(SENTINEL.as_bytes(), 0)
                .and_then(|()| file.sync_data())
                .and_then(|()| disk.sync_dir(&member))
                .map_err(failed("write", &sentinel))?;
        }
        // A directory survives a power cut once its parent is synced.
        for path in [dir.parent(), Some(dir), Some(&member), wal.parent()].into_iter().flatten() {
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            disk.sync_dir(path).map_err(failed("sync", path))?;
        }
        Ok(DataDir { wal, store, initialised: has_log, open_to_others, _locks: locks })
    }
}

/// Whether a member has a Raft log here, ours or etcd's. Creates nothing.
pub fn has_member(disk: &dyn Disk, dir: &Path, wal_dir: Option<&Path>) -> bool {
    has_file(disk, wal_dir.unwrap_or(&dir.join("member").join("wal")), ".wal")
}

fn lock(disk: &dyn Disk, path: &Path) -> Result<Arc<dyn File>, DataDirError> {
    let file = match disk.open(path, Mode::Create) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => disk.open(path, Mode::Write),
        other => other,
    };
    let file = file.map_err(failed("open", path))?;
    match file.lock() {
        Ok(()) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(DataDirError::Locked { path: path.into() }),
        Err(error) => Err(failed("lock", path)(error)),
    }
}

/// The permissions of a directory that is there, if they let others than its owner in.
fn open_to_others(dir: &Path) -> Option<u32> {
    let mode = std::fs::metadata(dir).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

fn has_file(disk: &dyn Disk, dir: &Path, suffix: &str) -> bool {
    disk.list(dir).is_ok_and(|names| names.iter().any(|name| name.ends_with(suffix)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimDisk;

    const DIR: &str = "/data";

    fn refusal(disk: &SimDisk) -> String {
        match DataDir::open(disk, Path::new(DIR), None) {
            Ok(_) => "none".into(),
            Err(error) => error.to_string(),
        }
    }

    /// A log without its store and a store without its log are refused, both ways and with both paths, and nothing is made.
    #[test]
    fn half_a_member_is_none() {
        let member = Path::new(DIR).join("member");
        let halves = [("wal/0.wal", "snap", "wal", "store"), ("store/1.ckpt", "snap", "store", "wal")];
        for (file, sentinel, found, missing) in halves {
            let disk = SimDisk::new();
            disk.install(&member.join(file), b"something").expect("room");
            disk.install(&member.join(sentinel), SENTINEL.as_bytes()).expect("room");
            let refused = refusal(&disk);
            let wanted = format!("`/data/member/{found}` exists but `/data/member/{missing}` does not");
            assert!(refused.starts_with(&wanted), "{refused}");
            assert!(disk.list(&member.join(missing)).is_err() && disk.open(&member.join("lock"), Mode::Read).is_err());
        }
    }
}
