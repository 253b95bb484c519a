//! Memory that never moves, so that mappings of a growing file stay valid.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Address space reserved per file. Pages cost memory only once they are written.
pub(super) const FILE_BYTES_MAX: usize = 1 << 30;

/// A region with more written bytes than this goes back to the system: clearing it would take longer.
const CLEARED_BYTES_MAX: usize = 64 << 10;

/// Regions that a thread keeps for its next files. Every power cut makes all files anew, and unmapping stops the other threads.
const KEPT_MAX: usize = 4096;

thread_local! {
    static KEPT: RefCell<Vec<Region>> = const { RefCell::new(Vec::new()) };
}

/// The bytes of one file, all zeros at first.
pub(super) struct Memory {
    region: Option<Region>,
    /// Everything from here on is zeros.
    written: AtomicUsize,
}

struct Region {
    start: *mut u8,
}

// SAFETY: plain memory; writers are serialised by the disk's lock, readers follow the contract of `Mapping::new`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn new() -> io::Result<Region> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping; the result is checked.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), FILE_BYTES_MAX, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Region { start: start.cast() }) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the region that `mmap` returned, unmapped once.
        unsafe { libc::munmap(self.start.cast(), FILE_BYTES_MAX) };
    }
}

impl Memory {
    pub(super) fn new() -> io::Result<Memory> {
        let region = match KEPT.with_borrow_mut(Vec::pop) {
            Some(region) => region,
            None => Region::new()?,
        };
        Ok(Memory { region: Some(region), written: AtomicUsize::new(0) })
    }

    pub(super) fn start(&self) -> *const u8 {
        self.region.as_ref().map_or(std::ptr::null(), |region| region.start)
    }

    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) {
        assert_within(offset, bytes.len());
        // SAFETY: within the region by the assertion; `bytes` is another allocation.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start().add(offset as usize), bytes.as_mut_ptr(), bytes.len());
        }
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        assert_within(offset, bytes.len());
        self.written.fetch_max(offset as usize + bytes.len(), Ordering::Relaxed);
        // SAFETY: within the region by the assertion; `bytes` is another allocation.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start().cast_mut().add(offset as usize), bytes.len());
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Some(region) = self.region.take() else { return };
        let written = *self.written.get_mut();
        if written > CLEARED_BYTES_MAX {
            return;
        }
        // A thread that ends has no place for it any more: the region is unmapped.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_MAX {
                // SAFETY: within the region, to which nothing else refers: the last mapping has let go of this memory.
                unsafe { std::ptr::write_bytes(region.start, 0, written) };
                kept.push(region);
            }
        });
    }
}

fn assert_within(offset: u64, len: usize) {
    let within = (offset as usize).checked_add(len).is_some_and(|end| end <= FILE_BYTES_MAX);
    assert!(within, "bytes {offset} + {len} lie outside of the simulated file's region");
}
