//! The next segment, prepared before it is needed.

use crate::Error;
use crate::name::TEMPORARY;
use crate::segment::{self, Prepared};
use disk::Disk;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ready: Option<Prepared>,
    recycled: Option<PathBuf>,
    preparing: bool,
    names_given: u64,
}

impl Spare {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path, segment_bytes: u64) -> Spare {
        let state = Mutex::default();
        Spare { shared: Arc::new(Shared { disk, dir: dir.into(), segment_bytes, state }) }
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
        let recycled = state.recycled.take();
        let fresh = self.give_name(&mut state);
        drop(state);
        let Shared { disk, dir, segment_bytes, .. } = &*self.shared;
        let path = recycled.clone().unwrap_or_else(|| fresh.clone());
        let prepared = match recycled {
            Some(path) => segment::recycle(&**disk, dir, path, *segment_bytes),
            None => segment::allocate(&**disk, fresh, *segment_bytes),
        };
        if prepared.is_err() {
            // A leftover would only take space: the next attempt starts from nothing.
            let _ = disk.remove(&path);
        }
        let mut state = self.state();
        state.preparing = false;
        state.ready = Some(prepared?);
        Ok(())
    }

    /// The prepared segment, or one prepared now.
    pub(crate) fn take(&self) -> Result<Prepared, Error> {
        let mut state = self.state();
        if let Some(ready) = state.ready.take() {
            return Ok(ready);
        }
        let path = self.give_name(&mut state);
        drop(state);
        segment::allocate(&*self.shared.disk, path, self.shared.segment_bytes)
    }

    /// The name under which a freed segment waits to be reused; `None` when one waits already.
    pub(crate) fn name_for_recycled(&self) -> Option<PathBuf> {
        let mut state = self.state();
        if state.recycled.is_some() { None } else { Some(self.give_name(&mut state)) }
    }

    /// Takes a freed segment that has been renamed to `path`.
    pub(crate) fn recycle(&self, path: PathBuf) {
        self.state().recycled = Some(path);
    }

    /// Takes the freed segment that waits to be reused.
    pub(crate) fn take_recycled(&self) -> Option<PathBuf> {
        self.state().recycled.take()
    }

    fn give_name(&self, state: &mut State) -> PathBuf {
        let name = format!("spare-{}{TEMPORARY}", state.names_given);
        state.names_given = state.names_given.wrapping_add(1);
        self.shared.dir.join(name)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic half-way through a change.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
