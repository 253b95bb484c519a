//! Locks of the store.
//!
//! Read-write locks are `parking_lot`'s: a waiting writer is handed the lock when the present readers are done. The standard library
//! only wakes it, and a reader that walks in strides takes the lock again before the writer runs. Poisoning is fatal: after a
//! panic in the middle of a change the shared state cannot be used.

pub(crate) use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

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
