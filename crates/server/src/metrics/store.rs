//! Keys, leases, watches, alarms.

use super::load;
use crate::node::Node;
use store::watch::Scope;
use telemetry::metrics::Page;

/// Appends the families.
pub(super) fn write(page: &mut Page, node: &Node) {
    let usage = node.store.usage();
    let operations = &node.metrics.operations;
    page.gauge(
        "etcd_mvcc_db_total_size_in_bytes",
        "Live bytes, history included: what the quota compares.",
        usage.live_bytes,
    );
    page.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", "Live bytes, history included.", usage.live_bytes);
    page.gauge(
        "cairn_store_file_bytes",
        "Bytes of the store's files, with what is not rewritten yet.",
        usage.file_bytes,
    );
    let (free, reserve) = node.store.disk_bytes();
    page.gauge("cairn_disk_free_bytes", "Free bytes on the disk of the data directory.", free);
    page.gauge("cairn_disk_reserve_bytes", "Free bytes below which writes are refused.", reserve);
    let own = node.headroom.own_bytes();
    page.gauge("cairn_disk_room_bytes", "Disk space that deletions and ends of leases may take.", own);
    page.gauge(
        "cairn_disk_room_least_bytes",
        "The same on the fullest of the disks that members tell of, which decides.",
        node.headroom.least_told_bytes().map_or(own, |told| told.min(own)),
    );
    page.gauge("etcd_debugging_mvcc_keys_total", "Keys.", usage.keys);
    page.gauge("etcd_debugging_mvcc_current_revision", "The current revision.", node.store.revision());
    page.gauge("etcd_debugging_mvcc_compact_revision", "The last compacted revision.", node.store.compact_revision());
    page.counter("etcd_mvcc_put_total", "Puts applied.", load(&operations.puts));
    page.counter("etcd_mvcc_delete_total", "Deletes applied.", load(&operations.deletes));
    page.counter("etcd_mvcc_range_total", "Ranges read.", load(&operations.ranges));
    page.counter("etcd_mvcc_txn_total", "Transactions applied.", load(&operations.txns));
    page.gauge(
        "etcd_debugging_mvcc_total_put_size_in_bytes",
        "Bytes of the keys and values put.",
        load(&operations.put_bytes),
    );
    page.gauge(
        "etcd_mvcc_db_open_read_transactions",
        "Snapshots that clients are being sent.",
        node.snapshots.count() as u64,
    );
    page.counter(
        "cairn_snapshots_ended_total",
        "Snapshots for clients that were ended because their client took nothing.",
        node.snapshots.ended(),
    );
    operations.lease_ttls.write(page, "etcd_debugging_lease_ttl_total", "Seconds that leases were granted for.");
    node.metrics.reads.write(page);
    page.gauge("cairn_leases", "Leases that are granted and have not ended.", node.store.leases().count());
    page.counter("etcd_debugging_lease_granted_total", "Leases granted.", load(&operations.leases_granted));
    page.counter("etcd_debugging_lease_revoked_total", "Leases revoked.", load(&operations.leases_revoked));
    let watch = node.store.hub().metrics();
    page.gauge("etcd_debugging_mvcc_watch_stream_total", "Open watch streams.", watch.streams());
    page.gauge("etcd_debugging_mvcc_watcher_total", "Watchers.", watch.watchers());
    page.gauge(
        "etcd_debugging_mvcc_slow_watcher_total",
        "Watchers that read from their cursor.",
        watch.slow_watchers(),
    );
    page.counter("etcd_debugging_mvcc_events_total", "Events sent to watchers.", watch.events());
    page.gauge("etcd_debugging_mvcc_pending_events_total", "Events queued for watchers.", watch.pending_events());
    let limits = "cairn_watch_limit_hits_total";
    page.family(limits, "counter", "Watches refused because there were as many as may be.");
    for (scope, name) in [(Scope::Connection, "connection"), (Scope::Member, "member")] {
        page.labelled(limits, &[("limit", name)], watch.refused(scope));
    }
    let alarms = node.store.alarms();
    page.family("etcd_debugging_server_alarms", "gauge", "Alarms that are on.");
    for alarm in alarms {
        let name = api::etcdserverpb::AlarmType::try_from(alarm.alarm).map_or("NONE", |kind| kind.as_str_name());
        let id = format!("{:x}", alarm.member_id);
        page.labelled("etcd_debugging_server_alarms", &[("server_id", &id), ("alarm_type", name)], 1);
    }
}
