//! Why a file cannot be used.

use std::path::PathBuf;

/// What goes wrong with files of another program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{what} {}: {}", path.display(), plain(.source))]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Bytes of a database that make no sense.
    #[error("`{}` is damaged at page {page}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        page: u64,
        /// What is wrong.
        what: String,
    },
    /// No database at all.
    #[error("`{}` is no database: {what}", path.display())]
    NoDatabase {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// A database whose contents are none of etcd's.
    #[error("bucket `{bucket}`: {what}")]
    Contents {
        /// Where.
        bucket: String,
        /// What is wrong.
        what: String,
    },
    /// Another process uses the file.
    #[error("`{}` is in use: stop the member first", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A log that cannot be read.
    #[error("`{}` is damaged at offset {offset}: {what}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A directory of the log where the member has other files.
    #[error(
        "--wal-dir `{}` is in `{}`, where the member keeps its other files: leave --wal-dir out, and the log is in `{}`; or name a directory \
         outside of it",
        wal_dir.display(),
        member.display(),
        member.join("wal").display()
    )]
    WalDir {
        /// What was named.
        wal_dir: PathBuf,
        /// The member's own directory.
        member: PathBuf,
    },
    /// Anything that is wrong with what was asked for.
    #[error("{0}")]
    Refused(String),
    /// The store was not written.
    #[error(transparent)]
    Store(#[from] store::FoundingError),
    /// The log was not written.
    #[error(transparent)]
    Wal(#[from] wal::Error),
    /// The data directory cannot be used.
    #[error(transparent)]
    Target(#[from] disk::data_dir::DataDirError),
}

impl Error {
    pub(crate) fn io<'a>(
        what: &'static str,
        path: &'a std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> Error + use<'a> {
        move |source| Error::Io { what, path: path.into(), source }
    }

    pub(crate) fn contents(bucket: &str, what: impl Into<String>) -> Error {
        Error::Contents { bucket: bucket.into(), what: what.into() }
    }
}

/// What the operating system says, as Go says it.
fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}
