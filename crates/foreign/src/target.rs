//! A data directory of Cairn that is being made.

use crate::{Database, Error};
use api::raftpb::{ConfState, Entry, HardState};
use api::walpb;
use disk::{Disk, OsDisk};
use server::DataDir;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Founding;
use store::checkpoint::Checkpoint;
use wal::{Contents, EntryRef, Wal};

/// Where a member's data goes.
pub(crate) struct Target {
    disk: Arc<dyn Disk>,
    dir: DataDir,
}

impl Target {
    /// Takes a directory that is empty or not there yet.
    pub(crate) fn create(dir: &Path, wal_dir: Option<&PathBuf>) -> Result<Target, Error> {
        let is_empty = |dir: &Path| std::fs::read_dir(dir).map(|mut entries| entries.next().is_none());
        match is_empty(dir) {
            Ok(true) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            _ => {
                let dir = dir.display().to_string();
                return Err(Error::Refused(format!("data-dir {dir:?} not empty or could not be read")));
            }
        }
        if let Some(wal_dir) = wal_dir.filter(|wal_dir| wal_dir.exists()) {
            return Err(Error::Refused(format!("wal-dir {:?} exists", wal_dir.display().to_string())));
        }
        let disk: Arc<dyn Disk> = Arc::new(OsDisk { unsafe_no_sync: false });
        let dir = DataDir::open(&*disk, dir, wal_dir.map(PathBuf::as_path))?;
        Ok(Target { disk, dir })
    }

    /// Writes the store: all changes of `database`, then the state that `state` makes of the last revision.
    pub(crate) fn write_store(
        &self,
        database: &Database,
        state: impl FnOnce(i64) -> Result<Checkpoint, Error>,
    ) -> Result<i64, Error> {
        let mut founding = Founding::begin(self.disk.clone(), &self.dir.store, store::log::Options::default())?;
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

    /// Writes the log, which makes the directory one of a member: it goes on behind the entry `behind`. There is all of it at once, or
    /// none: a member that started on a part of it would have forgotten what it has acknowledged.
    pub(crate) fn write_log(
        self,
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
        Ok(())
    }
}
