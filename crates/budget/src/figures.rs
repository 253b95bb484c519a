//! The counters of each pool.

use crate::pool::Pool;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// One pool's figures.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) held: AtomicU64,
    /// A claim waits because there is no room. Claims look here first, without the lock. Not set by a client that waits only for its own
    /// answers to be taken: it delays no other.
    pub(crate) is_stalled: AtomicBool,
    /// How many claims wait, for any reason.
    pub(crate) waiting: AtomicUsize,
    pub(crate) waits: AtomicU64,
    pub(crate) refusals: AtomicU64,
}

/// What a pool is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// Which.
    pub pool: Pool,
    /// Bytes that clients have the member hold.
    pub held_bytes: u64,
    /// Bytes that they may have it hold.
    pub limit_bytes: u64,
    /// Answers that waited for room, since the start.
    pub waits: u64,
    /// Requests that were refused for lack of room, since the start.
    pub refusals: u64,
}
