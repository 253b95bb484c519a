//! The next segments, prepared before they are needed.

use crate::Error;
use crate::name::TEMPORARY;
use crate::segment::{self, Prepared};
use disk::{Disk, KnownFiles, ReapError, Reaper};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// Freed segments that wait to be reused, at most, however many a release frees.
pub(crate) const RECYCLED_MAX: usize = 8;

/// The pool takes at most this part of what is free on the disk, but one segment.
const FREE_SHARE: u64 = 8;

/// What the names of segments begin with that are being prepared, or were freed to be reused.
const SPARE: &str = "spare-";
/// And of those that are given back.
const RETIRED: &str = "retired-";

/// A handle with which a slow thread prepares the log's next segment, so that beginning it costs a rename. When none is
/// ready in time the log prepares one itself.
#[derive(Clone)]
pub struct Spare {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: u64,
    reaper: Arc<Reaper>,
    state: Mutex<State>,
    /// Told when `State::preparing` ends.
    prepared: Condvar,
}

#[derive(Default)]
struct State {
    ready: Option<Prepared>,
    /// Freed segments that keep their space until they are overwritten with zeros and used again.
    recycled: VecDeque<PathBuf>,
    /// How many of these are worth their space.
    wanted: usize,
    preparing: bool,
    names_given: u64,
    /// The slow thread, if it wants to be woken.
    preparer: Option<Thread>,
}

