//! A stopped etcd's data directory becomes this member's where it lies: `cairn serve --adopt-etcd-data`.
//!
//! ```text
//! <data-dir>/adopting/           the new data, until it is complete
//! <data-dir>/adopting/ready      there once it is complete: names the backup. From then on the adoption is finished, never begun anew
//! <data-dir>/etcd-backup-TIME/   what was member/
//! <wal-dir>.adopting/            the new log, if --wal-dir names a directory of its own
//! <wal-dir>-etcd-backup-TIME/    what was <wal-dir>/
//! ```
//!
//! A kill at any step leaves either etcd's files as they were, or an adoption that the next start finishes.

use crate::migrate::take_over;
use crate::steps::Steps;
use crate::{Database, Error, Migrated};
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What an adoption did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// What was taken over. None: an earlier start had done that part, and was killed before the end.
    pub migrated: Option<Migrated>,
    /// Where etcd's files are now.
    pub backup: PathBuf,
}

/// Makes the data of a stopped etcd 3.5 - 3.7 in `data_dir` this member's, if `may_begin`, and finishes an adoption that was
/// interrupted. None: there is nothing of etcd here. A process that uses the data has `patience` to end.
///
/// # Errors
/// If the data is in use or damaged, or a directory cannot be renamed. etcd's files are untouched then, or the next call goes on.
pub fn adopt(
    data_dir: &Path,
    wal_dir: Option<&Path>,
    may_begin: bool,
    patience: Duration,
) -> Result<Option<Adopted>, Error> {
    let path = data_dir.join("member").join("snap").join("db");
    let take = |own: &Database, from_wal: Option<&Path>, to: &Path, to_wal: Option<&PathBuf>| {
        take_over(data_dir, from_wal, own, to, to_wal, patience)
    };
    let wal_dir = elsewhere(data_dir, wal_dir)?;
    let adoption = Adoption { data_dir, wal_dir: wal_dir.as_deref(), steps: Steps::all() };
    adoption.run(may_begin, || Database::open_unused(&path, patience), take)
}

/// The directory of the log, if it is not the usual one: that moves with `member/`.
fn elsewhere(data_dir: &Path, wal_dir: Option<&Path>) -> Result<Option<PathBuf>, Error> {
    let Some(wal_dir) = wal_dir else { return Ok(None) };
    let (log, member) = (real(wal_dir)?, real(data_dir)?.join("member"));
    if log == real(&member.join("wal"))? {
        return Ok(None);
    }
    if log.starts_with(&member) {
        return Err(Error::WalDir { wal_dir: wal_dir.into(), member: data_dir.join("member") });
    }
    Ok(Some(log))
}

/// Refuses a directory of the log within the member's own that is not the usual one: there are other files in it, and it is renamed when
/// a member is taken over.
///
/// # Errors
/// [`Error::WalDir`], or if the directories cannot be looked at.
pub fn check_wal_dir(data_dir: &Path, wal_dir: Option<&Path>) -> Result<(), Error> {
    elsewhere(data_dir, wal_dir).map(drop)
}

/// A path without links, also if there is nothing at it for the moment.
fn real(path: &Path) -> Result<PathBuf, Error> {
    let mut path = std::path::absolute(path).map_err(Error::io("find", path))?;
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    match (path.canonicalize(), path.parent().and_then(|parent| parent.canonicalize().ok()), path.file_name()) {
        (Ok(found), ..) => Ok(found),
        (Err(_), Some(parent), Some(name)) => Ok(parent.join(name)),
        _ => Ok(path),
    }
}

struct Adoption<'a> {
    data_dir: &'a Path,
    wal_dir: Option<&'a Path>,
    steps: Steps,
}

