//! Building a store from another program's data.

use super::files::Files;
use super::recover::{Recovered, create};
use super::{OpenError, recover};
use crate::log::{Error, KvView, Log, Options};
use crate::state::auth::AuthState;
use crate::store::Store;
use crate::types::Revision;
use crate::upkeep::checkpoint::{Checkpoint, Checkpoints};
use api::authpb::{Role, User};
use api::limits::REQUEST_BYTES_LIMIT;
use bytes::Bytes;
use disk::Disk;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of records that gather in memory.
const BUFFER_BYTES_MAX: u64 = 4 << 20;
/// The last revision that a store may begin with: as many again are left for what is written to it, before a checkpoint is refused.
pub const FOUNDING_REVISION_MAX: i64 = 1 << 61;

/// A store that is being filled: every record there is, in order, then the state they belong to. Given up before that, it stays an
/// empty store.
pub struct Founding {
    checkpoints: Checkpoints,
    log: Log,
    last: Revision,
}

/// Why no store can be made.
#[derive(Debug, thiserror::Error)]
pub enum FoundingError {
    /// The directory cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It holds a store.
    #[error("`{0}` holds a store already")]
    Occupied(PathBuf),
    /// A record that no store has.
    #[error("the record of revision {main}.{sub} cannot be imported: {what}")]
    Record {
        /// Its main revision.
        main: i64,
        /// Its sub revision.
        sub: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The state does not fit the records.
    #[error("the state cannot be imported: {0}")]
    State(&'static str),
    /// The disk refused.
    #[error(transparent)]
    Log(#[from] Error),
}

impl Founding {
    /// Begins an empty store in `dir`.
    ///
    /// # Errors
    /// If there is one already, or none can be written there.
    pub fn begin(disk: Arc<dyn Disk>, dir: &Path, options: Options) -> Result<Founding, FoundingError> {
        let recovered = recover(disk, dir, options, true)?;
        if recovered.checkpoint != Checkpoint::initial() {
            return Err(FoundingError::Occupied(dir.into()));
        }
        Ok(Founding::of(recovered))
    }

    /// Begins an empty store in `dir`, which is to take the place of what `store` has ([`Prepared::of_store`](crate::Prepared::of_store)):
    /// its segments have numbers that those of `store` do not get.
    ///
    /// # Errors
    /// As [`Founding::begin`].
    pub fn beside(store: &Store, disk: Arc<dyn Disk>, dir: &Path, options: Options) -> Result<Founding, FoundingError> {
        disk.create_dir(dir).map_err(OpenError::io("create", dir))?;
        let files = Files::list(&*disk, dir)?;
        if !files.checkpoints.is_empty() {
            return Err(FoundingError::Occupied(dir.into()));
        }
        let segments = store.segments.beside(Arc::clone(&disk), dir, options);
        Ok(Founding::of(create(disk, dir, &files, segments)?))
    }

    fn of(empty: Recovered) -> Founding {
        Founding { checkpoints: empty.checkpoints, log: empty.log, last: Revision::default() }
    }

    /// Adds the change of one revision: the stored bytes of a put, or of a deletion, as etcd and this store have them.
    ///
    /// # Errors
    /// If it is none, or does not follow the one before.
    pub fn add(&mut self, rev: Revision, is_tombstone: bool, stored: &[u8]) -> Result<(), FoundingError> {
        let wrong = |what| FoundingError::Record { main: rev.main, sub: rev.sub, what };
        if rev <= self.last || rev.main < 2 {
            return Err(wrong("it is out of order"));
        }
        if rev.main > FOUNDING_REVISION_MAX {
            return Err(wrong("no revisions are left for later changes"));
        }
        let view = KvView::parse(stored).ok_or_else(|| wrong("its bytes are not those of a key and a value"))?;
        if view.key.len() > REQUEST_BYTES_LIMIT {
            return Err(wrong("its key is longer than any request"));
        }
        let is_bare = view == KvView { key: view.key, ..KvView::default() };
        if is_tombstone != is_bare || (!is_tombstone && (view.modified != rev.main || view.create > rev.main)) {
            return Err(wrong("it contradicts itself"));
        }
        self.log.append_stored(rev, is_tombstone, stored);
        self.last = rev;
        if self.log.pending_bytes() > BUFFER_BYTES_MAX {
            self.log.flush()?;
            // As it grows: otherwise the sync at the end would have all of it to write, and all others' syncs would wait for that.
            self.log.segments().write_back()?;
        }
        Ok(())
    }

    /// Makes it a store in this state, durably. `state` needs no list of segments.
    ///
    /// # Errors
    /// If the state contradicts itself or the records.
    pub fn finish(mut self, state: Checkpoint) -> Result<(), FoundingError> {
        self.log.flush()?;
        let listing = self.log.listing();
        // The checkpoint before this one is of the empty store, to which no start may go back.
        let state = Checkpoint { segments: listing.entries().to_vec(), installed: true, ..state };
        if state.revision > FOUNDING_REVISION_MAX {
            return Err(FoundingError::State("its revision leaves none for later changes"));
        }
        if let Some(contradiction) = state.contradiction() {
            return Err(FoundingError::State(contradiction));
        }
        Ok(self.checkpoints.write(state, listing)?)
    }
}

/// Users and roles as a checkpoint has them.
///
/// # Errors
/// What no store can have: a name that is no text, or a revision that is 0 or cannot be counted on from.
pub fn encode_auth(enabled: bool, revision: u64, users: Vec<User>, roles: Vec<Role>) -> Result<Bytes, &'static str> {
    Ok(AuthState::of(enabled, revision, users, roles)?.save())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::log::KvParts;
    use disk::sim::SimDisk;

    fn put(main: i64, key: &[u8]) -> Vec<u8> {
        let mut stored = Vec::new();
        KvParts { key, create: main, version: 1, value: b"v", lease: 0 }.encode(main, &mut stored);
        stored
    }

    #[test]
    fn a_store_is_opened_with_what_was_added() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let dir = Path::new("/store");
        let mut founding = Founding::begin(disk.clone(), dir, Options::default()).unwrap();
        let rev = |main, sub| Revision { main, sub };
        founding.add(rev(2, 0), false, &put(2, b"a")).unwrap();
        founding.add(rev(3, 0), false, &put(3, b"b")).unwrap();
        for (rev, tombstone, bytes) in [
            (rev(3, 0), false, put(3, b"c")),
            (rev(4, 0), false, put(5, b"c")),
            (rev(4, 0), true, put(4, b"c")),
            (rev(4, 0), false, vec![0x0a, 1, b'c']),
            (rev(4, 0), false, Vec::new()),
            (rev(i64::MAX, 0), false, put(i64::MAX, b"c")),
        ] {
            assert!(founding.add(rev, tombstone, &bytes).is_err(), "{rev:?} {bytes:?}");
        }
        founding.add(rev(4, 1), true, &[0x0a, 1, b'a']).unwrap();
        let state = Checkpoint { applied_index: 7, applied_term: 2, revision: 6, ..Checkpoint::initial() };
        founding.finish(state).unwrap();
        let late = Checkpoint { applied_index: 7, applied_term: 2, revision: i64::MAX, ..Checkpoint::initial() };
        let founding = Founding::begin(disk.clone(), Path::new("/late"), Options::default()).unwrap();
        assert!(matches!(founding.finish(late).err().unwrap(), FoundingError::State(_)));
        assert!(matches!(
            Founding::begin(disk.clone(), dir, Options::default()).err().unwrap(),
            FoundingError::Occupied(_)
        ));
        let opened = crate::open(disk, dir, crate::Options::default()).unwrap();
        assert_eq!((opened.applied.index, opened.applied.term, opened.store.revision()), (7, 2, 6));
    }
}
