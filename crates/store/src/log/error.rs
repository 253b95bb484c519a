//! Errors of the revision log.

use super::Damage;
use std::io;
use std::path::{Path, PathBuf};

/// A failure of the revision log. Each ends the member: what is on disk after a failed write is unknown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An earlier write failed.
    #[error("the revision log failed earlier and takes no more writes")]
    Poisoned,
    /// The disk refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// A segment does not hold what was written to it.
    #[error("`{}` is damaged at offset {}: {}", path.display(), damage.offset, damage.what)]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where, and what is wrong.
        damage: Damage,
    },
}

impl Error {
    /// For `map_err`: names the action and the file.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { action, path: path.to_path_buf(), source }
    }

    /// As [`Error::io`], for what may not be tried again even if it was the room that lacked: after a failed sync nobody knows
    /// what became durable of a file that is in use.
    pub(crate) fn fatal(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { action, path: path.to_path_buf(), source: io::Error::other(source) }
    }

    /// True when the file system was full, and nothing was changed by trying.
    pub fn is_out_of_space(&self) -> bool {
        matches!(self, Error::Io { source, .. } if disk::is_full(source))
    }
}
