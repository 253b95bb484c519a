//! Counters of the watch machinery.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::Scope;

/// Counters and gauges; each is read on its own, so they need not agree to the last unit. The events that wait also decide
/// when queues are given up.
#[derive(Debug, Default)]
pub struct Metrics {
    streams: AtomicI64,
    watchers: AtomicI64,
    slow_watchers: AtomicI64,
    pending_events: AtomicI64,
    events: AtomicU64,
    refused_by_connection: AtomicU64,
    refused_by_member: AtomicU64,
}

impl Metrics {
    /// Open streams.
    pub fn streams(&self) -> i64 {
        self.streams.load(Ordering::Relaxed)
    }

    /// Watchers of all streams.
    pub fn watchers(&self) -> i64 {
        self.watchers.load(Ordering::Relaxed)
    }

    /// Watchers that read the log because they started in the past or their stream's queue was given up.
    pub fn slow_watchers(&self) -> i64 {
        self.slow_watchers.load(Ordering::Relaxed)
    }

    /// Events queued for streams and not yet taken by them. An event that several watchers of a stream asked for in the same
    /// way counts once.
    pub fn pending_events(&self) -> i64 {
        self.pending_events.load(Ordering::Relaxed)
    }

    /// Events handed out in responses, one per watcher and event.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Watches refused because there were as many as may be.
    pub fn refused(&self, scope: Scope) -> u64 {
        self.refusals(scope).load(Ordering::Relaxed)
    }

    fn refusals(&self, scope: Scope) -> &AtomicU64 {
        match scope {
            Scope::Connection => &self.refused_by_connection,
            Scope::Member => &self.refused_by_member,
        }
    }

    pub(super) fn add_refused(&self, scope: Scope) {
        self.refusals(scope).fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_streams(&self, change: i64) {
        self.streams.fetch_add(change, Ordering::Relaxed);
    }

    pub(super) fn add_watchers(&self, change: i64) {
        self.watchers.fetch_add(change, Ordering::Relaxed);
    }

    pub(super) fn add_slow(&self, change: i64) {
        self.slow_watchers.fetch_add(change, Ordering::Relaxed);
    }

    pub(super) fn add_pending(&self, change: i64) {
        self.pending_events.fetch_add(change, Ordering::Relaxed);
    }

    pub(super) fn add_events(&self, count: u64) {
        self.events.fetch_add(count, Ordering::Relaxed);
    }
}
