//! What watches need from the rest of the store.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::Hub;
use crate::types::Revision;

/// One record of the revision log.
pub(crate) struct Record<'a> {
    /// When it was written.
    pub(crate) rev: Revision,
    /// True when it deletes its key.
    pub(crate) tombstone: bool,
    /// The stored `KeyValue` bytes.
    pub(crate) stored: &'a [u8],
    /// The same bytes, kept readable.
    pub(crate) share: &'a dyn Fn() -> Bytes,
}

/// The log, as a watcher that is behind reads it. All calls come from request threads.
pub(crate) trait History: Send + Sync + 'static {
    /// The hub that this history's changes are published to.
    fn hub(&self) -> &Hub;

    /// The compaction watermark; below 1 when nothing was ever compacted. Raised *before* any record under it goes away, so that
    /// a reader which looks at it after reading knows whether it read everything.
    fn compact_revision(&self) -> i64;

    /// Visits the records from `from` to the main revision `to` in revision order until `visit` breaks. `to` is never above what the
    /// hub was told. Holds no lock that [`History::previous`] takes.
    fn scan(&self, from: Revision, to: i64, visit: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>);

    /// The stored bytes of what `key` held at revision `main - 1`; `None` when it did not exist then or the version is gone.
    fn previous(&self, key: &[u8], main: i64) -> Option<Bytes>;
}
