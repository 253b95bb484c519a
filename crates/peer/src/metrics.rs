//! etcd's metrics about peers.

use contain::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use telemetry::metrics::{Histogram, Page};

/// Round trips, from 0.1 ms on.
pub(crate) type RoundTrips = Histogram<16, 100_000>;
/// Transfers of snapshots, from 0.1 s on.
pub(crate) type Transfers = Histogram<10, 100_000_000>;

/// Counters of snapshots in one direction.
#[derive(Default)]
pub(crate) struct Snapshots {
    pub(crate) succeeded: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) under_way: AtomicI64,
    pub(crate) took: Transfers,
}

/// The counters of one peer.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) sent_failures: AtomicU64,
    pub(crate) received_failures: AtomicU64,
    pub(crate) disconnected: AtomicU64,
    pub(crate) round_trip: RoundTrips,
    pub(crate) snapshots_sent: Snapshots,
    pub(crate) snapshots_received: Snapshots,
}

/// The counters of all present and former members: a counter never goes backwards.
#[derive(Default)]
pub(crate) struct Ledger {
    peers: Mutex<BTreeMap<u64, Arc<Counters>>>,
    /// Snapshots received from other members, from all of them together.
    pub(crate) saved: Transfers,
    /// Requests that could not be read, whose sender is unknown.
    unknown: AtomicU64,
}

impl Ledger {
    /// The counters of a member.
    pub(crate) fn of(&self, id: u64) -> Arc<Counters> {
        lock(&self.peers).entry(id).or_default().clone()
    }

    /// The counters of a member or former member; for others counters that are not shown.
    pub(crate) fn known(&self, id: u64) -> Arc<Counters> {
        lock(&self.peers).get(&id).cloned().unwrap_or_default()
    }

    /// Shows the counters of a sender that has become a member.
    pub(crate) fn adopt(&self, id: u64, counters: &Arc<Counters>) {
        lock(&self.peers).entry(id).or_insert_with(|| counters.clone());
    }

    pub(crate) fn count_unknown(&self) {
        self.unknown.fetch_add(1, Ordering::Relaxed);
    }
}

/// Appends the metrics to a page of member `local`; `is_active` tells whether a peer is reachable.
pub(crate) fn render(ledger: &Ledger, local: u64, is_active: impl Fn(u64) -> bool, page: &mut Page) {
    let local = format!("{local:x}");
    let peers: Vec<(String, Arc<Counters>, bool)> = lock(&ledger.peers)
        .iter()
        .map(|(id, counters)| (format!("{id:x}"), counters.clone(), is_active(*id)))
        .collect();
    ledger.saved.write(page, "etcd_snap_db_save_total_duration_seconds", "Receiving snapshots of other members.");
    page.family("etcd_network_active_peers", "gauge", "Whether a peer can be reached: 1, or 0.");
    for (id, _, active) in &peers {
        page.labelled("etcd_network_active_peers", &[("Local", &local), ("Remote", id)], u8::from(*active));
    }
    page.family("etcd_network_disconnected_peers_total", "counter", "Times a peer could not be reached any more.");
    for (id, counters, _) in &peers {
        let labels = [("Local", local.as_str()), ("Remote", id)];
        page.labelled("etcd_network_disconnected_peers_total", &labels, load(&counters.disconnected));
    }
    let mut counter = |name: &str, label: &str, help: &str, value: fn(&Counters) -> u64| {
        page.family(name, "counter", help);
        for (id, counters, _) in &peers {
            page.labelled(name, &[(label, id)], value(counters));
        }
    };
    counter("etcd_network_peer_sent_bytes_total", "To", "Bytes sent to peers.", |peer| load(&peer.sent_bytes));
    counter("etcd_network_peer_received_bytes_total", "From", "Bytes received from peers.", |peer| {
        load(&peer.received_bytes)
    });
    counter("etcd_network_peer_sent_failures_total", "To", "Messages to peers that were lost.", |peer| {
        load(&peer.sent_failures)
    });
    counter("etcd_network_snapshot_send_success", "To", "Snapshots sent.", |peer| load(&peer.snapshots_sent.succeeded));
    counter("etcd_network_snapshot_send_failures", "To", "Snapshots not sent.", |peer| {
        load(&peer.snapshots_sent.failed)
    });
    counter("etcd_network_snapshot_receive_success", "From", "Snapshots received.", |peer| {
        load(&peer.snapshots_received.succeeded)
    });
    counter("etcd_network_snapshot_receive_failures", "From", "Snapshots not received.", |peer| {
        load(&peer.snapshots_received.failed)
    });
    counter(
        "etcd_network_peer_received_failures_total",
        "From",
        "Messages of peers that could not be taken.",
        |peer| load(&peer.received_failures),
    );
    // Continues the family above.
    let unknown = load(&ledger.unknown);
    page.labelled("etcd_network_peer_received_failures_total", &[("From", "unknown")], unknown);
    let mut gauge = |name: &str, label: &str, help: &str, value: fn(&Counters) -> &AtomicI64| {
        page.family(name, "gauge", help);
        for (id, counters, _) in &peers {
            page.labelled(name, &[(label, id)], value(counters).load(Ordering::Relaxed));
        }
    };
    gauge("etcd_network_snapshot_send_inflights_total", "To", "Snapshots being sent.", |peer| {
        &peer.snapshots_sent.under_way
    });
    gauge("etcd_network_snapshot_receive_inflights_total", "From", "Snapshots being received.", |peer| {
        &peer.snapshots_received.under_way
    });
    histogram(page, &peers, "etcd_network_snapshot_send_total_duration_seconds", "To", "Sending snapshots.", |peer| {
        &peer.snapshots_sent.took
    });
    histogram(
        page,
        &peers,
        "etcd_network_snapshot_receive_total_duration_seconds",
        "From",
        "Receiving snapshots.",
        |peer| &peer.snapshots_received.took,
    );
    histogram(page, &peers, "etcd_network_peer_round_trip_time_seconds", "To", "Round trips to peers.", |peer| {
        &peer.round_trip
    });
}

fn histogram<const BUCKETS: usize, const FIRST_US: u64>(
    page: &mut Page,
    peers: &[(String, Arc<Counters>, bool)],
    name: &str,
    label: &str,
    help: &str,
    value: fn(&Counters) -> &Histogram<BUCKETS, FIRST_US>,
) {
    page.family(name, "histogram", help);
    for (id, counters, _) in peers {
        value(counters).write_labelled(page, name, &[(label, id)]);
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
