//! Observers that follow this process, and what it follows itself.

use super::load;
use crate::node::Node;
use telemetry::metrics::Page;

/// Appends the families. Those about what is followed are an observer's only.
pub(super) fn write(page: &mut Page, node: &Node) {
    let followers = node.followers.list();
    page.gauge("cairn_observers", "Observers that follow this process.", followers.len());
    let name = "cairn_observer_sent_index";
    page.family(
        name,
        "gauge",
        "The last entry that an observer was sent, by its id, its name and where clients reach it.",
    );
    for seen in followers {
        let (id, urls) = (format!("{:x}", seen.id), seen.client_urls.join(","));
        page.labelled(name, &[("id", &id), ("name", &seen.name), ("client_urls", &urls)], seen.sent);
    }
    let Some(link) = &node.link else { return };
    let source = link.source();
    page.gauge(
        "cairn_observer_has_source",
        "Whether this observer follows a member or an observer.",
        u8::from(source.is_some()),
    );
    let lag = link.theirs().saturating_sub(node.status.applied());
    page.gauge(
        "cairn_observer_lag_entries",
        "Entries that what is followed has applied and this observer has not.",
        lag,
    );
    page.counter(
        "cairn_observer_sources_lost_total",
        "How often what this observer followed was lost.",
        load(&link.lost),
    );
    page.counter(
        "cairn_observer_histories_refused_total",
        "How often what this observer was to follow had another history.",
        load(&link.differing),
    );
    let name = "cairn_observer_source";
    page.family(
        name,
        "gauge",
        "What this observer follows: its id, its URL, and through how many processes entries come.",
    );
    if let Some(source) = source {
        page.labelled(name, &[("id", &format!("{:x}", source.id())), ("url", &source.url)], source.way.len());
    }
}
