//! Increments of snapshots: `snapshot save --since`. A snapshot and its increments in order are read as the one database that a whole snapshot
//! of the last one's moment would be.
//!
//! [`Increment`] is one such file, checked by itself. [`Chain`] is what follows a snapshot. [`Predecessor`] is a file that an increment is to
//! follow, while it is saved.

mod chain;
mod predecessor;

#[cfg(test)]
mod tests;

pub(crate) use chain::Chain;
pub use predecessor::Predecessor;

use crate::bolt::{Bucket, Db};
use crate::contents::compact_revision;
use crate::database::{KEYS, Visit, revision, walk};
use crate::{Error, SnapshotFile};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use store::increment::{Digest, HEAD_BYTES, Head, KEPT, Kept, MAGIC};
use store::types::Revision;

/// One increment.
pub(crate) struct Increment {
    path: PathBuf,
    pub(crate) head: Head,
    pub(crate) db: Db,
    pub(crate) buckets: Vec<Bucket>,
    /// Which of the versions from before it are left. Only where that is said.
    kept: Option<Kept>,
}

impl Increment {
    /// Opens an increment: every byte of it is checked.
    fn open(path: &Path) -> Result<Increment, Error> {
        let head = read_head(path)?.ok_or_else(|| refused(path, "it is no increment of a snapshot"))?;
        SnapshotFile::check_saved(path)?;
        let db = Db::open_behind(path, HEAD_BYTES as u64)?;
        let buckets = db.buckets()?;
        let mut increment = Increment { path: path.into(), head, db, buckets, kept: None };
        increment.check_meta()?;
        increment.kept = increment.read_kept()?;
        Ok(increment)
    }

    /// What is made of the file believes the database, and what follows it the head.
    fn check_meta(&self) -> Result<(), Error> {
        let mut meta = BTreeMap::new();
        self.walk("meta", &mut |name, value| {
            meta.insert(name.to_vec(), value.to_vec());
            Ok(())
        })?;
        if compact_revision(&meta)? == self.head.compact_revision {
            return Ok(());
        }
        Err(refused(&self.path, "its database is compacted to another revision than its head says"))
    }

    fn read_kept(&self) -> Result<Option<Kept>, Error> {
        let Head { since, compact_revision, .. } = &self.head;
        if !self.head.lists_kept() {
            return Ok(None);
        }
        let damaged = |error: store::increment::KeptError| refused(&self.path, error);
        // No list is longer than the file that has it.
        let mut kept = Kept::new(self.db.bytes());
        self.walk(KEPT, &mut |key, value| kept.push(key, value).map_err(damaged))?;
        kept.check(since.revision.saturating_add(1).min(*compact_revision)).map_err(damaged)?;
        Ok(Some(kept))
    }

    fn walk(&self, name: &str, visit: &mut Visit<'_>) -> Result<(), Error> {
        walk(&self.db, &self.buckets, name, visit)
    }

    /// Goes through the versions in it.
    fn keys(&self, visit: &mut Visit<'_>) -> Result<(), Error> {
        let Head { since, revision: last, .. } = &self.head;
        self.walk(KEYS, &mut |name, bytes| {
            let is_in_place = revision(name).is_some_and(|(rev, _)| since.revision < rev.main && rev.main <= *last);
            if !is_in_place {
                return Err(refused(&self.path, "it has versions of another time than its head says"));
            }
            visit(name, bytes)
        })
    }

    fn filter(&self) -> Filter<'_> {
        Filter { increment: self, cursor: self.kept.as_ref().map(Kept::cursor) }
    }
}

/// Which versions from before an increment are left after it.
struct Filter<'a> {
    increment: &'a Increment,
    cursor: Option<store::increment::Cursor<'a>>,
}

impl Filter<'_> {
    /// Asked in the order of revisions.
    fn leaves(&mut self, rev: Revision) -> bool {
        let Head { since, compact_revision, .. } = &self.increment.head;
        match &mut self.cursor {
            Some(cursor) if rev.main <= since.revision && rev.main < *compact_revision => cursor.has(rev),
            _ => true,
        }
    }
}

/// Adds a version to a hash, as a store takes it.
fn hash(digest: &mut Digest, name: &[u8], bytes: &[u8]) -> Result<(), Error> {
    let (rev, is_tombstone) = rev_of(name)?;
    // A record without a key only says that the revision was moved on.
    if !bytes.is_empty() || is_tombstone {
        digest.add(rev, is_tombstone, bytes);
    }
    Ok(())
}

fn rev_of(name: &[u8]) -> Result<(Revision, bool), Error> {
    revision(name).ok_or_else(|| Error::contents(KEYS, format!("{name:02x?} is no revision")))
}

fn refused(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::Refused(format!("`{}`: {why}", path.display()))
}

/// Whether a file begins as an increment does, which `snapshot save --since` saves.
///
/// # Errors
/// If there is no file that can be read.
pub fn is_increment(path: &Path) -> Result<bool, Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let mut begin = [0; MAGIC.len()];
    Ok(file.read_exact_at(&mut begin, 0).is_ok() && begin == MAGIC)
}

/// The head of an increment; `None` if the file is something else.
fn read_head(path: &Path) -> Result<Option<Head>, Error> {
    if !is_increment(path)? {
        return Ok(None);
    }
    let file = File::open(path).map_err(Error::io("open", path))?;
    let mut bytes = [0; HEAD_BYTES];
    file.read_exact_at(&mut bytes, 0).map_err(|_| refused(path, "it is cut off"))?;
    Head::decode(&bytes).map(Some).map_err(|what| refused(path, what))
}
