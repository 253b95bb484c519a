//! How the threads of a member hand work to each other. What the work is, `server` says; here are the locks, the order in which they are
//! taken, and who is woken.
//!
//! - [`Inbox`]: what has arrived for consensus, and who waits for room in it.
//! - [`Consensus`]: whose turn it is: the consensus thread's, a request thread's, or the timer's while the disk of the log is waited for.
//! - [`SharedApplyQueue`]: committed entries on their way to the apply thread.
//! - [`Applied`]: how far the store is, and a read that waits for it.
//! - [`SharedLessor`]: keep-alives that are answered at once, while leaders may change.
//!
//! All of it runs under thousands of schedules in `make schedules`, so locks and atomics come from `sync`.

mod applied;
mod apply_queue;
mod consensus;
mod inbox;
mod lessor;
mod mistake;
#[cfg(all(test, feature = "schedules"))]
#[allow(clippy::unwrap_used)]
mod schedule_tests;
mod sync;

pub use applied::Applied;
pub use apply_queue::SharedApplyQueue;
pub use consensus::{Consensus, Core, Shell, StandIn};
pub use inbox::Inbox;
pub use lessor::{RenewedAtOnce, SharedLessor};
