//! A file that an increment is to follow.

use super::{Increment, hash, is_increment, rev_of};
use crate::database::{KEYS, walk};
use crate::{Database, Error, SnapshotFile};
use std::path::{Path, PathBuf};
use store::increment::{Digest, Since};

/// A snapshot or an increment, on which an increment is to follow.
pub struct Predecessor {
    path: PathBuf,
    file: Kind,
    since: Since,
}

enum Kind {
    Whole(Database),
    Increment(Box<Increment>),
}

impl Predecessor {
    /// Opens the file, which must be as it was saved.
    ///
    /// # Errors
    /// If it is damaged, or something else.
    pub fn open(path: &Path) -> Result<Predecessor, Error> {
        let (file, since) = if is_increment(path)? {
            let increment = Increment::open(path)?;
            let (revision, compact_revision) = (increment.head.revision, increment.head.compact_revision);
            let start = increment.head.since.revision;
            (Kind::Increment(Box::new(increment)), Since { revision, compact_revision, start })
        } else {
            SnapshotFile::check_saved(path)?;
            let database = Database::open(path)?;
            let (revision, compact_revision) = database.state()?;
            (Kind::Whole(database), Since { revision, compact_revision, start: 0 })
        };
        Ok(Predecessor { path: path.into(), file, since })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What to ask a member for.
    pub fn since(&self) -> Since {
        self.since
    }

    /// Checks that the increment in a file follows this one: that it is whole, and that the member had the versions that this file has.
    ///
    /// # Errors
    /// If it does not.
    pub fn check(&self, increment: &Path) -> Result<(), Error> {
        let next = Increment::open(increment)?;
        if next.head.since != self.since {
            return Err(Error::Refused("the member has sent another increment than was asked for".into()));
        }
        if let Kind::Increment(before) = &self.file
            && before.head.cluster_id != next.head.cluster_id
        {
            return Err(Error::Refused(format!(
                "`{}` is of cluster {:x}, and the member is of cluster {:x}",
                self.path.display(),
                before.head.cluster_id,
                next.head.cluster_id
            )));
        }
        if let Kind::Increment(before) = &self.file
            && next.head.index < before.head.index
        {
            return Err(Error::Refused(format!(
                "the member is at entry {} of its log, before entry {} of `{}`: it has another history; save a whole snapshot",
                next.head.index,
                before.head.index,
                self.path.display()
            )));
        }
        let (mut digest, mut filter) = (Digest::new(0), next.filter());
        let mut visit = |name: &[u8], bytes: &[u8]| match filter.leaves(rev_of(name)?.0) {
            true => hash(&mut digest, name, bytes),
            false => Ok(()),
        };
        match &self.file {
            Kind::Whole(database) => walk(&database.db, &database.buckets, KEYS, &mut visit)?,
            Kind::Increment(before) => before.keys(&mut visit)?,
        }
        if digest.end().0 == next.head.own_hash {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "the member does not have what `{}` has: it is of another cluster, or its history was set back; save a whole snapshot",
            self.path.display()
        )))
    }
}
