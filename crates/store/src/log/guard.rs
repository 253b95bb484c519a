//! Locks whose poisoning is fatal: a thread that panicked while it changed shared state leaves nothing to go on with.

use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

const POISONED: &str = "a thread panicked while it held a lock of the store";

/// Takes the read lock.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(|_| panic!("{POISONED}"))
}

/// Takes the write lock.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(|_| panic!("{POISONED}"))
}

/// Takes the lock.
pub(crate) fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(|_| panic!("{POISONED}"))
}
