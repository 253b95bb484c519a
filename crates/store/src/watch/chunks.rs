//! Encoded events: what was copied, and stored bytes between it.

use bytes::Bytes;

/// Stored bytes from this size on are not copied into a response: it refers to them where they lie.
pub(super) const LARGE_BYTES_MIN: usize = 16 * 1024;

/// Bytes in several parts. Mostly there is one, which takes no list.
#[derive(Clone, Debug, Default)]
pub struct Chunks {
    first: Bytes,
    rest: Vec<Bytes>,
    len: usize,
}

impl Chunks {
    /// Appends a part that is not empty.
    pub(super) fn push(&mut self, chunk: Bytes) {
        self.len = self.len.saturating_add(chunk.len());
        if self.first.is_empty() {
            self.first = chunk;
        } else {
            self.rest.push(chunk);
        }
    }

    /// Length of all parts together.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The parts in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(&self.rest).filter(|chunk| !chunk.is_empty())
    }
}
