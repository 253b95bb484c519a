//! Counters about the members.

use api::Error;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of membership.
#[derive(Default)]
pub struct ClusterMetrics {
    promotions: AtomicU64,
    /// Refused promotions by the text of the reason; there are only a few reasons.
    failures: Mutex<BTreeMap<&'static str, u64>>,
}

impl ClusterMetrics {
    pub(super) fn promoted(&self) {
        self.promotions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn promotion_failed(&self, reason: Error) {
        *contain::lock(&self.failures).entry(reason.message()).or_default() += 1;
    }

    /// Learners that were made voters through this member.
    pub(crate) fn promotions(&self) -> u64 {
        self.promotions.load(Ordering::Relaxed)
    }

    /// Promotions that were refused, by reason.
    pub(crate) fn promotion_failures(&self) -> Vec<(&'static str, u64)> {
        contain::lock(&self.failures).iter().map(|(reason, count)| (*reason, *count)).collect()
    }
}
