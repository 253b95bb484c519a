//! Limits of requests and answers.

use budget::Budget;
use std::sync::Arc;
use std::time::Duration;

/// What requests are held to.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// A message, in bytes.
    pub(crate) message_bytes_max: usize,
    /// What all clients together may have held.
    pub(crate) budget: Arc<Budget>,
    /// How long the next kilobyte of a value that has begun may take.
    pub(crate) body_timeout: Duration,
}

impl Limits {
    /// Length of one JSON value: base64 makes bytes a third longer.
    pub(crate) fn json_bytes_max(&self) -> usize {
        self.message_bytes_max.saturating_mul(2)
    }
}

#[cfg(test)]
impl Limits {
    /// Of messages of 1 MiB, and a budget of 64 MiB.
    pub(crate) fn for_tests(body_timeout: Duration) -> Limits {
        Limits { message_bytes_max: 1 << 20, budget: Budget::new(64 << 20, Duration::MAX), body_timeout }
    }
}
