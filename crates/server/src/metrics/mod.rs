//! `/metrics`: the counters of a member under etcd's names, in Prometheus' text form.
//!
//! - [`operations`], [`stages`], [`clients`], [`health`]: what is counted, where it is more than one number; [`slow`]: lines about what
//!   took too long.
//! - [`server`], [`store`], [`disk`], [`grpc`]: the page, part by part; [`foreign`]: what etcd has and this server lacks.

mod clients;
mod disk;
mod foreign;
mod grpc;
mod health;
mod operations;
mod server;
mod slow;
mod stages;
mod store;

pub use operations::Operations;
pub(crate) use operations::{ByOperation, Operation};
pub(crate) use slow::{Answered, SlowLines};
pub(crate) use stages::{Stages, Written};
pub(crate) use store::Reads;

use crate::cluster::metrics::ClusterMetrics;
use crate::node::Node;
use crate::services::Progress;
use clients::Clients;
use disk::Disk;
use health::Health;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use telemetry::metrics::Page;

/// What the threads of a member count.
#[derive(Default)]
pub struct Metrics {
    /// The disk, and work on what is on it.
    pub(crate) disk: Disk,
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
    /// Bytes of the requests that put something.
    pub(crate) put_bytes: AtomicU64,
    /// States of other members that are being installed.
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
    /// Changes of the members.
    pub cluster: ClusterMetrics,
    /// Pages of metrics that were asked for.
    pages: AtomicU64,
    pub(crate) progress: Progress,
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

/// The whole page.
pub(crate) fn render(node: &Node, stats: Option<&rpc::Stats>) -> String {
    let mut page = Page::with_capacity(128 * 1024);
    server::write(&mut page, node);
    store::write(&mut page, node);
    disk::write(&mut page, node);
    crate::overload::render(&mut page, node);
    node.budget.render(&mut page);
    node.metrics.stages.write(&mut page);
    if let Some(stats) = stats {
        grpc::write(&mut page, stats);
    }
    if let Some(peers) = node.peers.get() {
        peers.render(&mut page);
    }
    node.tls.render(stats, &mut page);
    node.auth.render(&mut page);
    if let Some(tracer) = &node.tracer {
        let [sent, dropped] = tracer.counts();
        page.counter("cairn_trace_spans_sent_total", "Spans that the collector has taken.", sent);
        page.counter("cairn_trace_spans_dropped_total", "Spans that it was too slow for.", dropped);
    }
    telemetry::metrics::process::write(&mut page, crate::system::open_files_limit());
    foreign::write(&mut page);
    // This one is under way, and counted when it is answered, as etcd does.
    page.gauge("promhttp_metric_handler_requests_in_flight", "Pages of metrics being made.", 1);
    page.family("promhttp_metric_handler_requests_total", "counter", "Pages of metrics, by status.");
    let pages = node.metrics.pages.fetch_add(1, Ordering::Relaxed);
    for (code, count) in [("200", pages), ("500", 0), ("503", 0)] {
        page.labelled("promhttp_metric_handler_requests_total", &[("code", code)], count);
    }
    page.into_text()
}
