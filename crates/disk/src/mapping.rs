//! A read-only view of a file's bytes.

use crate::os::Region;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a file, readable without a system call. Clones share the view; the last one releases it.
#[derive(Clone)]
pub struct Mapping {
    start: *const u8,
    len: usize,
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the view is read-only and the owner is itself Send + Sync.
unsafe impl Send for Mapping {}
// SAFETY: as above; sharing a read-only view needs no synchronisation.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A view of `len` bytes from `start`.
    ///
    /// # Safety
    /// The bytes must stay readable at `start` for as long as `owner` lives. They may be written meanwhile only outside of the
    /// parts that readers were told about (an append-only file's tail).
    pub unsafe fn new(start: *const u8, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Mapping { start, len, owner }
    }

    /// Length of the view in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when the view has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes in `offset..offset + len`, or `None` when that is outside of the view.
    pub fn get(&self, offset: usize, len: usize) -> Option<&[u8]> {
        let end = offset.checked_add(len)?;
        if end > self.len {
            return None;
        }
        // SAFETY: in bounds by the check above; `new`'s contract keeps the bytes alive.
        Some(unsafe { std::slice::from_raw_parts(self.start.add(offset), len) })
    }

    /// Has the handler of SIGBUS remove a file before it ends the process, should a byte of the view turn out to be unreadable.
    pub fn removes_when_unreadable(&self, path: &Path) {
        if let Some(region) = self.owner.downcast_ref::<Region>() {
            region.registered.removes(path);
        }
    }

    /// Address range of the view, for the handler of SIGBUS.
    pub fn address(&self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len
    }
}
