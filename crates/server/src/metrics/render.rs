//! The page, from all parts of a member.

use super::{budget, disk, foreign, grpc, memory, observers, server, store};
use crate::node::Node;
use crate::overload::Class;
use std::sync::atomic::Ordering;
use telemetry::metrics::Page;

/// The whole page.
pub(crate) fn render(node: &Node, stats: Option<&rpc::Stats>) -> String {
    let mut page = Page::with_capacity(128 * 1024);
    server::write(&mut page, node);
    store::write(&mut page, node);
    disk::write(&mut page, &node.metrics.disk, node.store.dropped_versions());
    memory::write(&mut page, &node.metrics.memory);
    observers::write(&mut page, node);
    queues(&mut page, node);
    budget::write(&mut page, &node.budget);
    node.metrics.stages.write(&mut page);
    if let Some(stats) = stats {
        grpc::write(&mut page, stats);
    }
    if let Some(peers) = node.peers.get() {
        peers.render(&mut page);
    }
    node.tls.render(stats, &mut page);
    node.auth.render(&mut page);
    if let Some(audit) = &node.audit {
        audit.render(&mut page);
    }
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

/// The queues among the metrics.
fn queues(page: &mut Page, node: &Node) {
    let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(Class) -> u64| {
        page.family(name, kind, help);
        for class in Class::ALL {
            page.labelled(name, &[("class", class.name())], value(*class));
        }
    };
    let depth = |class| node.depth(class) as u64;
    family("cairn_queue_depth", "gauge", "Requests that wait, by class.", &depth);
    let most = |class| node.config.queues.of(class) as u64;
    family("cairn_queue_limit", "gauge", "Requests that may wait, by class.", &most);
    let refused = |class| node.refused(class);
    let help = "Requests refused because too many waited or applying was too far behind, by class.";
    family("cairn_queue_refused_total", "counter", help, &refused);
    let waited = node.client_shares.as_ref().map_or(0, |shares| shares.waited());
    page.counter("cairn_client_share_waits_total", "Calls that waited because their client had its share.", waited);
    let help = "Sorted lists, counts, hashes and snapshots given up because their client had gone or reset the stream.";
    page.counter("cairn_slow_jobs_canceled_total", help, node.slow.canceled());
}
