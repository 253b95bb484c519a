//! Giving the space of files back little by little.
//!
//! Removing a large file is one large piece of work for the file system: on one that is mounted with `discard` the syncs of all other files wait
//! until every block has been told to the disk. So a file that is not needed any more only loses its name for data; a [`Reaper`] then cuts
//! its end off, step by step, and removes it when little is left. The owner of the files decides when a step is taken: a reaper has no thread
//! and no clock.
//!
//! A retired file has a name that every start takes for a leftover. So nothing is lost when the process ends between two steps.

use crate::{Disk, File, Mode};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that a step cuts off, if nobody waits for the space.
pub const REAP_STEP_BYTES: u64 = 1 << 20;

/// Files may wait for their turn while they are at most this part of what is free on the disk.
const FREE_SHARE: u64 = 4;

/// What still uses a retired file. While anybody else holds it, the file stays as it is.
pub type Users = Arc<dyn Any + Send + Sync>;

/// The retired files of one directory.
pub struct Reaper {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    state: Mutex<State>,
    freed_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Retired>,
    /// Files retired so far, and how many of them had their new names made durable.
    retired: u64,
    durable: u64,
    /// Files that steps work on, and their bytes.
    at_work: usize,
    at_work_bytes: u64,
}

struct Retired {
    path: PathBuf,
    number: u64,
    bytes: u64,
    users: Option<Users>,
    file: Option<Arc<dyn File>>,
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// No file is retired.
    Idle,
    /// All retired files are still used.
    Waiting,
    /// So many bytes were given back.
    Freed(u64),
}

/// Files that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How many, the one that a step works on not counted.
    pub files: usize,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// A file that could not be given back. It stays with the reaper, which tries it again after all others.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} `{path}`: {source}")]
pub struct ReapError {
    /// What was tried.
    pub operation: &'static str,
    /// On which file or directory.
    pub path: PathBuf,
    /// The operating system's answer.
    pub source: io::Error,
}

