//! A data directory of Cairn that is being made.

use crate::{Database, Error};
use api::raftpb::{ConfState, Entry, HardState};
use api::walpb;
use disk::data_dir::{DataDir, DataDirError};
use disk::{Disk, OsDisk};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Founding;
use store::checkpoint::Checkpoint;
use wal::{Contents, EntryRef, Wal};

/// Where a member's data goes. Given up before the log is written, it takes along what it has made.
pub(crate) struct Target {
    disk: Arc<dyn Disk>,
    dir: DataDir,
    made: Made,
}

/// What was not there before.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        for dir in &self.0 {
            // What cannot be removed is no member's: there is no log. The next attempt says that it is in the way.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

impl Target {
    /// Takes a directory that is empty or not there yet.
    pub(crate) fn create(dir: &Path, wal_dir: Option<&PathBuf>) -> Result<Target, Error> {
        let is_empty = |dir: &Path| std::fs::read_dir(dir).map(|mut entries| entries.next().is_none());
        // An empty directory may be one that only another user can make: it stays.
        let mut made = match is_empty(dir) {
            Ok(true) => Made(vec![dir.join("member")]),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Made(vec![dir.into()]),
            _ => {
                let dir = dir.display().to_string();
                return Err(Error::Refused(format!("data-dir {dir:?} not empty or could not be read")));
            }
        };
        if let Some(wal_dir) = wal_dir {
            if wal_dir.exists() {
                made.0.clear();
                return Err(Error::Refused(format!("wal-dir {:?} exists", wal_dir.display().to_string())));
            }
            made.0.push(wal_dir.clone());
        }
        let disk: Arc<dyn Disk> = Arc::new(OsDisk { unsafe_no_sync: false });
        match DataDir::open(&*disk, dir, wal_dir.map(PathBuf::as_path)) {
            Ok(dir) => Ok(Target { disk, dir, made }),
            Err(error) => {
                if let DataDirError::Locked { .. } = error {
                    // Another process has begun at the same moment.
                    made.0.clear();
                }
                Err(error.into())
            }
        }
    }

    /// Writes the store: all changes of `database`, then the checkpoint that `state` returns for the last revision.
    pub(crate) fn write_store(
        &self,
        database: &Database,
        state: impl FnOnce(i64) -> Result<Checkpoint, Error>,
    ) -> Result<i64, Error> {
        let founding = Founding::begin(self.disk.clone(), &self.dir.store, store::log::Options::default())?;
        write_store(founding, database, state)
    }

    /// Writes the log, which makes the directory a member's: it continues after the entry `behind`. There is all of it at once, or
    /// none: a member that started on a part of it would have forgotten what it has acknowledged.
    pub(crate) fn write_log(
        mut self,
        metadata: &[u8],
        behind: (u64, u64, ConfState),
        entries: &[Entry],
        hard_state: &HardState,
    ) -> Result<(), Error> {
        let (index, term, conf_state) = behind;
        let state = walpb::Snapshot { index: Some(index), term: Some(term), conf_state: Some(conf_state) };
        let mut entries = entries.iter().map(|entry| EntryRef {
            term: entry.term(),
            index: entry.index(),
            kind: entry.r#type() as i32,
            data: entry.data.as_deref().unwrap_or_default(),
        });
        let contents = Contents { state: &state, entries: &mut entries, hard_state };
        Wal::create_with(self.disk.clone(), &self.dir.wal, metadata, contents, wal::Options::default())?;
        self.made.0.clear();
        Ok(())
    }
}

/// Fills a store: all changes of `database`, then the checkpoint that `state` returns for the last revision.
pub(crate) fn write_store(
    mut founding: Founding,
    database: &Database,
    state: impl FnOnce(i64) -> Result<Checkpoint, Error>,
) -> Result<i64, Error> {
    let mut last = 1;
    database.records(&mut |record| {
        last = record.rev.main;
        // A record without a key only says that the revision was moved on to here.
        if record.bytes.is_empty() && !record.is_tombstone {
            return Ok(());
        }
        Ok(founding.add(record.rev, record.is_tombstone, record.bytes)?)
    })?;
    let state = state(last)?;
    let revision = state.revision;
    founding.finish(state)?;
    Ok(revision)
}

/// Refuses a target within what is only to be read.
pub(crate) fn check_apart(source: &Path, target: &Path) -> Result<(), Error> {
    let Ok(whole) = source.canonicalize() else { return Ok(()) };
    // The part of the target that is there, and what will be made in it.
    let target = std::path::absolute(target).map_err(Error::io("find", target))?;
    let there = target.ancestors().find_map(|part| part.canonicalize().ok().map(|found| (found, part)));
    let found = there.map_or(target.clone(), |(found, part)| found.join(target.strip_prefix(part).unwrap_or(&target)));
    if !found.starts_with(&whole) {
        return Ok(());
    }
    let text = format!("`{}` is inside `{}`, which is only read: choose another", target.display(), source.display());
    Err(Error::Refused(text))
}
