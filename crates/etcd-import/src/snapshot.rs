//! A snapshot file: a database followed by its checksum, as `snapshot save` writes it.

use crate::Error;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of the checksum.
const CHECKSUM_BYTES: u64 = 32;
/// The length of a database is a multiple of it.
const SECTOR_BYTES: u64 = 512;
/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// A file that a member's database was saved to.
pub struct SnapshotFile;

impl SnapshotFile {
    /// Compares the file with its checksum. A file without one was copied from a data directory, and is taken only if
    /// `skips_check`.
    ///
    /// # Errors
    /// If it is not what was saved.
    pub fn check(path: &Path, skips_check: bool) -> Result<(), Error> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let bytes = file.metadata().map_err(Error::io("stat", path))?.len();
        if skips_check {
            return Ok(());
        }
        if !has_checksum(bytes) {
            return Err(Error::Refused("snapshot missing hash but --skip-hash-check=false".into()));
        }
        SnapshotFile::compare(path, file, bytes)
    }

    /// The same of a file of a chain, which says which one it is.
    ///
    /// # Errors
    /// If it is not what was saved.
    pub fn check_saved(path: &Path) -> Result<(), Error> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let bytes = file.metadata().map_err(Error::io("stat", path))?.len();
        let why = match has_checksum(bytes) {
            true => match SnapshotFile::compare(path, file, bytes) {
                Err(Error::Refused(why)) => why,
                other => return other,
            },
            false => "it has no checksum (sha256) at its end, as files of `snapshot save` have".into(),
        };
        Err(Error::Refused(format!("`{}`: {why}", path.display())))
    }

    fn compare(path: &Path, mut file: File, bytes: u64) -> Result<(), Error> {
        let mut hash = Sha256::new();
        let mut left = bytes.saturating_sub(CHECKSUM_BYTES);
        let mut room = vec![0; READ_BYTES];
        while left > 0 {
            room.truncate(left.min(READ_BYTES as u64) as usize);
            file.read_exact(&mut room).map_err(Error::io("read", path))?;
            hash.update(&room);
            left = left.saturating_sub(room.len() as u64);
        }
        let mut wanted = [0; CHECKSUM_BYTES as usize];
        file.read_exact(&mut wanted).map_err(Error::io("read", path))?;
        let found = hash.finalize();
        if *found.as_slice() == wanted {
            return Ok(());
        }
        let list = |bytes: &[u8]| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
        Err(Error::Refused(format!("expected sha256 [{}], got [{}]", list(&wanted), list(&found))))
    }
}

/// Whether a file of this length has a checksum behind its database.
fn has_checksum(bytes: u64) -> bool {
    bytes % SECTOR_BYTES == CHECKSUM_BYTES
}
