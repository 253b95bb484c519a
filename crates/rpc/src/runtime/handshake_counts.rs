//! Counters of TLS handshakes, by outcome.

use std::sync::atomic::AtomicU64;

/// How TLS handshakes ended.
#[derive(Debug, Default)]
pub struct HandshakeCounts {
    /// Those that were done.
    pub done: AtomicU64,
    /// Those that failed, or whose client was not let in.
    pub failed: AtomicU64,
    /// Those that took too long.
    pub timed_out: AtomicU64,
    /// Those that were given up because too many were under way.
    pub given_up: AtomicU64,
}
