//! The scope that a thread is in.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::panicking;

/// What a panic ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The scope that it happened in, and what that belongs to.
    Scope,
    /// The process.
    Process,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Outside,
    Inside,
    /// A panic unwinds to the end of the scope. What panics on the way leaves something half dropped.
    Unwinding,
}

thread_local! {
    static PLACE: Cell<Place> = const { Cell::new(Place::Outside) };
    /// A panic from outside unwinds, since there is no hook: no scope may stop it.
    static ESCAPED: Cell<bool> = const { Cell::new(false) };
}

static CONTAINED: AtomicU64 = AtomicU64::new(0);

/// Panics that scopes have stopped since the process began.
pub fn contained_total() -> u64 {
    CONTAINED.load(Ordering::Relaxed)
}

/// The code of a scope has panicked. The caller must drop what it was working on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("internal error: a panic, which is in the log")
    }
}

impl std::error::Error for Panicked {}

/// Puts the thread back where it was before.
struct Back(Place);

impl Drop for Back {
    fn drop(&mut self) {
        PLACE.set(self.0);
    }
}

/// Runs `work`, and stops a panic in it. `work` may change only what the caller drops when it fails, and counters; it may take locks only
/// of what is replaced whole, and must not panic while it holds one.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    let back = Back(PLACE.replace(Place::Inside));
    // What `work` leaves behind is dropped by the caller: that is the contract.
    let outcome = catch_unwind(AssertUnwindSafe(work));
    drop(back);
    match outcome {
        Ok(value) => Ok(value),
        Err(panic) if ESCAPED.get() => {
            if PLACE.get() != Place::Inside {
                ESCAPED.set(false);
            }
            resume_unwind(panic)
        }
        Err(panic) => {
            CONTAINED.fetch_add(1, Ordering::Relaxed);
            outside(|| drop(panic));
            Err(Panicked)
        }
    }
}

/// Runs code that is not the scope's: a panic in it ends the process.
pub fn outside<T>(work: impl FnOnce() -> T) -> T {
    let _escape = Escape { back: Back(PLACE.replace(Place::Outside)), was_panicking: panicking() };
    work()
}

/// Notes a panic that leaves code outside for the scope that called it.
struct Escape {
    back: Back,
    was_panicking: bool,
}

impl Drop for Escape {
    fn drop(&mut self) {
        if self.back.0 != Place::Outside && !self.was_panicking && panicking() {
            ESCAPED.set(true);
        }
    }
}

/// A panic begins: what it is to end, by where it happened.
pub(crate) fn unwind() -> Fate {
    match PLACE.get() {
        Place::Inside => {
            PLACE.set(Place::Unwinding);
            Fate::Scope
        }
        Place::Outside | Place::Unwinding => Fate::Process,
    }
}
