//! What has arrived for one thread, which takes everything at once.

use crate::mistake::Mistake;
use crate::sync::{Condvar, Mutex, MutexGuard, lock};
use std::sync::PoisonError;
use std::time::Instant;

/// What has arrived, a `T`, and the thread that waits for it: its reader. Many arrivals cost one wake-up.
#[derive(Default)]
pub struct Inbox<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct State<T> {
    arrived: T,
    /// Something arrived since it was last taken.
    any: bool,
    /// The reader waits, and was not woken yet.
    asleep: bool,
    /// Threads that wait for room.
    crowded: usize,
}

impl<T> Inbox<T> {
    /// Adds to what has arrived, and wakes the reader.
    pub fn push<R>(&self, add: impl FnOnce(&mut T) -> R) -> R {
        let mut state = lock(&self.state);
        let result = add(&mut state.arrived);
        self.notify(state);
        result
    }

    /// The same once there is room.
    pub fn push_when(&self, has_room: impl Fn(&T) -> bool, add: impl FnOnce(&mut T)) {
        let mut state = lock(&self.state);
        while !has_room(&state.arrived) {
            state.crowded += 1;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.crowded -= 1;
        }
        add(&mut state.arrived);
        self.notify(state);
    }

    /// The same at once, and has those who wait for room look again.
    pub fn push_and_make_room(&self, add: impl FnOnce(&mut T)) {
        self.push(add);
        self.room.notify_all();
    }

    fn notify(&self, mut state: MutexGuard<'_, State<T>>) {
        state.any = true;
        let wake = std::mem::take(&mut state.asleep);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Looks at what has arrived, or takes a part of it that needs no room. The reader is not woken.
    pub fn with<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        look(&mut lock(&self.state).arrived)
    }

    /// Takes what has arrived, waiting until `deadline` if that is nothing. Only one thread at a time waits; others take with a deadline
    /// that is over.
    pub fn take<R>(&self, deadline: Instant, take: impl FnOnce(&mut T) -> R) -> R {
        let mut state = lock(&self.state);
        let mut has_waited = Mistake::TakerWakesReader.is_planted();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if state.any || left.is_zero() {
                if has_waited {
                    // Not if another thread waits: it is still to be woken.
                    state.asleep = false;
                }
                state.any = false;
                if state.crowded > 0 {
                    self.room.notify_all();
                }
                return take(&mut state.arrived);
            }
            if Mistake::ReaderSleepsAfterLook.is_planted() {
                drop(state);
                state = lock(&self.state);
            }
            state.asleep = true;
            has_waited = true;
            state = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
