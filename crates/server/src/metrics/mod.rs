//! `/metrics`: the counters of a member under etcd's names, in Prometheus' text form.
//!
//! - [`operations`], [`stages`], [`clients`], [`health`]: what is counted, where it is more than one number; [`slow`]: lines about what
//!   took too long.
//! - [`render`]: the page, of [`server`], [`store`], [`disk`], [`memory`], [`budget`] and [`grpc`]; [`foreign`]: what etcd has and this server lacks.

mod budget;
mod clients;
mod disk;
mod foreign;
mod grpc;
mod health;
mod memory;
mod observers;
mod operations;
mod reads;
mod render;
mod server;
mod slow;
mod stages;
mod store;

pub use operations::Operations;
pub(crate) use operations::{ByOperation, Operation};
pub(crate) use reads::Reads;
pub(crate) use render::render;
pub(crate) use slow::{Answered, SlowLines};
pub(crate) use stages::{Stages, Written};

use crate::cluster::metrics::ClusterMetrics;
use clients::Clients;
use disk::Disk;
use health::Health;
use memory::Memory;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// What the threads of a member count.
#[derive(Default)]
pub struct Metrics {
    /// The disk, and work on what is on it.
    pub(crate) disk: Disk,
    /// What memory the process takes.
    pub(crate) memory: Memory,
    /// Operations on the store.
    pub operations: Operations,
    /// What reading took.
    pub(crate) reads: Reads,
    /// From the arrival of a request to its answer.
    pub(crate) requests: ByOperation<14, 1_000_000>,
    /// Applying entries.
    pub(crate) applies: ByOperation<20, 100_000>,
    /// Where requests spend their time.
    pub(crate) stages: Stages,
    /// Lines about slow requests.
    pub(crate) slow: SlowLines,
    /// Applies that took longer than `--warning-apply-duration`.
    pub slow_applies: AtomicU64,
    /// Snapshots of other members that are being installed.
    pub(crate) installing: AtomicI64,
    /// Proposals on their way.
    pub proposals_pending: AtomicU64,
    /// Proposals refused or timed out.
    pub proposals_failed: AtomicU64,
    /// Times a leader's heartbeat was late.
    pub heartbeat_failures: AtomicU64,
    /// Raft messages that no honest peer sends.
    pub(crate) messages_refused: AtomicU64,
    /// Raft messages that claim, without proving it, that this member's log lost entries.
    pub(crate) claims_refused: AtomicU64,
    /// Databases of etcd members whose hash was another than the sender's.
    pub(crate) images_that_differ: AtomicU64,
    /// Databases of etcd members for which the sender's hash could not be had.
    pub(crate) images_not_compared: AtomicU64,
    /// Bytes that have come of the database of an etcd member, and bytes that are in the store's files of what was made of it.
    pub(crate) image_received_bytes: AtomicU64,
    pub(crate) image_taken_bytes: AtomicU64,
    /// Read indexes that nobody answered in time.
    pub slow_read_indexes: AtomicU64,
    /// Read indexes that a change of leader made void.
    pub read_indexes_failed: AtomicU64,
    /// Leases whose time was over.
    pub leases_expired: AtomicU64,
    /// Keep-alives that found their lease.
    pub leases_renewed: AtomicU64,
    /// Health checks.
    pub(crate) health: Health,
    /// Configuration changes.
    pub cluster: ClusterMetrics,
    /// Pages of metrics that were asked for.
    pages: AtomicU64,
    clients: Clients,
}

impl Metrics {
    pub(crate) fn count_client(&self, metadata: &rpc::Metadata, kind: &'static str) {
        self.clients.count(metadata, kind);
    }

    pub(crate) fn count_renewal(&self, found: bool) {
        if found {
            self.leases_renewed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
