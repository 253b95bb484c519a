//! What is logged, how, and where to.

use super::{Format, Level};
use std::path::PathBuf;

/// A place for log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// The journal of systemd.
    Journal,
    /// A file.
    File(PathBuf),
}

/// When a log file is full, and what becomes of old ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes after which a new file is begun.
    pub bytes_max: u64,
    /// Days that old files are kept, if there is a limit.
    pub age_days_max: Option<u64>,
    /// Old files that are kept, if there is a limit.
    pub backups_max: Option<usize>,
    /// Names of old files have the local time, not UTC.
    pub local_time: bool,
    /// Compress old files.
    pub compress: bool,
}

/// The log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Lowest level.
    pub level: Level,
    /// How lines look.
    pub format: Format,
    /// Where they go.
    pub outputs: Vec<Output>,
    /// Rotation of the one file among them.
    pub rotation: Option<Rotation>,
}
