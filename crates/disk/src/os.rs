//! The operating system's disk.

use crate::{Disk, File, Mapping, Mode, sigbus};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of the operating system. With `unsafe_no_sync` every sync returns at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk {
    /// Set by `--unsafe-no-fsync`: acknowledged writes may be lost on a power cut.
    pub unsafe_no_sync: bool,
}

/// What a system says that does not have a call.
const NOT_THERE: [i32; 5] = [libc::ENOSYS, libc::EPERM, libc::EINVAL, libc::EOPNOTSUPP, libc::ESPIPE];

/// Bytes of a mapping that are given back at once before it is unmapped.
const UNMAP_BYTES: usize = 1 << 20;

struct OsFile {
    file: fs::File,
    path: PathBuf,
    unsafe_no_sync: bool,
}

impl OsDisk {
    /// A file that the caller has opened.
    pub fn opened(&self, file: fs::File, path: &Path) -> Arc<dyn File> {
        Arc::new(OsFile { file, path: path.into(), unsafe_no_sync: self.unsafe_no_sync })
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(mode != Mode::Read)
            .create_new(mode == Mode::Create)
            .mode(0o600)
            // A pipe would wait for its other end.
            .custom_flags(if mode == Mode::Own { libc::O_NOFOLLOW | libc::O_NONBLOCK } else { 0 })
            .open(path)?;
        if mode == Mode::Own && !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(self.opened(file, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.unsafe_no_sync { Ok(()) } else { fs::File::open(dir)?.sync_all() }
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let path = CString::new(dir.as_os_str().as_bytes())?;
        // SAFETY: `statvfs` is plain data, valid when zeroed; the path is a C string.
        let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for the call.
        check(unsafe { libc::statvfs(path.as_ptr(), &mut stat) })?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl File for OsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.unsafe_no_sync { Ok(()) } else { self.file.sync_data() }
    }

    fn write_back(&self, offset: u64, len: u64, waits: bool) -> io::Result<()> {
        if self.unsafe_no_sync {
            return Ok(());
        }
        let range = [offset, len].map(libc::off64_t::try_from);
        let [Ok(offset), Ok(len)] = range else { return Err(io::ErrorKind::InvalidInput.into()) };
        let waiting = if waits { libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER } else { 0 };
        let flags = libc::SYNC_FILE_RANGE_WRITE | waiting;
        // SAFETY: plain system call on an open descriptor.
        match check(unsafe { libc::sync_file_range(self.file.as_raw_fd(), offset, len, flags) }) {
            // A system without it, or one that does not let us: the sync does all of the work.
            Err(error) if error.raw_os_error().is_some_and(|code| NOT_THERE.contains(&code)) => Ok(()),
            result => result,
        }
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let len = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: plain system call on an open descriptor.
        match check(unsafe { libc::fallocate(self.file.as_raw_fd(), 0, 0, len) }) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                // A file system without preallocation: the length alone keeps the mapping valid.
                if self.len()? < len as u64 { self.file.set_len(len as u64) } else { Ok(()) }
            }
            result => result,
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn is_shared(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() > 1)
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        let metadata = self.file.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    fn map(&self, len: u64) -> io::Result<Mapping> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        if len == 0 {
            // SAFETY: an empty view is never read.
            return Ok(unsafe { Mapping::new(std::ptr::dangling(), 0, Arc::new(())) });
        }
        // SAFETY: a fresh shared read-only mapping of an open file; the result is checked.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, self.file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let registered = sigbus::register(start as usize, len, &self.path);
        let region = Region { start: start as usize, len, registered };
        // SAFETY: the region stays mapped until `Region` is dropped.
        Ok(unsafe { Mapping::new(start.cast(), len, Arc::new(region)) })
    }

    fn lock(&self) -> io::Result<()> {
        // SAFETY: plain system call on an open descriptor.
        check(unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })
    }
}

/// A mapped region, unmapped when dropped.
pub(crate) struct Region {
    start: usize,
    len: usize,
    pub(crate) registered: sigbus::Registered,
}

impl Drop for Region {
    fn drop(&mut self) {
        // Page faults of all threads wait while a region is unmapped. Giving its pages back before takes as long, but nobody waits.
        for start in (0..self.len).step_by(UNMAP_BYTES) {
            let len = UNMAP_BYTES.min(self.len - start);
            // SAFETY: within the region, which nobody reads any more; its pages are those of the file. A failure changes nothing.
            unsafe { libc::madvise((self.start + start) as *mut libc::c_void, len, libc::MADV_DONTNEED) };
        }
        // SAFETY: exactly the region that `mmap` returned, unmapped once.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.len) };
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
