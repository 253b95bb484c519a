//! The mark of a data directory whose Raft log is proven to have lost what it acknowledged, or was exported and may have been left behind.

use super::error::{DataDirError, failed};
use crate::{Disk, File, Mode};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a mark that are shown.
const MARK_BYTES_MAX: u64 = 64 << 10;

/// A mark that was removed because of `--unsafe-ignore-lost-log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredMark {
    /// Its file.
    pub path: PathBuf,
    /// What it said.
    pub text: String,
}

fn mark_of(dir: &Path) -> PathBuf {
    dir.join("member").join("lost-log")
}

/// Marks this data directory durably, so that its member never starts again. The file itself is the mark: a power cut may leave it empty.
pub fn mark_lost_log(disk: &dyn Disk, dir: &Path, text: &str) -> Result<(), DataDirError> {
    let path = mark_of(dir);
    let file = match disk.open(&path, Mode::Create) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        file => file.map_err(failed("create", &path))?,
    };
    // The name first: the text is only for people.
    sync_parent(disk, &path)?;
    file.write_at(text.as_bytes(), 0).and_then(|()| file.sync_data()).map_err(failed("write", &path))
}

/// Refuses a directory that was marked. If the mark is to be ignored it is removed, durably, and returned: the next start needs no
/// flag, and a new proof marks the directory anew.
pub fn check_lost_log(disk: &dyn Disk, dir: &Path, is_ignored: bool) -> Result<Option<IgnoredMark>, DataDirError> {
    let path = mark_of(dir);
    let text = match disk.open(&path, Mode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => read_mark(&*file.map_err(failed("open", &path))?).map_err(failed("read", &path))?,
    };
    if !is_ignored {
        return Err(DataDirError::LogLost { path, text });
    }
    disk.remove(&path).map_err(failed("remove", &path))?;
    sync_parent(disk, &path)?;
    Ok(Some(IgnoredMark { path, text }))
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

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::sim::SimDisk;

    const DIR: &str = "/data";

    fn disk() -> SimDisk {
        let disk = SimDisk::new();
        disk.install(&Path::new(DIR).join("member/lock"), b"").expect("room");
        disk
    }

    fn check(disk: &SimDisk, is_ignored: bool) -> Result<Option<IgnoredMark>, DataDirError> {
        check_lost_log(disk, Path::new(DIR), is_ignored)
    }

    #[test]
    fn a_mark_lasts_until_it_is_ignored() {
        let disk = disk();
        assert!(check(&disk, false).expect("no mark").is_none());
        mark_lost_log(&disk, Path::new(DIR), "entries 5 and 9\n").expect("it is written");
        mark_lost_log(&disk, Path::new(DIR), "other words").expect("it is there");
        for seed in 0..20 {
            let after = disk.after_cut(seed);
            let refused = check(&after, false).expect_err("marked").to_string();
            assert!(refused.contains("/data/member/lost-log") && refused.contains("entries 5 and 9"), "{refused}");
            assert!(refused.contains("--unsafe-ignore-lost-log"), "{refused}");
            let ignored = check(&after, true).expect("it is told to").expect("there was a mark");
            assert_eq!(ignored.text, "entries 5 and 9");
            for seed in 0..20 {
                assert!(check(&after.after_cut(seed), false).expect("the mark is gone for good").is_none());
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