impl Adoption<'_> {
    /// `open` keeps etcd and other adoptions out for as long as what it returns lives; `take` writes the new data.
    fn run<D>(
        &self,
        may_begin: bool,
        open: impl FnOnce() -> Result<D, Error>,
        take: impl FnOnce(&D, Option<&Path>, &Path, Option<&PathBuf>) -> Result<Migrated, Error>,
    ) -> Result<Option<Adopted>, Error> {
        // Held to the end: another process that adopts would remove what this one has made.
        let Some(_lock) = self.lock()? else { return Ok(None) };
        let is_etcds = self.data_dir.join("member").join("snap").is_dir();
        if let Some(name) = self.backup_name()? {
            let backup = self.data_dir.join(&name);
            if !is_etcds {
                self.finish(&name)?;
                return Ok(Some(Adopted { migrated: None, backup }));
            }
            if backup.exists() {
                return Err(Error::Refused(format!(
                    "`{}` was being adopted, and an etcd was started on it meanwhile: remove its `member`, and start again",
                    self.data_dir.display()
                )));
            }
            // Nothing was renamed yet. etcd may have run since: what it wrote must be taken over, too.
        }
        if !is_etcds || !may_begin {
            self.remove_empty_staging();
            return Ok(None);
        }
        let database_path = self.data_dir.join("member").join("snap").join("db");
        if !database_path.exists() {
            return Err(Error::Refused(format!(
                "`{}` is not there: this member of etcd was never started, or its data is damaged",
                database_path.display()
            )));
        }
        self.check_mounts()?;
        let own = open()?;
        self.discard()?;
        let from_wal = self.wal_dir.filter(|dir| has_log(dir));
        let (staging, staging_wal) = (self.staging(), self.staging_wal());
        let migrated = take(&own, from_wal, &staging, staging_wal.as_ref())?;
        self.steps.next()?;
        let name = backup_name_now();
        self.set_ready(&name)?;
        self.steps.next()?;
        let backup = self.data_dir.join(&name);
        rename(&self.data_dir.join("member"), &backup)?;
        self.steps.next()?;
        self.finish(&name)?;
        Ok(Some(Adopted { migrated: Some(migrated), backup }))
    }

    /// Locks the data directory. None: there is none.
    fn lock(&self) -> Result<Option<File>, Error> {
        let dir = match File::open(self.data_dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            dir => dir.map_err(Error::io("open", self.data_dir))?,
        };
        match dir.try_lock() {
            Ok(()) => Ok(Some(dir)),
            Err(TryLockError::WouldBlock) => Err(Error::InUse { path: self.data_dir.into() }),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", self.data_dir)(error)),
        }
    }

    fn staging(&self) -> PathBuf {
        self.data_dir.join("adopting")
    }

    fn staging_wal(&self) -> Option<PathBuf> {
        self.wal_dir.map(|dir| beside(dir, ".adopting"))
    }

    fn ready(&self) -> PathBuf {
        self.staging().join("ready")
    }

    /// What the backup is called, if the new data is complete.
    fn backup_name(&self) -> Result<Option<String>, Error> {
        let path = self.ready();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        // The file gets its name once it is written whole.
        let mut lines = text.splitn(2, |byte| *byte == b'\n');
        let name = lines.next().and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
        if !name.starts_with(BACKUP) || name.contains('/') {
            return Err(Error::Refused(format!("`{}` names no backup of etcd's", path.display())));
        }
        let wal_dir = lines.next().unwrap_or_default();
        if wal_dir != self.wal_dir.map_or(&b""[..], |dir| dir.as_os_str().as_bytes()) {
            return Err(Error::Refused(format!(
                "`{}` was being adopted with another --wal-dir ({}): start with that one again",
                self.data_dir.display(),
                if wal_dir.is_empty() { "none".into() } else { String::from_utf8_lossy(wal_dir) }
            )));
        }
        Ok(Some(name.into()))
    }

    fn set_ready(&self, name: &str) -> Result<(), Error> {
        let path = self.ready();
        let draft = path.with_extension("tmp");
        let wal_dir = self.wal_dir.map_or(&b""[..], |dir| dir.as_os_str().as_bytes());
        let mut file = File::create(&draft).map_err(Error::io("create", &draft))?;
        let text = [name.as_bytes(), b"\n", wal_dir].concat();
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(Error::io("write", &draft))?;
        fs::rename(&draft, &path).map_err(Error::io("rename", &draft))?;
        sync(&self.staging())?;
        sync(self.data_dir)
    }

    /// Puts the new data in place. etcd's `member` has its new name already.
    fn finish(&self, name: &str) -> Result<(), Error> {
        let (staged, member) = (self.staging().join("member"), self.data_dir.join("member"));
        if staged.exists() {
            rename(&staged, &member)?;
        } else if !member.join("snap").is_file() {
            // A start would found a member that has forgotten what it acknowledged.
            let text = format!("neither `{}` nor `{}` holds the new data", staged.display(), member.display());
            return Err(Error::Refused(text));
        }
        self.steps.next()?;
        if let (Some(wal_dir), Some(staged)) = (self.wal_dir, self.staging_wal()) {
            if staged.exists() {
                let backup = beside(wal_dir, &format!("-{name}"));
                if wal_dir.exists() && !backup.exists() {
                    rename(wal_dir, &backup)?;
                }
                self.steps.next()?;
                rename(&staged, wal_dir)?;
            } else if !crate::log::is_ours(wal_dir) {
                // etcd's may still be in its place.
                let text = format!("neither `{}` nor `{}` holds the new log", staged.display(), wal_dir.display());
                return Err(Error::Refused(text));
            }
        }
        self.steps.next()?;
        let ready = self.ready();
        fs::remove_file(&ready).map_err(Error::io("remove", &ready))?;
        self.steps.next()?;
        self.remove_empty_staging();
        Ok(())
    }

    /// One that holds anything stays: it is none of ours, or the next adoption removes it.
    fn remove_empty_staging(&self) {
        let _ = fs::remove_dir(self.staging());
    }

    /// Removes what an adoption has made that did not get far.
    fn discard(&self) -> Result<(), Error> {
        for dir in [Some(self.staging()), self.staging_wal()].into_iter().flatten() {
            match fs::remove_dir_all(&dir) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &dir)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A directory on which a file system is mounted cannot be renamed, and one in a directory that is renamed would come back at its
    /// old place with the next boot: said before any work.
    fn check_mounts(&self) -> Result<(), Error> {
        let member = self.data_dir.join("member");
        let mounts = mount_points();
        let dirs =
            [Some(member.join("wal")), Some(member.join("snap")), Some(member), self.wal_dir.map(Path::to_path_buf)];
        for dir in dirs.into_iter().flatten() {
            let Ok(real) = dir.canonicalize() else { continue };
            if mounts.contains(&real) {
                return Err(Error::Refused(format!(
                    "a file system is mounted on `{}`, which cannot be renamed: take the data over with `cairn util migrate`",
                    dir.display()
                )));
            }
        }
        Ok(())
    }
}

