//! The directory that is tested, and the one file that is made there.

use crate::checks::format::bytes;
use crate::failure::{Failure, Outcome, code};
use crate::print::json::Object;
use disk::{Disk, OsDisk};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What is left free beside the file: a member that runs there must not be hindered, and keeps a segment of its log in reserve.
const SPARED_BYTES: u64 = 64 << 20;

/// A directory, and what it lies on.
pub(in crate::checks) struct Place {
    dir: PathBuf,
    file_system: &'static str,
    free_bytes: u64,
}

impl Place {
    /// The directory to test: `named`, or the one that a member would use.
    pub(in crate::checks) fn find(named: &str) -> Outcome<Place> {
        let (dir, source) = match (named, std::env::var_os("ETCD_DATA_DIR")) {
            ("", Some(variable)) if !variable.is_empty() => (PathBuf::from(variable), " (from $ETCD_DATA_DIR)"),
            ("", _) => (PathBuf::from("default.etcd"), " (the default; name another with --data-dir)"),
            (named, _) => (PathBuf::from(named), ""),
        };
        let bad = |why: &str| Failure::new(code::IO, format!("data directory `{}`{source}: {why}", dir.display()));
        let metadata = std::fs::metadata(&dir).map_err(|error| bad(&error.to_string()))?;
        if !metadata.is_dir() {
            return Err(bad("it is no directory"));
        }
        let free_bytes = OsDisk::default().free_bytes(&dir).map_err(|error| bad(&error.to_string()))?;
        let file_system = file_system(&dir);
        Ok(Place { dir, file_system, free_bytes })
    }

    pub(in crate::checks) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(in crate::checks) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    pub(in crate::checks) fn is_memory(&self) -> bool {
        self.file_system == TMPFS
    }

    /// `path` (file system, space).
    pub(in crate::checks) fn shown(&self) -> String {
        let remark = if self.is_memory() { "; memory, no disk" } else { "" };
        format!("`{}` ({}, {} free{remark})", self.dir.display(), self.file_system, bytes(self.free_bytes))
    }

    /// A JSON object with the directory, to which the caller adds.
    pub(in crate::checks) fn json(&self) -> Object {
        let object = Object::default().text("dir", &self.dir.to_string_lossy());
        object.text("fileSystem", self.file_system).raw("freeBytes", self.free_bytes)
    }

    /// Makes a file of its own that has room for `size` bytes.
    pub(super) fn scratch(&self, size: u64) -> Outcome<Scratch> {
        let needed = size + SPARED_BYTES;
        if self.free_bytes < needed {
            let text = format!(
                "no room in `{}`: {} are free, and {} with what is to stay free are needed (see --size)",
                self.dir.display(),
                bytes(self.free_bytes),
                bytes(needed)
            );
            return Err(Failure::new(code::IO, text));
        }
        Scratch::create(&self.dir, size)
    }
}

/// A file without a name: it ends with the process, however that ends.
pub(super) struct Scratch {
    pub(super) file: File,
    /// The same past the page cache; none where the file system has nothing else.
    pub(super) direct: Option<File>,
}

impl Scratch {
    fn create(dir: &Path, size: u64) -> Outcome<Scratch> {
        // In containers all processes have the same number.
        let path = dir.join(format!("cairn-check-disk.{:016x}", RandomState::new().hash_one(0_u8)));
        let bad = |error: std::io::Error| Failure::new(code::IO, format!("cannot make `{}`: {error}", path.display()));
        let options = || OpenOptions::new().read(true).write(true).mode(0o600).to_owned();
        let file = options().create_new(true).open(&path).map_err(bad)?;
        let direct = options().custom_flags(libc::O_DIRECT).open(&path).ok();
        // It is still empty: a kill before this leaves an empty file, and later nothing.
        std::fs::remove_file(&path).map_err(bad)?;
        reserve(&file, size).map_err(bad)?;
        Ok(Scratch { file, direct })
    }
}

/// Has the file system find room for the file, as `fio` and members do before they write.
fn reserve(file: &File, size: u64) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let size = libc::off_t::try_from(size).map_err(std::io::Error::other)?;
    // SAFETY: no pointers are passed, and the descriptor is open.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, size) } == 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error() {
        // Not every file system can.
        error if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)) => Ok(()),
        error => Err(error),
    }
}

const TMPFS: &str = "tmpfs";

/// What the directory lies on, by the numbers of `statfs(2)`.
fn file_system(dir: &Path) -> &'static str {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else { return "unknown" };
    // SAFETY: plain numbers, for which zero is a value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut found) } != 0 {
        return "unknown";
    }
    match found.f_type as u32 {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0x0102_1994 => TMPFS,
        0x794c_7630 => "overlayfs",
        0x6969 => "nfs",
        0xff53_4d42 | 0xfe53_4d42 => "smb",
        0x6573_5546 => "fuse",
        _ => "unknown file system",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_no_name() {
        let dir = std::env::temp_dir().join(format!("cairn-check-place-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("made");
        // A leftover of an earlier run does no harm.
        let left = dir.join(format!("cairn-check-disk.{}", std::process::id()));
        std::fs::write(&left, "left").expect("written");
        let place = Place::find(&dir.to_string_lossy()).expect("a directory");
        let scratches = [place.scratch(4096), place.scratch(4096)];
        for scratch in scratches {
            let file = scratch.expect("made").file;
            assert!(file.metadata().is_ok_and(|found| found.len() == 4096 || found.len() == 0));
        }
        assert_eq!(std::fs::read_dir(&dir).expect("a directory").count(), 1, "what was there before");
        assert!(place.scratch(u64::MAX / 2).is_err_and(|failure| failure.text.starts_with("no room in")));
        let other = Place::find(&dir.join("absent").to_string_lossy());
        assert!(other.is_err_and(|failure| failure.text.contains("absent`: No such file")));
        std::fs::remove_dir_all(&dir).expect("ours");
    }
}
