//! What is counted of each pool.

use crate::pool::Pool;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// One pool's figures.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) held: AtomicU64,
    /// Somebody waits because there is no room: who claims looks here first, without the lock. Those who wait for what is their own
    /// to be taken keep nobody else waiting.
    pub(crate) is_stalled: AtomicBool,
    /// How many wait, for whatever reason.
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
    /// Requests that were refused for want of room, since the start.
    pub refusals: u64,
}
