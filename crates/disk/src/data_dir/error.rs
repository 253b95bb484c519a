//! Why a data directory is refused.

use std::io;
use std::path::{Path, PathBuf};

/// Why a data directory cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// etcd's own.
    #[error(
        "`{dir}` holds the data of an etcd member; it was left untouched. Take the member over: start with --adopt-etcd-data (etcd's files \
         are kept beside ours), or make a copy with `cairn util migrate --from DIR --data-dir NEW` and start with NEW; or choose \
         another --data-dir"
    )]
    Etcd {
        /// The data directory.
        dir: PathBuf,
    },
    /// In use.
    #[error("`{path}` is locked: another process is using this directory. Stop it, or choose another --data-dir")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// One half is missing.
    #[error(
        "`{found}` exists but `{missing}` does not: the log and the store belong together. Restore the missing directory, \
         or remove both to start this member anew"
    )]
    Half {
        /// What is there.
        found: PathBuf,
        /// What is not.
        missing: PathBuf,
    },
    /// It was marked by [`super::mark_lost_log`].
    #[error(
        "`{path}` says that this member must not start again: {text}\n`--unsafe-ignore-lost-log` starts it all the same, and may \
         cost writes that the cluster has acknowledged"
    )]
    LogLost {
        /// The mark.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// The operating system refused.
    #[error("cannot {what} `{path}`: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

pub(super) fn failed<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> DataDirError + 'a {
    move |source| DataDirError::Io { what, path: path.into(), source }
}
