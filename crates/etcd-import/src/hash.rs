//! The checksum of a history, as members compute it.

use crate::database::KEYS;
use crate::{Database, Error, Record};
use std::collections::{HashMap, HashSet};
use store::log::KvView;
use store::types::Revision;

/// A checksum, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKv {
    /// CRC-32C over the changes that can be read.
    pub hash: u32,
    /// Up to this revision.
    pub revision: i64,
    /// The history before it is compacted; -1 if nothing is.
    pub compact_revision: i64,
}

impl Database {
    /// Hashes the history up to `revision`, 0 for all of it. Keeps the names of all keys in memory. Before the first revision there is
    /// nothing, which has a checksum too.
    ///
    /// # Errors
    /// If the file is damaged, or the revision is not there.
    pub fn hash_kv(&self, revision: i64) -> Result<HashKv, Error> {
        let compact_revision = self.contents()?.compact_revision;
        let mut last = compact_revision.max(1);
        let mut newest: HashMap<Vec<u8>, (Revision, bool)> = HashMap::new();
        self.records(&mut |Record { rev, is_tombstone, bytes, .. }| {
            last = last.max(rev.main);
            if (revision == 0 || rev.main <= revision)
                && let Some(view) = KvView::parse(bytes)
            {
                newest.insert(view.key.to_vec(), (rev, is_tombstone));
            }
            Ok(())
        })?;
        let revision = match revision {
            0 => last,
            wanted if wanted > last => return Err(told(api::Error::FutureRev)),
            wanted if (0..compact_revision).contains(&wanted) => return Err(told(api::Error::Compacted)),
            wanted => wanted,
        };
        // What a read at that revision sees.
        let kept: HashSet<Revision> =
            newest.into_values().filter(|(_, is_tombstone)| !is_tombstone).map(|(rev, _)| rev).collect();
        let mut hash = crc32c::crc32c(KEYS.as_bytes());
        self.records(&mut |Record { rev, is_tombstone, name, bytes }| {
            let is_dropped = rev.main <= compact_revision && !kept.is_empty() && !kept.contains(&rev);
            let is_grave = rev.main == compact_revision && is_tombstone;
            if rev.main <= revision && !is_dropped && !is_grave {
                hash = crc32c::crc32c_append(crc32c::crc32c_append(hash, name), bytes);
            }
            Ok(())
        })?;
        Ok(HashKv { hash, revision, compact_revision })
    }
}

/// The error as the library of etcd's members words it.
fn told(error: api::Error) -> Error {
    Error::Refused(error.message().trim_start_matches("etcdserver: ").to_string())
}
