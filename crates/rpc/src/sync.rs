//! Locks and atomics of the mailboxes: the standard library's, and in the tests of `make schedules` those that a schedule decides about.

#[cfg(all(test, feature = "schedules"))]
pub(crate) use schedules::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(all(test, feature = "schedules")))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
