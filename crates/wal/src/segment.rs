//! The file of one segment: allocated, zeroed, read whole.

use crate::Error;
use crate::name::SegmentName;
use disk::{Disk, File, Mode, REAP_STEP_BYTES};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Zeros are written in pieces, each synced, so that the log's own syncs never wait for a whole segment.
const ZERO_BYTES: u64 = 1 << 20;

/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;

/// A file that is to become a segment: zeros, durable, under a temporary name.
pub(crate) struct Prepared {
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
}

/// Allocates a new file.
pub(crate) fn allocate(disk: &dyn Disk, path: PathBuf, segment_bytes: u64) -> Result<Prepared, Error> {
    let file = disk.open(&path, Mode::Create).map_err(Error::io("create", &path))?;
    file.allocate(segment_bytes).map_err(Error::io("allocate", &path))?;
    file.sync_data().map_err(Error::io("sync", &path))?;
    Ok(Prepared { file, path })
}

/// Makes an old segment, already renamed to `path`, ready to be used again: zeros, synced. No byte of it is then left that could be taken for
/// a part of the log. The removal of its old name must be durable before.
pub(crate) fn recycle(disk: &dyn Disk, path: PathBuf, segment_bytes: u64) -> Result<Prepared, Error> {
    let is_shared = |file: &dyn File| file.is_shared().map_err(Error::io("look at", &path));
    let file = match disk.open(&path, Mode::Own) {
        Ok(file) if !is_shared(&*file)? => file,
        // Somebody made a copy of the directory by hard links, or the name is none of a file: its bytes are not ours to overwrite.
        _ => {
            disk.remove(&path).map_err(Error::io("remove", &path))?;
            return allocate(disk, path, segment_bytes);
        }
    };
    let mut len = file.len().map_err(Error::io("read", &path))?;
    while len > segment_bytes {
        len = len.saturating_sub(REAP_STEP_BYTES).max(segment_bytes);
        file.truncate(len).map_err(Error::io("truncate", &path))?;
    }
    zero(&*file, 0).map_err(Error::io("clear", &path))?;
    file.allocate(segment_bytes).map_err(Error::io("allocate", &path))?;
    file.sync_data().map_err(Error::io("sync", &path))?;
    Ok(Prepared { file, path })
}

/// Writes zeros from `offset` to the end of the file and syncs them. The first go last: should this fail, what begins there tells the next
/// start that it must be done again.
pub(crate) fn zero(file: &dyn File, offset: u64) -> io::Result<()> {
    let len = file.len()?.saturating_sub(offset);
    let zeros = vec![0; ZERO_BYTES.min(len) as usize];
    // Counted from the first on, so that none ends within the beginning of a batch.
    for piece in (0..len.div_ceil(ZERO_BYTES)).rev() {
        let from = piece.saturating_mul(ZERO_BYTES);
        let left = usize::try_from(len.saturating_sub(from)).unwrap_or(usize::MAX);
        file.write_at(zeros.get(..left).unwrap_or(&zeros), offset.saturating_add(from))?;
        file.sync_data()?;
    }
    Ok(())
}

/// Writes the last that [`zero`] writes once more, without a sync. If that had failed, the page cache has zeros that the disk does not have.
pub(crate) fn zero_first(file: &dyn File, offset: u64) -> io::Result<()> {
    let left = file.len()?.saturating_sub(offset).min(ZERO_BYTES);
    file.write_at(&vec![0; left as usize], offset)
}

/// Opens a segment for writing and locks it against other processes.
pub(crate) fn open_locked(disk: &dyn Disk, path: &Path) -> Result<Arc<dyn File>, Error> {
    let file = disk.open(path, Mode::Write).map_err(Error::io("open", path))?;
    lock(&*file, path)?;
    Ok(file)
}

/// Locks a segment against other processes.
pub(crate) fn lock(file: &dyn File, path: &Path) -> Result<(), Error> {
    match file.lock() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Error::Locked(path.into())),
        result => result.map_err(Error::io("lock", path)),
    }
}

/// The whole file, in parts.
pub(crate) fn read(file: &dyn File, path: &Path, rest: fn()) -> Result<Vec<u8>, Error> {
    let read = || {
        let len = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        while bytes.len() < len {
            let offset = bytes.len();
            bytes.resize(len.min(offset.saturating_add(READ_BYTES)), 0);
            file.read_at(bytes.split_at_mut(offset).1, offset as u64)?;
            rest();
        }
        Ok(bytes)
    };
    read().map_err(Error::io("read", path))
}

/// Bytes of the files in the directory `dir` of a log that are no part of it: an opened log gives them back, or uses them again.
pub fn leftover_bytes(disk: &dyn Disk, dir: &Path) -> u64 {
    let (_, temporary) = list(disk, dir).unwrap_or_default();
    let lengths =
        temporary.iter().filter_map(|name| disk.open(&dir.join(name), Mode::Own).and_then(|file| file.len()).ok());
    lengths.fold(0, u64::saturating_add)
}

/// The segments in a directory by sequence number, and the names of temporary files.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<(Vec<SegmentName>, Vec<String>), Error> {
    let names = disk.list(dir).map_err(Error::io("list", dir))?;
    let mut segments: Vec<_> = names.iter().filter_map(|name| SegmentName::parse(name)).collect();
    segments.sort_unstable();
    let temporary = names.into_iter().filter(|name| name.ends_with(crate::name::TEMPORARY)).collect();
    Ok((segments, temporary))
}
