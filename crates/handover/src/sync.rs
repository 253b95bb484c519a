//! Locks and atomics: the standard library's, and in the tests of `make schedules` those that a schedule decides about.

#[cfg(all(test, feature = "schedules"))]
pub(crate) use schedules::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(all(test, feature = "schedules")))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};

use std::sync::{PoisonError, TryLockError};

/// A lock whose holder never panics half-way: a panic that is not contained aborts the process.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same if nobody holds it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
