//! The status of a database, in a few numbers.

use crate::database::{KEYS, revision};
use crate::{Database, Error};
use std::collections::HashSet;
use store::increment::KEPT;
use store::log::KvView;

/// A summary of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// CRC-32C over the names of all buckets and all that is in them.
    pub hash: u32,
    /// Revision of the last change.
    pub revision: i64,
    /// Keys that exist.
    pub total_key: usize,
    /// Bytes of the file, without the checksum after it.
    pub total_size: u64,
    /// The version of etcd that it is for; empty before 3.6.
    pub version: String,
}

impl Database {
    /// Sums the database up. Every page is read and checked on the way.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn status(&self) -> Result<Status, Error> {
        let version = self.contents()?.storage_version;
        let mut status = Status { total_size: self.bytes(), version, ..Status::default() };
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        let (newest, buckets) = self.newest();
        // An increment lists in a bucket of its own what it leaves.
        for bucket in buckets.iter().filter(|bucket| bucket.name != KEPT.as_bytes()) {
            status.hash = crc32c::crc32c_append(status.hash, &bucket.name);
            if bucket.name != KEYS.as_bytes() {
                newest.walk(bucket, &mut |key, value| {
                    status.add(key, value.unwrap_or_default());
                    Ok(())
                })?;
                continue;
            }
            self.walk(KEYS, &mut |key, value| {
                status.add(key, value);
                let (rev, is_tombstone) =
                    revision(key).ok_or_else(|| Error::contents(KEYS, format!("{key:02x?} is no revision")))?;
                status.revision = rev.main;
                // A record without a key marks a revision that was skipped on purpose.
                let key = KvView::parse(value).map(|view| view.key.to_vec()).unwrap_or_default();
                if is_tombstone {
                    seen.remove(&key);
                } else {
                    seen.insert(key);
                }
                Ok(())
            })?;
        }
        status.total_key = seen.len();
        Ok(status)
    }
}

impl Status {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.hash = crc32c::crc32c_append(crc32c::crc32c_append(self.hash, key), value);
    }
}
