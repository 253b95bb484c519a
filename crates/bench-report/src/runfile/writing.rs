//! Files that are there whole or not at all.

use std::fs::{File, Metadata, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use super::Run;

/// Limit of symbolic links to follow; the kernel's limit.
const LINKS_MAX: usize = 40;

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{0}`: {1}")]
pub(crate) struct WriteError(String, io::Error);

/// Replaces the file `path` by `run`.
pub(crate) fn write(path: &Path, run: &Run) -> Result<(), WriteError> {
    let failed = |error: serde_json::Error| WriteError(path.display().to_string(), error.into());
    let mut text = serde_json::to_vec_pretty(run).map_err(failed)?;
    text.push(b'\n');
    replace(path, &text)
}

/// Replaces the file `path` by `content`. If this or the power fails, the old content is still there. A symbolic link
/// stays, and its target is replaced. Devices, pipes and descriptors of this process are written to instead, since
/// other processes may write to the same file.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), WriteError> {
    let put = || {
        if let Some(number) = descriptor(path) {
            return opened(number)?.write_all(content);
        }
        match std::fs::metadata(path) {
            Ok(found) => match named(path, &found) {
                Some(file) => exchange(&file, content, Some(found)),
                None => OpenOptions::new().write(true).open(path)?.write_all(content),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => exchange(&end_of_links(path)?, content, None),
            Err(error) => Err(error),
        }
    };
    put().map_err(|error| WriteError(path.display().to_string(), error))
}

/// Whether two paths lead to the same file, existing or not. False for devices and pipes, to which any number of
/// writers may write.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    match (std::fs::metadata(one), std::fs::metadata(other)) {
        (Ok(one), Ok(other)) => one.is_file() && is_same(&one, &other),
        (Err(_), Err(_)) => matches!((place(one), place(other)), (Some(one), Some(other)) if one == other),
        _ => false,
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether rows can be written to `path` and read again: the path is free, or a file that can be replaced.
pub(crate) fn is_replaceable(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => descriptor(path).is_none() && named(path, &found).is_some(),
        Err(_) => true,
    }
}

/// The number of a descriptor of this process, if `path` names one.
fn descriptor(path: &Path) -> Option<RawFd> {
    let own = std::fs::canonicalize("/proc/self/fd").ok()?;
    let mut path = std::path::absolute(path).ok()?;
    for _ in 0..LINKS_MAX {
        let directory = std::fs::canonicalize(parent(&path)).ok()?;
        if directory == own {
            return path.file_name()?.to_str()?.parse().ok();
        }
        path = directory.join(std::fs::read_link(&path).ok()?);
    }
    None
}

/// The open file of a descriptor, with its position: a file opened by its name would begin at 0.
fn opened(number: RawFd) -> io::Result<File> {
    // SAFETY: a number is all that is taken; one that is not open is an error.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the copy is nobody else's.
    Ok(unsafe { File::from_raw_fd(copy) })
}

/// The name by which a file can be replaced. `None` if it has none, as for some links of `/proc`.
fn named(path: &Path, found: &Metadata) -> Option<PathBuf> {
    let name = std::fs::canonicalize(path).ok().filter(|_| found.is_file())?;
    std::fs::metadata(&name).is_ok_and(|there| is_same(&there, found)).then_some(name)
}

/// The path of a file that does not exist yet: its real directory, and its name in it.
fn place(path: &Path) -> Option<PathBuf> {
    let end = end_of_links(path).ok()?;
    Some(std::fs::canonicalize(parent(&end)).ok()?.join(end.file_name()?))
}

/// The target of a chain of symbolic links, even if it does not exist.
fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    let mut end = path.to_owned();
    for _ in 0..LINKS_MAX {
        match std::fs::read_link(&end) {
            Ok(next) => end = parent(&end).join(next),
            Err(_) => return Ok(end),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a new file and renames it to `path`, with the permissions of the old file and, if possible, its owner.
fn exchange(path: &Path, content: &[u8], before: Option<Metadata>) -> io::Result<()> {
    let directory = parent(path);
    let (temporary, mut file) = create(directory)?;
    let put = || {
        file.write_all(content)?;
        if let Some(before) = before {
            // Only root can change the owner; otherwise the file is ours, like every new one. This comes before the
            // permissions, because it clears some of them.
            let _ = fchown(&file, Some(before.uid()), Some(before.gid()))
                .or_else(|_| fchown(&file, None, Some(before.gid())));
            file.set_permissions(before.permissions())?;
        }
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        File::open(directory)?.sync_all()
    };
    put().inspect_err(|_| {
        // An error of the removal does not matter; the first error is returned.
        let _ = std::fs::remove_file(&temporary);
    })
}

/// Creates a file under a new name that could not have been guessed and created by others.
fn create(directory: &Path) -> io::Result<(PathBuf, File)> {
    let path = directory.join(format!(".cairn-bench.{:016x}.tmp", RandomState::new().hash_one(0_u8)));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    Ok((path, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    /// An empty directory with a name of its own.
    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("cairn-writing-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        dir
    }

    fn node(path: &Path, mode: u32, device: libc::dev_t) -> bool {
        let path = CString::new(path.to_str().expect("text")).expect("no zero");
        // SAFETY: the path is valid for the call.
        unsafe { libc::mknod(path.as_ptr(), mode | 0o600, device) == 0 }
    }

    #[test]
    fn links_stay_and_so_do_the_files_of_others() {
        let dir = directory("links");
        let [link, target, absent, loose, other] =
            ["link", "target", "absent", "loose", "link.tmp"].map(|name| dir.join(name));
        std::fs::write(&target, "old").expect("written");
        std::fs::set_permissions(&target, PermissionsExt::from_mode(0o640)).expect("ours");
        std::fs::write(&other, "mine").expect("written");
        symlink("target", &link).expect("linked");
        symlink("absent", &loose).expect("linked");
        replace(&link, b"new").expect("room");
        replace(&loose, b"new").expect("room");
        for path in [&link, &loose] {
            assert!(path.is_symlink() && std::fs::read(path).is_ok_and(|text| text == b"new"), "{}", path.display());
        }
        assert!(target.is_file() && absent.is_file());
        assert_eq!(std::fs::metadata(&target).expect("there").mode() & 0o777, 0o640);
        assert_eq!(std::fs::read(&other).expect("there"), b"mine");
        assert_eq!(std::fs::read_dir(&dir).expect("a directory").count(), 5, "no temporary file stays");
        let round = dir.join("round");
        symlink("round", &round).expect("linked");
        assert!(replace(&round, b"x").is_err() && round.is_symlink());
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn what_is_no_file_is_written_to() {
        let dir = directory("devices");
        let pipe = dir.join("pipe");
        assert!(node(&pipe, libc::S_IFIFO, 0));
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe)
        });
        replace(&pipe, b"through").expect("a reader");
        assert_eq!(reader.join().expect("no panic").expect("read"), b"through");
        // Only root can make a device, and not in every container.
        let null = dir.join("null");
        if node(&null, libc::S_IFCHR, libc::makedev(1, 3)) && std::fs::write(&null, "x").is_ok() {
            replace(&null, b"nowhere").expect("it takes everything");
            assert!(std::fs::metadata(&null).expect("there").file_type().is_char_device());
            assert!(!is_same_file(&null, &null), "two may write to it");
        }
        assert!(replace(&dir, b"x").is_err() && dir.is_dir());
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn what_is_open_is_written_to_where_it_stands() {
        use std::os::fd::AsRawFd;
        let dir = directory("open");
        let [notes, link] = ["notes", "link"].map(|name| dir.join(name));
        std::fs::write(&notes, "old ").expect("written");
        let file = OpenOptions::new().append(true).open(&notes).expect("there");
        let number = file.as_raw_fd();
        symlink(format!("/dev/fd/{number}"), &link).expect("linked");
        for path in [format!("/dev/fd/{number}").into(), format!("/proc/self/fd/{number}").into(), link] {
            replace(&path, b"new ").expect("room");
            assert!(!is_replaceable(&path), "{}", path.display());
        }
        assert_eq!(std::fs::read(&notes).expect("there"), b"old new new new ");
        assert!(is_replaceable(&notes) && is_replaceable(&dir.join("absent")));
        assert!(!is_replaceable(&dir));
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn files_are_known_by_whatever_name() {
        let dir = directory("names");
        let [file, hard, soft, new] = ["file", "hard", "soft", "new"].map(|name| dir.join(name));
        std::fs::write(&file, "").expect("written");
        std::fs::hard_link(&file, &hard).expect("linked");
        symlink(&file, &soft).expect("linked");
        for other in [&file, &hard, &soft, &dir.join("./file")] {
            assert!(is_same_file(&file, other), "{}", other.display());
        }
        assert!(is_same_file(&new, &dir.join(".").join("new")), "it is not there yet");
        assert!(!is_same_file(&file, &new) && !is_same_file(&new, &dir.join("newer")));
        std::fs::remove_dir_all(&dir).expect("ours");
    }
}
