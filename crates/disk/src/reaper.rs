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
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

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
    /// Told when a step has ended.
    ended: Condvar,
    /// Held while the directory is synced. The error of the first sync that failed: none after it may succeed.
    names_lost: Mutex<Option<String>>,
    /// Others whose files take space of the same disk.
    neighbours: Mutex<Vec<Weak<Reaper>>>,
    /// Retires what the owner only keeps to use it again.
    on_need: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
    freed_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Retired>,
    /// Those that could not be given back. No step takes them before [`Reaper::retry`].
    failed: Vec<Retired>,
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
    /// All retired files are still used, or cannot be given back.
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

/// A file that could not be given back. It stays with the reaper, and holds up no other.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} `{path}`: {source}")]
pub struct ReapError {
    /// What was tried.
    pub operation: &'static str,
    /// On which file or directory.
    pub path: PathBuf,
    /// The operating system's answer.
    pub source: io::Error,
    /// The names in the directory could not be made durable, and nobody is told of it a second time: the member must end.
    pub is_fatal: bool,
}

impl Reaper {
    /// A reaper for files in `dir`.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path) -> Reaper {
        Reaper {
            disk,
            dir: dir.into(),
            state: Mutex::default(),
            ended: Condvar::new(),
            names_lost: Mutex::default(),
            neighbours: Mutex::default(),
            on_need: Mutex::default(),
            freed_bytes: AtomicU64::new(0),
        }
    }

    /// Makes the names in the directory durable. Everybody who has files in it must call this and not [`Disk::sync_dir`]: the operating system
    /// tells of a name that it could not write once, to whoever syncs next. After an error every later call fails too.
    pub fn sync_names(&self) -> io::Result<()> {
        let mut lost = locked(&self.names_lost);
        if let Some(error) = &*lost {
            return Err(io::Error::other(format!("an earlier sync of the directory failed: {error}")));
        }
        self.disk.sync_dir(&self.dir).inspect_err(|error| *lost = Some(error.to_string()))
    }

    /// Notes that the files of `other` take space of the same disk, or may do so: [`Reaper::make_room`] of each then gives back those of both.
    pub fn share_disk_with(self: &Arc<Self>, other: &Arc<Reaper>) {
        locked(&self.neighbours).push(Arc::downgrade(other));
        locked(&other.neighbours).push(Arc::downgrade(self));
    }

    /// Has `retire_kept` called when a neighbour needs room and nothing is retired: it should retire what is only kept to be used again.
    pub fn on_need(&self, retire_kept: impl Fn() + Send + Sync + 'static) {
        *locked(&self.on_need) = Some(Arc::new(retire_kept));
    }

    /// Takes the name `from` from a file that is not needed any more, and gives it the name `to`. A disk that is too full even for that removes
    /// the file at once: then this is false, and there is nothing to retire. Open files and mappings stay usable.
    pub fn put_aside(&self, from: &Path, to: &Path) -> io::Result<bool> {
        match self.disk.rename(from, to) {
            Err(error) if is_full(&error) => self.disk.remove(from).map(|()| false),
            renamed => renamed.map(|()| true),
        }
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
        let bytes = self.disk.open(&path, Mode::Own).and_then(|file| file.len()).unwrap_or(0);
        self.retire(path, bytes, None);
    }

    /// Cuts up to `bytes` off a retired file that nobody uses, or removes what is left of it. Waits for the disk: for a thread that nobody
    /// waits for. Unless it is fatal, no data is lost by an error: the file stays, and every start ignores it.
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
        let done = match result {
            Ok((freed, is_gone)) => {
                if !is_gone {
                    state.queue.push_front(retired);
                }
                self.freed_bytes.fetch_add(freed, Ordering::Relaxed);
                Ok(Reaped::Freed(freed))
            }
            Err(error) => {
                retired.file = None;
                state.failed.push(retired);
                Err(error)
            }
        };
        drop(state);
        self.ended.notify_all();
        done
    }

    /// Has the files tried again that could not be given back. To be called now and then, by the owner's clock.
    pub fn retry(&self) {
        let state = &mut *self.state();
        state.queue.extend(state.failed.drain(..));
    }

    /// Gives back everything that nobody uses, at once: for tools, for tests, and before anybody waits. Of several errors the first is told, but
    /// for a fatal one.
    pub fn finish(&self) -> Result<(), ReapError> {
        let mut first = Ok(());
        loop {
            match self.step(u64::MAX) {
                Ok(Reaped::Freed(_)) => {}
                Ok(Reaped::Idle | Reaped::Waiting) => return first,
                Err(error) if error.is_fatal => return Err(error),
                Err(error) => first = first.and(Err(error)),
            }
        }
    }

    /// Gives back one file whole, of this reaper or of one that shares its disk: the disk is full, and somebody waits for space. False when
    /// there is none. Files that cannot be given back are left out, so that this is false in the end.
    pub fn make_room(&self) -> bool {
        self.free_one() || {
            let neighbours = locked(&self.neighbours).clone();
            neighbours.iter().filter_map(Weak::upgrade).any(|neighbour| neighbour.free_one() || neighbour.free_kept())
        }
    }

    fn free_kept(&self) -> bool {
        let on_need = locked(&self.on_need).clone();
        on_need.is_some_and(|retire_kept| {
            retire_kept();
            self.free_one()
        })
    }

    fn free_one(&self) -> bool {
        loop {
            match self.step(u64::MAX) {
                Ok(Reaped::Freed(0)) => {}
                Ok(Reaped::Freed(_)) => return true,
                Err(error) if error.is_fatal => return false,
                Err(_) => {}
                // Another thread may have one of them, and brings it back after a step.
                Ok(Reaped::Idle | Reaped::Waiting) if self.wait_for_step() || self.has_work() => {}
                Ok(Reaped::Idle | Reaped::Waiting) => return false,
            }
        }
    }

    /// Waits until a step that another thread takes has ended; false if there is none.
    fn wait_for_step(&self) -> bool {
        let mut state = self.state();
        let is_any = state.at_work > 0;
        while state.at_work > 0 {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        is_any
    }

    /// Whether steps would give something back: a file that nobody uses waits, or is being cut.
    pub fn has_work(&self) -> bool {
        let mut state = self.state();
        state.at_work > 0 || state.queue.iter_mut().any(Retired::is_free)
    }

    /// What waits to be given back.
    pub fn waiting(&self) -> Waiting {
        let state = self.state();
        let all = || state.queue.iter().chain(&state.failed);
        let bytes = all().map(|retired| retired.bytes).fold(state.at_work_bytes, u64::saturating_add);
        Waiting { files: all().count(), bytes }
    }

    /// Whether what waits is so much of what is free that it should be given back without rests: nobody is to run out of space because of it.
    pub fn is_urgent(&self) -> bool {
        let mut state = self.state();
        let at_work = state.at_work_bytes;
        let free_files = state.queue.iter_mut().filter_map(|retired| retired.is_free().then_some(retired.bytes));
        let bytes = free_files.fold(at_work, u64::saturating_add);
        drop(state);
        // A disk that does not say how much is free is found full by a write, if it is.
        bytes > 0 && bytes > self.disk.free_bytes(&self.dir).unwrap_or(u64::MAX) / FREE_SHARE
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
            return Err(if state.queue.is_empty() && state.failed.is_empty() { Reaped::Idle } else { Reaped::Waiting });
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
            None => match self.disk.open(path, Mode::Own) {
                Ok(file) => {
                    retired.bytes = file.len().map_err(failed("measure", path))?;
                    retired.file = Some(Arc::clone(&file));
                    file
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, true)),
                // What cannot be opened, or is no file of ours but a link to one, may still lose its name.
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
        let synced = self.sync_names().map_err(failed("sync", &self.dir));
        synced.map_err(|error| ReapError { is_fatal: true, ..error })?;
        let mut state = self.state();
        state.durable = state.durable.max(retired);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

/// Nothing that holds one of the locks can panic half-way through a change.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an operation failed because the disk, or the user's share of it, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Removes a file that nobody uses step by step, so that no sync of others waits for all of it: for a thread that may take its time.
pub fn remove_in_steps(disk: Arc<dyn Disk>, path: &Path) -> Result<(), ReapError> {
    let reaper = Reaper::new(disk, path.parent().unwrap_or(Path::new("")));
    reaper.retire_found(path.into());
    while let Reaped::Freed(_) = reaper.step(REAP_STEP_BYTES)? {}
    Ok(())
}

impl Retired {
    /// Whether nobody else holds the users. Whoever did has dropped them before, with all that was read through them.
    fn is_free(&mut self) -> bool {
        self.users.as_mut().is_none_or(|users| Arc::get_mut(users).is_some())
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ReapError {
    let path = path.to_path_buf();
    move |source| ReapError { operation, path, source, is_fatal: false }
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper").field("dir", &self.dir).field("waiting", &self.waiting()).finish()
    }
}

#[cfg(test)]
mod tests;
