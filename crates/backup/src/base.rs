//! Bases: snapshots of a member's database, and what is said of each.

use crate::piece::At;
use serde::{Deserialize, Serialize};

/// The version of the format.
pub(crate) const FORMAT: u32 = 1;

/// A snapshot in an archive, as its description has it: `base/INDEX-TERM.json`, beside the file `base/INDEX-TERM.db`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The version of the format.
    pub format: u32,
    /// The cluster, in hexadecimal digits.
    pub cluster_id: String,
    /// Index of the last entry that it has.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
    /// Its revision.
    pub revision: i64,
    /// The revision that its history is compacted to; -1 if it never was.
    pub compact_revision: i64,
    /// By when it was taken, in milliseconds since 1970.
    pub time_ms: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// SHA-256 of the whole file, in hexadecimal digits.
    pub sha256: String,
}

impl Base {
    /// The last entry that it has.
    pub fn at(&self) -> At {
        At { index: self.index, term: self.term }
    }

    /// Name of the file, which `etcdutl snapshot restore` takes as well.
    pub fn file(&self) -> String {
        format!("base/{:020}-{}.db", self.index, self.term)
    }

    /// Name of the description.
    pub fn description(&self) -> String {
        format!("base/{:020}-{}.json", self.index, self.term)
    }
}
