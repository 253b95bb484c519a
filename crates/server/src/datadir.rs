//! The data directory: who it belongs to, and that nobody else uses it.
//!
//! ```text
//! <data-dir>/member/lock      held while a member runs
//! <data-dir>/member/snap      a regular file with one sentence; where etcd would have a directory, so that etcd refuses
//! <data-dir>/member/lost-log  there once a leader has proven that the log lost what was acknowledged: says what, and how to go on
//! <data-dir>/member/wal/      the Raft log (or --wal-dir)
//! <data-dir>/member/store/    the revision log and its checkpoints
//! ```

use crate::logging::{self, Value};
use disk::{Disk, File, Mode};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SENTINEL: &str =
    "This is a Cairn data directory. This file keeps etcd from starting on it: etcd expects a directory here.\n";

/// What is shown of a mark: it has a few lines.
const MARK_BYTES_MAX: u64 = 64 << 10;

/// An open data directory, locked for this process.
pub struct DataDir {
    /// Directory of the Raft log.
    pub wal: PathBuf,
    /// Directory of the store.
    pub store: PathBuf,
    /// Whether there is a member here already.
    pub initialised: bool,
    _locks: Vec<Arc<dyn File>>,
}

/// Why a data directory cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// etcd's own.
    #[error(
        "`{dir}` holds the data of an etcd member; it was left untouched. Choose another --data-dir, or take the member over: \
         `cairn util migrate --from DIR --data-dir NEW`, then start with NEW"
    )]
    Etcd {
        /// The data directory.
        dir: PathBuf,
    },
    /// In use.
    #[error("`{path}` is locked: another process is using this directory. Stop it, or choose another --data-dir")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// One half is missing.
    #[error(
        "`{found}` exists but `{missing}` does not: the log and the store belong together. Restore the missing directory, \
         or remove both to start this member anew"
    )]
    Half {
        /// What is there.
        found: PathBuf,
        /// What is not.
        missing: PathBuf,
    },
    /// It was marked by [`mark_lost_log`].
    #[error(
        "`{path}` says that this member must not start again: {text}\n`--unsafe-ignore-lost-log` starts it all the same, and may \
         cost writes that the cluster has acknowledged"
    )]
    LogLost {
        /// The mark.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// The operating system refused.
    #[error("cannot {what} `{path}`: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn failed<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> DataDirError + 'a {
    move |source| DataDirError::Io { what, path: path.into(), source }
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
        if let Some(mode) = open_to_others(dir) {
            logging::warn(
                "others can enter the data directory: its permissions should be 0700",
                &[("dir", Value::Shown(&dir.display())), ("permissions", Value::Shown(&format_args!("{mode:04o}")))],
            );
        }
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
        Ok(DataDir { wal, store, initialised: has_log, _locks: locks })
    }
}

fn mark_of(dir: &Path) -> PathBuf {
    dir.join("member").join("lost-log")
}

/// Keeps the member in this data directory from ever starting again, durably. The file alone counts: a power cut may leave it empty.
pub(crate) fn mark_lost_log(disk: &dyn Disk, dir: &Path, text: &str) -> Result<(), DataDirError> {
    let path = mark_of(dir);
    let file = match disk.open(&path, Mode::Create) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        file => file.map_err(failed("create", &path))?,
    };
    // The name first: what it says is only for people.
    sync_parent(disk, &path)?;
    file.write_at(text.as_bytes(), 0).and_then(|()| file.sync_data()).map_err(failed("write", &path))
}

/// Refuses a directory that was marked. If the mark is to be ignored it is removed, durably: the next start needs no flag, and a
/// new proof marks the directory anew.
pub(crate) fn check_lost_log(disk: &dyn Disk, dir: &Path, is_ignored: bool) -> Result<(), DataDirError> {
    let path = mark_of(dir);
    let text = match disk.open(&path, Mode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => read_mark(&*file.map_err(failed("open", &path))?).map_err(failed("read", &path))?,
    };
    if !is_ignored {
        return Err(DataDirError::LogLost { path, text });
    }
    logging::warn(
        "this member goes on with a log that lost what it had acknowledged; the mark in its data directory is removed",
        &[("file", Value::Shown(&path.display())), ("mark", (&text).into())],
    );
    disk.remove(&path).map_err(failed("remove", &path))?;
    sync_parent(disk, &path)
}

fn read_mark(file: &dyn File) -> io::Result<String> {
    let mut bytes = vec![0; file.len()?.min(MARK_BYTES_MAX) as usize];
    file.read_at(&mut bytes, 0)?;
    let text = String::from_utf8_lossy(&bytes).trim().to_string();
    Ok(if text.is_empty() { "its log lost what was acknowledged (what is not known any more)".into() } else { text })
}

fn sync_parent(disk: &dyn Disk, path: &Path) -> Result<(), DataDirError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    disk.sync_dir(parent).map_err(failed("sync", parent))
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
    use disk::sim::SimDisk;

    const DIR: &str = "/data";

    fn disk() -> SimDisk {
        let disk = SimDisk::new();
        disk.install(&Path::new(DIR).join("member/lock"), b"").expect("room");
        disk
    }

    fn check(disk: &SimDisk, is_ignored: bool) -> Result<(), DataDirError> {
        check_lost_log(disk, Path::new(DIR), is_ignored)
    }

    #[test]
    fn a_mark_lasts_until_it_is_ignored() {
        let disk = disk();
        check(&disk, false).expect("no mark");
        mark_lost_log(&disk, Path::new(DIR), "entries 5 and 9\n").expect("it is written");
        mark_lost_log(&disk, Path::new(DIR), "other words").expect("it is there");
        for seed in 0..20 {
            let after = disk.after_cut(seed);
            let refused = check(&after, false).expect_err("marked").to_string();
            assert!(refused.contains("/data/member/lost-log") && refused.contains("entries 5 and 9"), "{refused}");
            assert!(refused.contains("--unsafe-ignore-lost-log"), "{refused}");
            check(&after, true).expect("it is told to");
            for seed in 0..20 {
                check(&after.after_cut(seed), false).expect("the mark is gone for good");
            }
        }
    }

    /// Wherever the power goes while the mark is written: once its name is there, the member does not start.
    #[test]
    fn half_a_mark_is_one() {
        let whole = disk();
        mark_lost_log(&whole, Path::new(DIR), &"x".repeat(2000)).expect("it is written");
        let mut marked = 0;
        for operation in 0..whole.operations() {
            for seed in 0..20 {
                let disk = disk();
                disk.cut_at(operation);
                mark_lost_log(&disk, Path::new(DIR), &"x".repeat(2000)).expect_err("the power is off");
                let after = disk.after_cut(seed);
                let has_name =
                    after.list(&Path::new(DIR).join("member")).expect("it is there").contains(&"lost-log".into());
                assert_eq!(check(&after, false).is_err(), has_name);
                marked += usize::from(has_name);
            }
        }
        assert!(marked > 0);
    }
}