impl Spare {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path, segment_bytes: u64) -> Spare {
        let state = Mutex::new(State { wanted: 1, ..State::default() });
        let reaper = Arc::new(Reaper::new(disk.clone(), dir));
        let prepared = Condvar::new();
        let shared = Arc::new(Shared { disk, dir: dir.into(), segment_bytes, reaper, state, prepared });
        let weak = Arc::downgrade(&shared);
        shared.reaper.on_need(move || {
            if let Some(shared) = weak.upgrade() {
                Spare { shared }.give_up_freed();
            }
        });
        Spare { shared }
    }

    /// Takes up the temporary files that an earlier process left in the directory: its spares are overwritten and used again as far as the pool
    /// goes, all others are given back. None of them has been part of the log since, but for second names of its `segments`, which stay.
    pub(crate) fn adopt(&self, names: Vec<String>, segments: &KnownFiles) {
        let mut found = Vec::new();
        let bound = self.bound();
        let mut state = self.state();
        for name in names {
            let number = number_in(&name);
            let next = number.map_or(0, |number| number.saturating_add(1));
            state.names_given = state.names_given.max(next);
            let path = self.shared.dir.join(&name);
            if segments.has_uncounted(&*self.shared.disk, &path) {
                continue;
            }
            let is_spare = number.is_some() && name.starts_with(SPARE);
            if is_spare && state.recycled.len() < bound {
                state.recycled.push_back(path);
            } else {
                found.push(path);
            }
        }
        state.wanted = state.wanted.max(state.recycled.len());
        drop(state);
        found.into_iter().for_each(|path| self.shared.reaper.retire_found(path));
    }

    /// Has this thread unparked whenever the log begins a segment: it then prepares the next one, and looks at what is left of the disk.
    pub fn wake_preparer(&self, thread: Thread) {
        self.state().preparer = Some(thread);
    }

    /// True when [`Spare::prepare`] has something to do.
    pub fn needed(&self) -> bool {
        let state = self.state();
        state.ready.is_none() && !state.preparing
    }

    /// Prepares the next segment, unless it is ready or another thread prepares it. Slow: reusing an old segment writes and syncs all
    /// of it. After an error the log is as before, and prepares the segment itself when it needs it.
    pub fn prepare(&self) -> Result<(), Error> {
        let mut state = self.state();
        if state.ready.is_some() || state.preparing {
            return Ok(());
        }
        state.preparing = true;
        let recycled = state.recycled.pop_front();
        let fresh = self.give_name(&mut state, SPARE);
        drop(state);
        let path = recycled.clone().unwrap_or_else(|| fresh.clone());
        let prepared = match recycled {
            Some(path) => self.reuse(path),
            None => segment::allocate(&*self.shared.disk, fresh, self.shared.segment_bytes),
        };
        if prepared.is_err() {
            // A leftover would only take space: the next attempt starts from nothing.
            self.retire(path);
        }
        let mut state = self.state();
        state.preparing = false;
        self.shared.prepared.notify_all();
        state.ready = Some(prepared?);
        Ok(())
    }

    /// The prepared segment, or one prepared now. On a full disk nothing that this member does not need stays in its way.
    pub(crate) fn take(&self) -> Result<Prepared, Error> {
        let Shared { disk, segment_bytes, reaper, .. } = &*self.shared;
        loop {
            let mut state = self.state();
            if let Some(preparer) = &state.preparer {
                preparer.unpark();
            }
            if let Some(ready) = state.ready.take() {
                return Ok(ready);
            }
            let path = self.give_name(&mut state, SPARE);
            drop(state);
            let full = match segment::allocate(&**disk, path.clone(), *segment_bytes) {
                Err(error) if error.is_out_of_space() => error,
                allocated => return allocated,
            };
            // It may have got a part of its space.
            if disk.remove(&path).is_err() {
                self.retire(path);
            }
            if reaper.make_room() {
                continue;
            }
            // A freed segment has its space already, which is worth the wait.
            if let Some(recycled) = self.take_recycled() {
                return self.reuse(recycled.clone()).inspect_err(|_| self.retire(recycled));
            }
            if !self.wait_for_prepare() {
                return Err(full);
            }
        }
    }

    /// Waits until another thread has ended its [`Spare::prepare`], which may have taken the last freed segment. False if it has not brought one.
    fn wait_for_prepare(&self) -> bool {
        let mut state = self.state();
        while state.preparing {
            state = self.shared.prepared.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.ready.is_some()
    }

    /// Gives back at once what an earlier process left, if it is much of what is free: nobody waits yet, and the log may need the space to go on.
    pub(crate) fn clear_low_disk(&self) -> Result<(), Error> {
        let reaper = &self.shared.reaper;
        if !reaper.is_urgent() {
            return Ok(());
        }
        match reaper.finish() {
            Err(ReapError { operation, path, source, is_fatal: true }) => Err(Error::Io { operation, path, source }),
            // What cannot be given back is tried again later.
            _ => Ok(()),
        }
    }

    fn reuse(&self, path: PathBuf) -> Result<Prepared, Error> {
        let Shared { disk, dir, segment_bytes, reaper, .. } = &*self.shared;
        // Until then a power cut may bring the old name back, which must not have lost its bytes.
        reaper.sync_names().map_err(Error::io("sync", dir))?;
        segment::recycle(&**disk, path, *segment_bytes)
    }

    /// Gives back everything that waits to be reused: the disk is full, or would be taken for it.
    pub fn give_up_freed(&self) {
        self.expect(0, false);
    }

    /// How many freed segments may wait on a disk with so much free.
    fn bound(&self) -> usize {
        let Shared { disk, dir, segment_bytes, .. } = &*self.shared;
        // A disk that does not say how much is free is found full by a write, if it is.
        let free = disk.free_bytes(dir).unwrap_or(u64::MAX);
        let room = free.checked_div(segment_bytes.saturating_mul(FREE_SHARE)).unwrap_or(u64::MAX);
        usize::try_from(room).unwrap_or(usize::MAX).clamp(1, RECYCLED_MAX)
    }

    /// Makes the pool as large as the log is likely to need: what one release frees was filled since the release before. It shrinks slowly
    /// when less is freed, and at once if the disk is full.
    pub(crate) fn expect(&self, freed: usize, reuses: bool) {
        let bound = self.bound();
        let mut state = self.state();
        let shrunk = state.wanted.saturating_sub(1).max(1);
        state.wanted = if reuses { freed.max(shrunk).min(bound) } else { 0 };
        let kept = state.wanted.min(state.recycled.len());
        let surplus = state.recycled.split_off(kept);
        drop(state);
        surplus.into_iter().for_each(|path| self.retire(path));
    }

    /// The name under which a freed segment waits to be reused; `None` when enough wait already.
    pub(crate) fn name_for_recycled(&self) -> Option<PathBuf> {
        let mut state = self.state();
        if state.recycled.len() >= state.wanted { None } else { Some(self.give_name(&mut state, SPARE)) }
    }

    /// The name under which a freed segment waits to be given back.
    pub(crate) fn name_for_retired(&self) -> PathBuf {
        self.give_name(&mut self.state(), RETIRED)
    }

    /// Takes a freed segment that has been renamed to `path`.
    pub(crate) fn recycle(&self, path: PathBuf) {
        self.state().recycled.push_back(path);
    }

    /// Has a file given back that is not part of the log.
    pub(crate) fn retire(&self, path: PathBuf) {
        self.shared.reaper.retire(path, self.shared.segment_bytes, None);
    }

    /// What gives back the files.
    pub(crate) fn reaper(&self) -> Arc<Reaper> {
        self.shared.reaper.clone()
    }

    fn take_recycled(&self) -> Option<PathBuf> {
        self.state().recycled.pop_front()
    }

    fn give_name(&self, state: &mut State, what: &str) -> PathBuf {
        let name = format!("{what}{}{TEMPORARY}", state.names_given);
        state.names_given = state.names_given.wrapping_add(1);
        self.shared.dir.join(name)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic half-way through a change.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number in a name that this module has given.
fn number_in(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(SPARE).or_else(|| name.strip_prefix(RETIRED))?.strip_suffix(TEMPORARY)?;
    digits.parse().ok()
}
