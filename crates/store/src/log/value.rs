//! A reference to stored bytes.

use super::Segment;
use std::ops::Deref;
use std::sync::Arc;

/// The stored `KeyValue` bytes of one record, readable without a system call. Keeps the segment's mapping alive, so it stays
/// valid when the segment is rewritten and its file removed.
#[derive(Clone)]
pub struct Value {
    segment: Arc<Segment>,
    offset: u32,
    len: u32,
}

impl Value {
    pub(crate) fn new(segment: Arc<Segment>, offset: u32, len: u32) -> Value {
        segment.check_stored(offset as usize, len as usize);
        Value { segment, offset, len }
    }

    /// The same bytes as shared [`bytes::Bytes`], without copying them.
    pub fn into_bytes(self) -> bytes::Bytes {
        bytes::Bytes::from_owner(self)
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.segment.bytes(self.offset as usize, self.len as usize)
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Value({:x}, {}+{})", self.segment.id(), self.offset, self.len)
    }
}
