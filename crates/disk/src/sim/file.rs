//! An open file of the recording disk.

use super::faults::{Power, os_error};
use super::names::Inode;
use super::{SECTOR_BYTES, SimDisk, lock};
use crate::{File, Mapping, Mode};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct SimFile {
    disk: SimDisk,
    inode: Arc<Inode>,
    mode: Mode,
    holds_lock: AtomicBool,
}

impl SimFile {
    pub(super) fn new(disk: SimDisk, inode: Arc<Inode>, mode: Mode) -> SimFile {
        SimFile { disk, inode, mode, holds_lock: AtomicBool::new(false) }
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.mode == Mode::Read { Err(os_error(libc::EBADF)) } else { Ok(()) }
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.disk.state();
        let power = state.faults.begin()?;
        let grown = length.saturating_sub(lock(&self.inode.contents).length());
        state.check_space(grown)?;
        lock(&self.inode.contents).set_length(length)?;
        power.finish()
    }
}

impl File for SimFile {
    fn len(&self) -> io::Result<u64> {
        self.disk.state().faults.check_power()?;
        Ok(lock(&self.inode.contents).length())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.disk.state();
        let power = state.faults.begin()?;
        let end = offset.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        let grown = end.saturating_sub(lock(&self.inode.contents).length());
        state.check_space(grown)?;
        let failed = state.faults.write_error();
        // A kernel copies whole pages, so what was written ends at a sector.
        let half = (offset + bytes.len() as u64 / 2) / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
        let written = if failed.is_some() { &bytes[..half.saturating_sub(offset) as usize] } else { bytes };
        lock(&self.inode.contents).write(written, offset)?;
        failed.map_or_else(|| power.finish(), Err)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.state().faults.check_power()?;
        if self.inode.is_spoiled.load(Ordering::Acquire) {
            return Err(os_error(libc::EIO));
        }
        lock(&self.inode.contents).read(offset, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let power = state.faults.begin()?;
        if let Some(error) = state.faults.sync_error() {
            lock(&self.inode.contents).fail_sync();
            return Err(error);
        }
        if power == Power::On {
            lock(&self.inode.contents).sync();
        }
        power.finish()
    }

    fn write_back(&self, _offset: u64, _len: u64, _waits: bool) -> io::Result<()> {
        let mut state = self.disk.state();
        let power = state.faults.begin()?;
        if state.faults.write_back_fails() {
            // Told once: a later sync succeeds without these pages.
            lock(&self.inode.contents).fail_sync();
            return Err(os_error(libc::EIO));
        }
        power.finish()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.len()? >= len {
            self.check_writable()?;
            return self.disk.state().faults.begin()?.finish();
        }
        self.set_length(len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let state = self.disk.state();
        let guard = state.faults.guard;
        let is_used = guard > 0 && self.inode.mapped_bytes(guard) > len;
        state.faults.check_shrink()?;
        drop(state);
        assert!(!is_used, "a file is cut to {len} bytes while more of it are mapped");
        self.set_length(len)
    }

    fn is_shared(&self) -> io::Result<bool> {
        let state = self.disk.state();
        state.faults.check_power()?;
        Ok(!state.faults.miscounts_names && state.names_of(&self.inode) > 1)
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok((0, Arc::as_ptr(&self.inode) as u64))
    }

    fn map(&self, len: u64) -> io::Result<Mapping> {
        let state = self.disk.state();
        state.faults.check_power()?;
        let guard = state.faults.guard;
        drop(state);
        let contents = lock(&self.inode.contents);
        if len > contents.length() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let memory = contents.memory();
        let start = memory.start();
        // SAFETY: the memory never moves and lives as long as its owner.
        Ok(unsafe { Mapping::new(start, len as usize, self.inode.map(memory, len, guard)) })
    }

    fn lock(&self) -> io::Result<()> {
        self.disk.state().faults.check_power()?;
        if !self.holds_lock.load(Ordering::Acquire) {
            if self.inode.locked.swap(true, Ordering::AcqRel) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.holds_lock.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if self.holds_lock.load(Ordering::Acquire) {
            self.inode.locked.store(false, Ordering::Release);
        }
    }
}
