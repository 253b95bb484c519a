//! Runs a test of threads under thousands of schedules, each decided by a seed.
//!
//! The code under test takes locks, condition variables and atomics from the module `sync` of its crate. That is the standard library's,
//! and [`sync`] in tests with the feature `schedules`: there `shuttle` runs the threads as coroutines and decides at each of these
//! operations which one goes on. It takes all atomics for sequentially consistent, and a wait with a time limit never reaches it.
//!
//! A test passes if no thread panics and none waits for ever. [`finds`] is the test of a test: the code makes a mistake on purpose
//! ([`is_planted`]), and some schedule must fail.

#[cfg(feature = "shuttle")]
mod explore;

#[cfg(feature = "shuttle")]
pub use explore::{explore, finds, is_planted, roll};
#[cfg(feature = "shuttle")]
pub use shuttle::{sync, thread};