/// Where file systems are mounted. Source: proc_pid_mountinfo(5).
fn mount_points() -> Vec<PathBuf> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(unescaped)
        .collect()
}

/// Spaces, tabs, line feeds and backslashes are written as a backslash and three octal digits.
fn unescaped(mut text: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    while let Some((&byte, rest)) = text.split_first() {
        let number = rest.get(..3).filter(|_| byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match number.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(number) => {
                bytes.push(number);
                text = rest.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(byte);
                text = rest;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// Links followed one after the other, as the system does.
const LINKS_MAX: usize = 40;

const BACKUP: &str = "etcd-backup-";

/// `etcd-backup-20261123T081530Z`.
fn backup_name_now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (date, time) = (date_of(seconds / 86_400), seconds % 86_400);
    format!("{BACKUP}{date}T{:02}{:02}{:02}Z", time / 3_600, time / 60 % 60, time % 60)
}

/// A day since 1970 as `20261123`.
fn date_of(day: u64) -> String {
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut left) = (1970_u64, day);
    while let Some(less) = left.checked_sub(if is_leap(year) { 366 } else { 365 }) {
        (year, left) = (year.saturating_add(1), less);
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1_u64;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        let Some(less) = left.checked_sub(days) else { break };
        (month, left) = (month.saturating_add(1), less);
    }
    format!("{year:04}{month:02}{:02}", left.saturating_add(1))
}

fn beside(dir: &Path, suffix: &str) -> PathBuf {
    // Without the `/` that may end it.
    let mut name: OsString = dir.components().collect::<PathBuf>().into();
    name.push(suffix);
    name.into()
}

fn has_log(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return false };
    entries.flatten().any(|entry| entry.path().extension().is_some_and(|extension| extension == "wal"))
}

/// Renames, and waits until the disk knows.
fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(Error::io("rename", from))?;
    for dir in [from.parent(), to.parent()].into_iter().flatten() {
        sync(if dir.as_os_str().is_empty() { Path::new(".") } else { dir })?;
    }
    Ok(())
}

fn sync(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(Error::io("sync", dir))
}

#[cfg(test)]
mod tests;
