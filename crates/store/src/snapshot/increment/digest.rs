//! Whether two files have the same versions: a hash that a member computes from the headers of its records, which have a checksum of each.

use crate::log::{RECORD_HEADER_BYTES, record_header};
use crate::types::Revision;
use sha2::{Digest as _, Sha256};

/// Bytes of a hash.
pub const HASH_BYTES: usize = 32;

/// SHA-256 of the headers of records, in their order: of all, and of those after some revision.
pub struct Digest {
    all: Sha256,
    /// `None` if it is that of all.
    own: Option<Sha256>,
    start: i64,
}

impl Digest {
    /// Of no records. The second hash will be of those after the revision `start`.
    pub fn new(start: i64) -> Digest {
        Digest { all: Sha256::new(), own: (start > 0).then(Sha256::new), start }
    }

    /// Adds a version with the bytes of its `KeyValue`, of which there are fewer than 4 GiB.
    pub fn add(&mut self, rev: Revision, is_tombstone: bool, bytes: &[u8]) {
        self.add_header(rev, &record_header(rev, is_tombstone, bytes));
    }

    /// Adds a record of the log.
    pub(crate) fn add_header(&mut self, rev: Revision, header: &[u8]) {
        assert!(header.len() == RECORD_HEADER_BYTES, "the header of a record has another length");
        self.all.update(header);
        if let Some(own) = &mut self.own
            && rev.main > self.start
        {
            own.update(header);
        }
    }

    /// Both hashes.
    pub fn end(self) -> ([u8; HASH_BYTES], [u8; HASH_BYTES]) {
        let all: [u8; HASH_BYTES] = self.all.finalize().into();
        (all, self.own.map_or(all, |own| own.finalize().into()))
    }
}
