//! What can go wrong with the log.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the log. After one from [`crate::Wal::commit`] the log stays poisoned.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system failed an operation.
    #[error("cannot {operation} `{path}`: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// Bytes on disk that no power cut explains.
    #[error("`{file}` is damaged at offset {offset}: {what}")]
    Corrupt {
        /// The segment.
        file: PathBuf,
        /// Byte offset in it.
        offset: u64,
        /// What was found there.
        what: String,
    },
    /// The directory holds no log.
    #[error("there is no log in `{0}`")]
    Missing(PathBuf),
    /// A log was to be created where there is one.
    #[error("there is already a log in `{0}`")]
    Exists(PathBuf),
    /// A segment between others is gone.
    #[error("segment {sequence:016x} is missing from `{dir}`")]
    Gap {
        /// The log's directory.
        dir: PathBuf,
        /// Sequence number of the missing segment.
        sequence: u64,
    },
    /// The log does not reach back to the state it is to be replayed on.
    #[error("the log in `{dir}` begins at entry {first_index}, but the state ends at entry {from_index}")]
    Behind {
        /// The log's directory.
        dir: PathBuf,
        /// First entry that the log can give.
        first_index: u64,
        /// The entry that the caller's state has applied last.
        from_index: u64,
    },
    /// The log lost what was applied from it.
    #[error(
        "the log in `{dir}` ends at entry {last_index}, but the state that was made of it has entry {from_index}: the log was \
         truncated, lost, or replaced by an older copy"
    )]
    Ends {
        /// The log's directory.
        dir: PathBuf,
        /// The last entry of the log.
        last_index: u64,
        /// The entry that the caller's state has applied last.
        from_index: u64,
    },
    /// The log is not the one that was applied.
    #[error(
        "the log in `{dir}` does not continue entry {from_index} of the state that was made of it: it is another log"
    )]
    Differs {
        /// The log's directory.
        dir: PathBuf,
        /// The entry that the caller's state has applied last.
        from_index: u64,
    },
    /// A segment belongs to another member or cluster than the ones before it.
    #[error("`{0}` belongs to another member or cluster than the segments before it")]
    Metadata(PathBuf),
    /// Another process uses the log.
    #[error("`{0}` is in use by another process")]
    Locked(PathBuf),
    /// An earlier write or sync failed, so nothing can be promised any more.
    #[error("the log cannot be used after an earlier failure: {0}")]
    Poisoned(String),
}

impl Error {
    /// True when the disk, or the user's share of it, is full.
    pub(crate) fn is_out_of_space(&self) -> bool {
        matches!(self, Error::Io { source, .. } if disk::is_full(source))
    }

    /// For `map_err` around an operation on `path`.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { operation, path, source }
    }
}
