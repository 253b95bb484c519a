//! The places log lines go to. Only the writer thread touches them.

use super::journal::Journal;
use super::rotation::Rotating;
use super::{Level, Options, Output};
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// One open place.
pub(super) enum Sink {
    Stderr,
    Stdout,
    File(PathBuf, File),
    Rotating(Rotating),
    Journal(Journal),
}

/// Opens every place of the configuration.
pub(super) fn open(options: &Options) -> Result<Vec<Sink>, String> {
    let open_one = |output: &Output| match (output, options.rotation) {
        (Output::Stderr, _) => Ok(Sink::Stderr),
        (Output::Stdout, _) => Ok(Sink::Stdout),
        (Output::Journal, _) => {
            Journal::open().map(Sink::Journal).map_err(|error| format!("cannot reach the journal of systemd: {error}"))
        }
        (Output::File(path), None) => {
            append(path).map(|file| Sink::File(path.clone(), file)).map_err(|error| unusable(path, &error))
        }
        (Output::File(path), Some(rotation)) => {
            Rotating::open(path, rotation).map(Sink::Rotating).map_err(|error| unusable(path, &error))
        }
    };
    options.outputs.iter().map(open_one).collect()
}

fn unusable(path: &Path, error: &io::Error) -> String {
    format!("cannot log to the file {}: {error}", path.display())
}

/// The mode of a new log file: only its owner may read and write it, because it holds keys and names of users.
pub(super) const MODE: u32 = 0o600;

/// The mode of a folder that is made for one.
const FOLDER_MODE: u32 = 0o700;

/// Opens a file so that another process may truncate it, in a folder that is made if it is missing. An existing file keeps its mode: an
/// operator who lets others read the log says so there. A pipe must have a reader: to wait for one would hold up the start of the member,
/// or its log.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    }
    let opened = File::options().create(true).append(true).mode(MODE).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => io::Error::other("it is a socket, or a pipe that has no reader"),
        _ => error,
    })?;
    if file.metadata()?.file_type().is_block_device() {
        return Err(io::Error::other("it is a disk"));
    }
    wait_for_writes(&file)?;
    Ok(file)
}

/// Has writes to a pipe wait for its reader.
fn wait_for_writes(file: &File) -> io::Result<()> {
    // SAFETY: no pointers are passed, and the descriptor is open.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl Sink {
    /// Writes one line. It ends with a newline.
    pub(super) fn write(&mut self, level: Level, line: &str) -> io::Result<()> {
        match self {
            Sink::Stderr => io::stderr().write_all(line.as_bytes()),
            Sink::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(line.as_bytes())?;
                out.flush()
            }
            Sink::File(_, file) => file.write_all(line.as_bytes()),
            Sink::Rotating(file) => file.write(line.as_bytes()),
            Sink::Journal(journal) => journal.write(level, line),
        }
    }

    /// Opens a file anew, which another process may have moved away. One that cannot be opened goes on as it was.
    pub(super) fn reopen(&mut self) -> Result<(), String> {
        match self {
            Sink::Stderr | Sink::Stdout | Sink::Journal(_) => Ok(()),
            Sink::File(path, file) => append(path).map(|new| *file = new).map_err(|error| unusable(path, &error)),
            Sink::Rotating(file) => file.reopen().map_err(|error| unusable(file.path(), &error)),
        }
    }
}
