//! An increment: what a snapshot has more than an earlier one. Drawn in `docs/formats.md`, "Increment of a snapshot".
//!
//! It is a [`Head`] and an image whose bucket `key` has the versions after the earlier snapshot's revision only. All other buckets are whole.
//! If the history was compacted in between, the bucket [`KEPT`] lists which of the earlier snapshot's versions are left ([`Kept`]). A
//! [`Digest`] of these tells whether a snapshot is the one that the increment follows.

mod digest;
mod head;
mod kept;

pub use digest::{Digest, HASH_BYTES};
pub use head::{HEAD_BYTES, Head, MAGIC};
pub(super) use kept::table;
pub use kept::{Cursor, KEPT, Kept, KeptError};

/// The state that an increment follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// Its revision, at least 1.
    pub revision: i64,
    /// The revision that its history is compacted to; -1 if it never was.
    pub compact_revision: i64,
    /// The file of the state has only the versions after this revision: it is an increment itself. 0 for a whole snapshot.
    pub start: i64,
}

impl Since {
    /// Whether there can be such a state.
    pub fn is_sound(&self) -> bool {
        self.revision >= 1
            && (-1..=self.revision).contains(&self.compact_revision)
            && (0..=self.revision).contains(&self.start)
    }
}
