//! Locks of the store.
//!
//! Read-write locks are `parking_lot`'s: a writer that waits gets the lock when the readers of that moment are done. With the
//! standard library's it is only told so, and a reader that walks in strides has taken the lock back before the writer runs.
//! Poisoning is fatal: a thread that panicked while it changed shared state leaves nothing to go on with.

pub(crate) use parking_lot::{RwLock, RwLockReadGuard};

use parking_lot::RwLockWriteGuard;
use std::sync::{Mutex, MutexGuard};

const POISONED: &str = "a thread panicked while it held a lock of the store";

/// Takes the read lock.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read()
}

/// Takes the write lock.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write()
}

/// Takes the lock.
pub(crate) fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(|_| panic!("{POISONED}"))
}
