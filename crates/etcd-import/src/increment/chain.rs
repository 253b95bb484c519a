//! Increments behind a snapshot.

use super::{Increment, hash, refused, rev_of};
use crate::database::{KEYS, Visit, walk};
use crate::{Database, Error};
use std::path::{Path, PathBuf};
use store::increment::{Digest, Head};

/// The increments of a snapshot, at least one, each of which follows the one before.
pub(crate) struct Chain {
    increments: Vec<Increment>,
    last: usize,
    /// The last one with a list of what is left. Everything after it is left.
    filtering: Option<usize>,
}

impl Chain {
    /// Opens the increments of `base`, the database of the file `path`, in their order; `None` if there are none. All that they have is checked,
    /// and that each follows the state before it.
    pub(crate) fn open(path: &Path, base: &Database, increments: &[PathBuf]) -> Result<Option<Chain>, Error> {
        let Some(last) = increments.len().checked_sub(1) else { return Ok(None) };
        let (mut revision, mut compact_revision) = base.state()?;
        let (mut before, mut cluster_id, mut found) = (path, None, Vec::new());
        for path in increments {
            let increment = Increment::open(path)?;
            let Head { since, .. } = &increment.head;
            if since.revision != revision {
                let what = format!(
                    "it is an increment since revision {}, but `{}` before it has revision {revision}: name the increments in the order in \
                     which they were saved, without a gap",
                    since.revision,
                    before.display()
                );
                return Err(refused(path, what));
            }
            if since.compact_revision != compact_revision {
                let what = format!(
                    "it is an increment since a state that was compacted to revision {}, but `{}` is compacted to {compact_revision}",
                    since.compact_revision,
                    before.display()
                );
                return Err(refused(path, what));
            }
            if cluster_id.is_some_and(|cluster_id| cluster_id != increment.head.cluster_id) {
                let what =
                    format!("it is of cluster {:x}, and `{}` is not", increment.head.cluster_id, before.display());
                return Err(refused(path, what));
            }
            (revision, compact_revision) = (increment.head.revision, increment.head.compact_revision);
            cluster_id = Some(increment.head.cluster_id);
            before = path;
            if increment.kept.is_some() {
                // The last list has what is left of everything before it.
                found.iter_mut().for_each(|earlier: &mut Increment| earlier.kept = None);
            }
            found.push(increment);
        }
        let filtering = found.iter().rposition(|increment| increment.kept.is_some());
        let chain = Chain { increments: found, last, filtering };
        chain.check_contents(base)?;
        Ok(Some(chain))
    }

    /// Which increments have their list in memory.
    #[cfg(test)]
    pub(crate) fn lists(&self) -> Vec<bool> {
        self.increments.iter().map(|increment| increment.kept.is_some()).collect()
    }

    /// What leads to the last state.
    pub(crate) fn newest(&self) -> &Increment {
        #[expect(clippy::indexing_slicing, reason = "there is one at least, and this is its place")]
        &self.increments[self.last]
    }

    /// The states before the last increment must be those that the member had: their versions hash to what it says. The hash is of all that is
    /// left of them, so it vouches for the increments before it, too.
    fn check_contents(&self, base: &Database) -> Result<(), Error> {
        let newest = self.newest();
        let mut digest = Digest::new(newest.head.since.start);
        self.each(base, self.last, &mut |name, bytes| hash(&mut digest, name, bytes))?;
        let (all, _) = digest.end();
        if all == newest.head.hash {
            return Ok(());
        }
        let what = "it does not follow what is named before it: the member had other keys or values there, so one of the files is of another \
                    history";
        Err(refused(&newest.path, what))
    }

    /// Goes through the versions that are left in the end.
    pub(crate) fn keys(&self, base: &Database, visit: &mut Visit<'_>) -> Result<(), Error> {
        self.each(base, self.increments.len(), visit)
    }

    /// The same of the snapshot and the first increments only.
    fn each(&self, base: &Database, count: usize, visit: &mut Visit<'_>) -> Result<(), Error> {
        let mut filter = self.filtering.and_then(|number| self.increments.get(number)).map(Increment::filter);
        let mut visit = |name: &[u8], bytes: &[u8]| {
            let (rev, _) = rev_of(name)?;
            match filter.as_mut().is_none_or(|filter| filter.leaves(rev)) {
                true => visit(name, bytes),
                false => Ok(()),
            }
        };
        walk(&base.db, &base.buckets, KEYS, &mut visit)?;
        self.increments.iter().take(count).try_for_each(|increment| increment.keys(&mut visit))
    }

    /// Bytes of all files, without what is before and after the databases.
    pub(crate) fn bytes(&self) -> u64 {
        self.increments.iter().fold(0, |sum, increment| increment.db.bytes().saturating_add(sum))
    }
}
