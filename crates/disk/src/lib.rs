//! The disk, as the log and the store see it.
//!
//! `wal` and `store` reach files only through [`Disk`] and [`File`], so that the same code runs on the operating system
//! ([`OsDisk`]) and on a recording disk ([`sim::SimDisk`], feature `sim`) that cuts the power and drops whatever was not synced.
//!
//! Contract: what [`File::sync_data`] covered survives a power cut (contents and length); what [`Disk::sync_dir`] covered
//! survives as names. Everything else may be lost in any subset of 512-byte sectors and names. After a failed write or sync the
//! caller must not use the file again.
//!
//! Nothing large is to happen to a disk at once, because the syncs of all other files wait for it: [`Reaper`] gives files back in small steps,
//! and [`WriteBack`] brings what is written to the disk while it is written.
//!
//! [`data_dir`] is the layout of a member's data directory, its locks, and the mark that keeps a member from starting.

pub mod data_dir;
mod fetch;
mod known;
mod mapping;
mod os;
mod reaper;
pub mod sigbus;
#[cfg(feature = "sim")]
pub mod sim;
mod write_back;

pub use fetch::fetch;
pub use known::KnownFiles;
pub use mapping::Mapping;
pub use os::OsDisk;
pub use reaper::{REAP_STEP_BYTES, ReapError, Reaped, Reaper, Users, Waiting, is_full, remove_in_steps};
pub use write_back::{WriteBack, write_behind};

use std::io;
use std::path::Path;
use std::sync::Arc;

/// How [`Disk::open`] opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Must exist; reads only.
    Read,
    /// Must exist; reads and writes.
    Write,
    /// As [`Mode::Write`], for a file that is to be cut or overwritten because its name says that it is not needed: only a regular file, and no
    /// symbolic link to one.
    Own,
    /// Must not exist; reads and writes. Mode 0600.
    Create,
}

/// A tree of files.
pub trait Disk: Send + Sync + 'static {
    /// Opens a file.
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>>;
    /// Renames, replacing what is there. Durable after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Unlinks a file. Open files and mappings stay usable.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Creates a directory and its parents, mode 0700.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Bytes an unprivileged writer could still allocate on the file system of `dir`.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// An open file. All offsets are absolute; there is no cursor.
pub trait File: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// True when the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Fills `bytes` from `offset`; an error if the file ends before.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Makes contents and length durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
    /// Starts to write the pages of a range to the disk, or also waits until they are there. This makes nothing durable: it only leaves less to
    /// do to the next [`File::sync_data`]. An error is as bad as one of a sync, and may be told only once.
    fn write_back(&self, offset: u64, len: u64, waits: bool) -> io::Result<()>;
    /// Reserves space for `len` bytes and makes the file at least that long; new bytes read as zeros.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Sets the length. Never below a length that a live mapping's reader still uses.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Whether the file has other names, so that its bytes belong to somebody else too.
    fn is_shared(&self) -> io::Result<bool>;
    /// What tells the file from all others that exist now, whatever its names.
    fn identity(&self) -> io::Result<(u64, u64)>;
    /// Maps the first `len` bytes (at most the file's length) for reading. Later writes through `write_at` show in it.
    fn map(&self, len: u64) -> io::Result<Mapping>;
    /// Takes the advisory lock of the file, without waiting; `WouldBlock` when another process has it. Held until closed.
    fn lock(&self) -> io::Result<()>;
}
