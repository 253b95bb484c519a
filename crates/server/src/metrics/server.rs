//! The member and its place in the cluster.

use super::load;
use crate::node::Node;
use api::version;
use std::sync::atomic::Ordering;
use telemetry::metrics::Page;

/// Appends the families.
pub(super) fn write(page: &mut Page, node: &Node) {
    let status = &node.status;
    let metrics = &node.metrics;
    page.gauge("etcd_server_has_leader", "Whether a leader is known: 1, or 0.", u8::from(status.leader() != 0));
    page.gauge("etcd_server_is_leader", "Whether this member leads: 1, or 0.", u8::from(status.is_leader()));
    page.counter("etcd_server_leader_changes_seen_total", "Times a leader appeared.", status.leader_changes());
    page.gauge("etcd_server_proposals_committed_total", "Index of the last committed entry.", status.committed());
    page.gauge("etcd_server_proposals_applied_total", "Index of the last applied entry.", status.applied());
    page.gauge("etcd_server_proposals_pending", "Proposals that wait for consensus.", load(&metrics.proposals_pending));
    page.counter(
        "etcd_server_proposals_failed_total",
        "Proposals refused or timed out.",
        load(&metrics.proposals_failed),
    );
    page.counter(
        "etcd_server_heartbeat_send_failures_total",
        "Times a leader's heartbeat was late.",
        load(&metrics.heartbeat_failures),
    );
    page.counter(
        "etcd_server_slow_read_indexes_total",
        "Read indexes that nobody answered in time.",
        load(&metrics.slow_read_indexes),
    );
    page.counter(
        "etcd_server_read_indexes_failed_total",
        "Read indexes that a change of leader made void.",
        load(&metrics.read_indexes_failed),
    );
    page.counter("etcd_server_slow_apply_total", "Applies slower than the warning bound.", load(&metrics.slow_applies));
    metrics.health.write(page);
    let auth_revision = node.store.auth().revision();
    page.gauge("etcd_debugging_auth_revision", "The revision of users, roles and permissions.", auth_revision);
    page.gauge("etcd_server_is_learner", "Whether this member is a learner.", u8::from(status.is_learner()));
    page.family("etcd_server_version", "gauge", "The etcd release whose behaviour this server has.");
    page.labelled("etcd_server_version", &[("server_version", version::ETCD)], 1);
    page.family("etcd_server_id", "gauge", "This member's id.");
    page.labelled("etcd_server_id", &[("server_id", &format!("{:x}", node.member_id))], 1);
    page.family("etcd_cluster_version", "gauge", "The cluster's version.");
    let cluster = node.store.cluster_version();
    let minor = cluster.rsplit_once('.').map_or("", |(minor, _)| minor);
    page.labelled("etcd_cluster_version", &[("cluster_version", minor)], 1);
    members(page, node);
    page.counter(
        "cairn_log_lines_dropped_total",
        "Log lines dropped, as the log was not read fast enough.",
        telemetry::logging::dropped_total(),
    );
    page.counter(
        "cairn_panics_total",
        "Panics over what a client or a peer sent, or over an answer, each of which ended a connection.",
        contain::contained_total(),
    );
    page.family(
        "cairn_raft_messages_refused_total",
        "counter",
        "Raft messages of peers that were refused, by reason: malformed, or a claim that this member's log lost entries.",
    );
    for (reason, count) in [("malformed", &metrics.messages_refused), ("lost-log-claim", &metrics.claims_refused)] {
        page.labelled("cairn_raft_messages_refused_total", &[("reason", reason)], load(count));
    }
    page.family(
        "cairn_images_refused_total",
        "counter",
        "Databases of etcd members that were not installed, by reason: the hash differs from the sender's, or could not be compared.",
    );
    for (reason, count) in [("differs", &metrics.images_that_differ), ("not-compared", &metrics.images_not_compared)] {
        page.labelled("cairn_images_refused_total", &[("reason", reason)], load(count));
    }
    page.family(
        "cairn_image_bytes",
        "gauge",
        "The database of an etcd member that is being received: bytes that have come, and bytes of the store made of it that are taken; 0 when there is none.",
    );
    for (step, count) in [("received", &metrics.image_received_bytes), ("taken", &metrics.image_taken_bytes)] {
        page.labelled("cairn_image_bytes", &[("step", step)], load(count));
    }
    page.family("cairn_build_info", "gauge", "Cairn's own version.");
    page.labelled("cairn_build_info", &[("version", version::CAIRN)], 1);
    metrics.clients.write(page);
    page.counter(
        "etcd_debugging_server_lease_expired_total",
        "Leases whose time was over.",
        load(&metrics.leases_expired),
    );
    page.counter("etcd_debugging_lease_renewed_total", "Keep-alives answered.", load(&metrics.leases_renewed));
    let quota = node.store.quota_bytes().map_or(-1, |quota| i64::try_from(quota).unwrap_or(i64::MAX));
    page.gauge("etcd_server_quota_backend_bytes", "Live bytes at which writes are refused.", quota);
    page.gauge(
        "etcd_server_snapshot_apply_in_progress_total",
        "Snapshots of other members being installed.",
        metrics.installing.load(Ordering::Relaxed),
    );
    metrics.requests.write(
        page,
        "etcd_server_request_duration_seconds",
        "From the arrival of a request to its answer, by kind.",
        "type",
        &[],
    );
    metrics.applies.write(
        page,
        "etcd_server_apply_duration_seconds",
        "Applying entries of the log, by kind.",
        "op",
        &[("version", "v3")],
    );
    page.family("etcd_server_feature_enabled", "gauge", "Feature gates: 1 is on.");
    for (name, stage, on) in node.config.gates.list() {
        page.labelled("etcd_server_feature_enabled", &[("name", name), ("stage", stage)], u8::from(on));
    }
}

fn members(page: &mut Page, node: &Node) {
    let cluster = &node.metrics.cluster;
    page.family("etcd_network_known_peers", "gauge", "The members that this one knows of, itself included.");
    let own = format!("{:x}", node.member_id);
    for id in node.store.members().members.into_keys() {
        page.labelled("etcd_network_known_peers", &[("Local", &own), ("Remote", &format!("{id:x}"))], 1);
    }
    page.counter("etcd_server_learner_promote_successes", "Learners made voters.", cluster.promotions());
    page.family("etcd_server_learner_promote_failures", "counter", "Promotions that were refused.");
    for (reason, count) in cluster.promotion_failures() {
        page.labelled("etcd_server_learner_promote_failures", &[("Reason", reason)], count);
    }
}
