//! Types that all parts of the store share: revisions, places in the log, versions of a key.

/// A point in history: the transaction and the change inside it. Orders as etcd's 17-byte revision keys do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision {
    /// One per transaction that changed something; the first write is 2.
    pub main: i64,
    /// Index of the change inside the transaction.
    pub sub: u32,
}

/// Where the stored `KeyValue` bytes of a record are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loc {
    /// Id of the segment file.
    pub segment: u32,
    /// Offset of the `KeyValue` bytes (not of the record's header) in the segment.
    pub offset: u32,
    /// Length of the `KeyValue` bytes.
    pub len: u32,
}

/// One version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// When it was written.
    pub rev: Revision,
    /// Main revision of the put that created this life of the key; 0 in a tombstone.
    pub create: i64,
    /// Puts since it was created, this one included; 0 in a tombstone.
    pub version: i64,
    /// Where its bytes are.
    pub loc: Loc,
}

impl Version {
    /// True when the key was deleted at this revision.
    pub fn is_tombstone(&self) -> bool {
        self.version == 0
    }
}