impl Reaper {
    /// A reaper for files in `dir`.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path) -> Reaper {
        Reaper { disk, dir: dir.into(), state: Mutex::default(), freed_bytes: AtomicU64::new(0) }
    }

    /// Takes a file of about `bytes` that has got a name which no start takes for data; that name need not be durable. Costs nothing: may be
    /// called under locks. The file is left as it is, and `users` are kept, while anybody else holds them. They are dropped by a step.
    pub fn retire(&self, path: PathBuf, bytes: u64, users: Option<Users>) {
        let mut state = self.state();
        state.retired = state.retired.saturating_add(1);
        let number = state.retired;
        state.queue.push_back(Retired { path, number, bytes, users, file: None });
    }

    /// As [`Reaper::retire`], for a file that was found at a start: looks how large it is.
    pub fn retire_found(&self, path: PathBuf) {
        // One that cannot be looked at is opened again by a step, which says why it fails.
        let bytes = self.disk.open(&path, Mode::Read).and_then(|file| file.len()).unwrap_or(0);
        self.retire(path, bytes, None);
    }

    /// Cuts up to `bytes` off a retired file that nobody uses, or removes what is left of it. Waits for the disk: for a thread that nobody
    /// waits for. An error is none of the data; the file stays on the disk, and what a start leaves aside it leaves aside.
    pub fn step(&self, bytes: u64) -> Result<Reaped, ReapError> {
        let mut retired = match self.take() {
            Ok(retired) => retired,
            Err(nothing) => return Ok(nothing),
        };
        let taken_bytes = retired.bytes;
        // May unmap the file: without the lock.
        retired.users = None;
        let result = self.shrink(&mut retired, bytes.max(1));
        let mut state = self.state();
        state.at_work = state.at_work.saturating_sub(1);
        state.at_work_bytes = state.at_work_bytes.saturating_sub(taken_bytes);
        match result {
            Ok((freed, is_gone)) => {
                if !is_gone {
                    state.queue.push_front(retired);
                }
                drop(state);
                self.freed_bytes.fetch_add(freed, Ordering::Relaxed);
                Ok(Reaped::Freed(freed))
            }
            Err(error) => {
                retired.file = None;
                state.queue.push_back(retired);
                Err(error)
            }
        }
    }

    /// Gives back everything that nobody uses, at once: for tools, and for tests.
    pub fn finish(&self) -> Result<(), ReapError> {
        while let Reaped::Freed(_) = self.step(u64::MAX)? {}
        Ok(())
    }

    /// Whether steps would give something back: a file that nobody uses waits, or is being cut.
    pub fn has_work(&self) -> bool {
        let mut state = self.state();
        state.at_work > 0 || state.queue.iter_mut().any(Retired::is_free)
    }

    /// What waits to be given back.
    pub fn waiting(&self) -> Waiting {
        let state = self.state();
        let bytes = state.queue.iter().map(|retired| retired.bytes).fold(state.at_work_bytes, u64::saturating_add);
        Waiting { files: state.queue.len(), bytes }
    }

    /// Whether what waits is so much of what is free that it should be given back without rests: nobody is to run out of space because of it.
    pub fn is_urgent(&self) -> bool {
        if !self.has_work() {
            return false;
        }
        // A disk that does not say how much is free is found full by a write, if it is.
        let free = self.disk.free_bytes(&self.dir).unwrap_or(u64::MAX);
        self.waiting().bytes > free / FREE_SHARE
    }

    /// Bytes given back since the start.
    pub fn freed_bytes(&self) -> u64 {
        self.freed_bytes.load(Ordering::Relaxed)
    }

    /// The oldest file that nobody uses.
    fn take(&self) -> Result<Retired, Reaped> {
        let mut state = self.state();
        let free = state.queue.iter_mut().position(Retired::is_free);
        let Some(retired) = free.and_then(|at| state.queue.remove(at)) else {
            return Err(if state.queue.is_empty() { Reaped::Idle } else { Reaped::Waiting });
        };
        state.at_work = state.at_work.saturating_add(1);
        state.at_work_bytes = state.at_work_bytes.saturating_add(retired.bytes);
        Ok(retired)
    }

    /// Returns the bytes given back, and whether the file is gone.
    fn shrink(&self, retired: &mut Retired, step_bytes: u64) -> Result<(u64, bool), ReapError> {
        // Until then a power cut may bring the old name back, which must not have lost its bytes.
        self.make_durable(retired.number)?;
        let path = &retired.path;
        let file = match &retired.file {
            Some(file) => Arc::clone(file),
            None => match self.disk.open(path, Mode::Write) {
                Ok(file) => {
                    retired.bytes = file.len().map_err(failed("measure", path))?;
                    retired.file = Some(Arc::clone(&file));
                    file
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, true)),
                // What cannot be opened may still be removed.
                Err(_) => return self.remove(retired),
            },
        };
        // A file with another name (a copy by hard links) keeps its bytes: removing this name frees nothing, and takes no time.
        let is_shared = file.is_shared().map_err(failed("look at", path))?;
        let rest = retired.bytes.saturating_sub(step_bytes);
        if is_shared || rest == 0 {
            return self.remove(retired);
        }
        match file.truncate(rest) {
            Ok(()) => {
                retired.bytes = rest;
                Ok((step_bytes, false))
            }
            // Nothing else helps then, whatever it costs.
            Err(error) => self.remove(retired).map_err(|_| failed("truncate", &retired.path)(error)),
        }
    }

    fn remove(&self, retired: &mut Retired) -> Result<(u64, bool), ReapError> {
        match self.disk.remove(&retired.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &retired.path)(error)),
            _ => Ok((retired.bytes, true)),
        }
    }

    fn make_durable(&self, number: u64) -> Result<(), ReapError> {
        let state = self.state();
        let retired = state.retired;
        if state.durable >= number {
            return Ok(());
        }
        drop(state);
        self.disk.sync_dir(&self.dir).map_err(failed("sync", &self.dir))?;
        let mut state = self.state();
        state.durable = state.durable.max(retired);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Retired {
    /// Whether nobody else holds the users. Whoever did has dropped them before, with all that was read through them.
    fn is_free(&mut self) -> bool {
        self.users.as_mut().is_none_or(|users| Arc::get_mut(users).is_some())
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ReapError {
    let path = path.to_path_buf();
    move |source| ReapError { operation, path, source }
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper").field("dir", &self.dir).field("waiting", &self.waiting()).finish()
    }
}

#[cfg(test)]
mod tests;
