//! Memory that never moves, so that mappings of a growing file stay valid.

use std::io;

/// Address space reserved per file. Pages cost memory only once they are written.
pub(super) const FILE_BYTES_MAX: usize = 1 << 30;

/// The bytes of one file, all zeros at first.
pub(super) struct Memory {
    start: *mut u8,
}

// SAFETY: plain memory; writers are serialised by the disk's lock, readers follow the contract of `Mapping::new`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new() -> io::Result<Memory> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping; the result is checked.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), FILE_BYTES_MAX, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Memory { start: start.cast() }) }
    }

    pub(super) fn start(&self) -> *const u8 {
        self.start
    }

    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) {
        assert_within(offset, bytes.len());
        // SAFETY: within the region by the assertion; `bytes` is another allocation.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start.add(offset as usize), bytes.as_mut_ptr(), bytes.len());
        }
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        assert_within(offset, bytes.len());
        // SAFETY: within the region by the assertion; `bytes` is another allocation.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(offset as usize), bytes.len());
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the region that `mmap` returned, unmapped once.
        unsafe { libc::munmap(self.start.cast(), FILE_BYTES_MAX) };
    }
}

fn assert_within(offset: u64, len: usize) {
    let within = (offset as usize).checked_add(len).is_some_and(|end| end <= FILE_BYTES_MAX);
    assert!(within, "bytes {offset} + {len} lie outside of the simulated file's region");
}
