//! What requests read from: the published store, or the store with the writes of the entry that is being applied.

use crate::types::{Loc, Version};
use api::KeyRange;
use std::ops::ControlFlow;

/// Called for each key in order.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&[u8], &Version) -> ControlFlow<()>;

/// One consistent state, and its history.
pub(crate) trait View {
    /// The revision a read sees that names none, and that answers carry.
    fn current(&self) -> i64;

    /// The oldest revision that can be read; -1 before the first compaction.
    fn compact_revision(&self) -> i64;

    /// Visits the keys of `range` that are live at revision `at`, in order.
    fn scan(&self, range: KeyRange<'_>, at: i64, visit: Visit<'_>);

    /// Number of keys of `range` that are live at revision `at`, if that is known without visiting them.
    fn count(&self, range: KeyRange<'_>, at: i64) -> Option<u64>;

    /// Stored bytes of a version, to be called while visiting it.
    fn stored<R>(&self, loc: Loc, read: impl FnOnce(&[u8]) -> R) -> R;
}
