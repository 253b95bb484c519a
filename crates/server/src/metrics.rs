//! `/metrics`: the counters of a member under etcd's names, in Prometheus' text form.

use crate::cluster::metrics::ClusterMetrics;
use crate::node::Node;
use crate::services::{METHODS, Progress};
use api::etcdserverpb::{TxnResponse, response_op::Response};
use api::{Code, version};
use rpc::frame::Reason;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A histogram of durations, in buckets that double. By default fourteen from 1 ms on: what etcd uses for disk operations.
pub struct Histogram<const BUCKETS: usize = 14, const FIRST_US: u64 = 1_000> {
    buckets: [AtomicU64; BUCKETS],
    /// Longer than the last bucket.
    longer: AtomicU64,
    sum_ns: AtomicU64,
}

impl<const BUCKETS: usize, const FIRST_US: u64> Default for Histogram<BUCKETS, FIRST_US> {
    fn default() -> Self {
        Histogram {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            longer: AtomicU64::new(0),
            sum_ns: AtomicU64::new(0),
        }
    }
}

impl<const BUCKETS: usize, const FIRST_US: u64> Histogram<BUCKETS, FIRST_US> {
    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        let bucket = (0..BUCKETS).find(|bucket| took <= Self::bound(*bucket));
        bucket.map_or(&self.longer, |bucket| &self.buckets[bucket]).fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    fn bound(bucket: usize) -> Duration {
        Duration::from_micros(FIRST_US << bucket)
    }

    fn write(&self, page: &mut Page, name: &str, help: &str) {
        page.family(name, "histogram", help);
        self.write_labelled(page, name, &[]);
    }

    /// Appends its lines, without the family's.
    pub(crate) fn write_labelled(&self, page: &mut Page, name: &str, labels: &[(&str, &str)]) {
        let bucket_name = format!("{name}_bucket");
        let mut total = 0;
        let mut line = |page: &mut Page, bound: &str, count: &AtomicU64| {
            total += count.load(Ordering::Relaxed);
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound)]).collect();
            page.labelled(&bucket_name, &labels, total);
            total
        };
        for (bucket, count) in self.buckets.iter().enumerate() {
            line(page, &Self::bound(bucket).as_secs_f64().to_string(), count);
        }
        let total = line(page, "+Inf", &self.longer);
        let sum = self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
        page.labelled(&format!("{name}_sum"), labels, sum);
        page.labelled(&format!("{name}_count"), labels, total);
    }
}

/// Operations on the store.
#[derive(Default)]
pub struct Operations {
    /// Puts, those inside transactions included.
    pub puts: AtomicU64,
    /// Range deletions, those inside transactions included.
    pub deletes: AtomicU64,
    /// Ranges, those inside transactions included.
    pub ranges: AtomicU64,
    /// Transactions of more than one operation.
    pub txns: AtomicU64,
    /// Leases granted.
    pub leases_granted: AtomicU64,
    /// Leases revoked.
    pub leases_revoked: AtomicU64,
}

impl Operations {
    /// Counts what an applied request did.
    pub(crate) fn count(&self, response: &store::Response) {
        let counter = match response {
            store::Response::Put(_) => &self.puts,
            store::Response::DeleteRange(_) => &self.deletes,
            store::Response::Range(_) => &self.ranges,
            store::Response::LeaseGrant(_) => &self.leases_granted,
            store::Response::LeaseRevoke(..) => &self.leases_revoked,
            store::Response::Txn(txn) => return self.count_txn(txn),
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the operations of a transaction, read-only ones included.
    pub(crate) fn count_txn(&self, txn: &TxnResponse) {
        let mut operations = 0;
        let mut open = vec![txn];
        while let Some(txn) = open.pop() {
            for op in txn.responses.iter().filter_map(|op| op.response.as_ref()) {
                let counter = match op {
                    Response::ResponsePut(_) => &self.puts,
                    Response::ResponseDeleteRange(_) => &self.deletes,
                    Response::ResponseRange(_) => &self.ranges,
                    Response::ResponseTxn(nested) => {
                        open.push(nested);
                        continue;
                    }
                };
                counter.fetch_add(1, Ordering::Relaxed);
                operations += 1;
            }
        }
        self.txns.fetch_add(u64::from(operations > 1), Ordering::Relaxed);
    }
}

/// What the threads of a member count.
#[derive(Default)]
pub struct Metrics {
    /// fdatasync of the Raft log.
    pub wal_fsync: Histogram,
    /// Writing a checkpoint, its syncs included: what etcd calls a backend commit.
    pub checkpoint: Histogram,
    /// Operations on the store.
    pub operations: Operations,
    /// Applies that took longer than `--warning-apply-duration`.
    pub slow_applies: AtomicU64,
    /// Proposals on their way.
    pub proposals_pending: AtomicU64,
    /// Proposals refused or timed out.
    pub proposals_failed: AtomicU64,
    /// Times a leader's heartbeat was late.
    pub heartbeat_failures: AtomicU64,
    /// Read indexes that nobody answered in time.
    pub slow_read_indexes: AtomicU64,
    /// Read indexes that a change of leader made void.
    pub read_indexes_failed: AtomicU64,
    /// Leases whose time was over.
    pub leases_expired: AtomicU64,
    /// Keep-alives that found their lease.
    pub leases_renewed: AtomicU64,
    /// `/health` answers: good and bad ones.
    pub health: [AtomicU64; 2],
    /// Changes of the members.
    pub cluster: ClusterMetrics,
    pub(crate) progress: Progress,
    clients: Mutex<BTreeMap<(&'static str, String), u64>>,
    unknown_clients: [AtomicU64; 2],
}

/// Distinct client versions counted; more would let a client grow the page without end.
const CLIENT_VERSIONS_MAX: usize = 64;

impl Metrics {
    pub(crate) fn count_client(&self, metadata: &rpc::Metadata, kind: &'static str) {
        let version = metadata.get("client-api-version").and_then(|version| std::str::from_utf8(version).ok());
        let Some(version) = version else {
            self.unknown_clients[usize::from(kind == "stream")].fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut clients = crate::node::lock(&self.clients);
        // The common case finds its place without an allocation.
        if let Some((_, count)) = clients.iter_mut().find(|((known, name), _)| *known == kind && name == version) {
            *count += 1;
        } else if clients.len() < CLIENT_VERSIONS_MAX {
            clients.insert((kind, version.into()), 1);
        } else {
            self.unknown_clients[usize::from(kind == "stream")].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_renewal(&self, found: bool) {
        if found {
            self.leases_renewed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes families one after the other.
#[derive(Default)]
pub(crate) struct Page {
    text: String,
}

impl Page {
    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, "gauge", help);
        let _ = writeln!(self.text, "{name} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, "counter", help);
        let _ = writeln!(self.text, "{name} {value}");
    }

    /// A line; without braces if there are no labels.
    pub(crate) fn labelled(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        if labels.is_empty() {
            let _ = writeln!(self.text, "{name} {value}");
            return;
        }
        let _ = write!(self.text, "{name}{{");
        for (place, (label, text)) in labels.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{comma}{label}=\"{text}\"");
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}

/// The whole page.
pub(crate) fn render(node: &Node, stats: Option<&rpc::Stats>) -> String {
    let mut page = Page { text: String::with_capacity(64 * 1024) };
    server(&mut page, node);
    store(&mut page, node);
    disk(&mut page, node);
    if let Some(stats) = stats {
        grpc(&mut page, stats);
    }
    if let Some(peers) = node.peers.get() {
        peers.render(&mut page);
    }
    node.tls.render(stats, &mut page);
    process(&mut page);
    page.text
}

fn server(page: &mut Page, node: &Node) {
    let status = &node.status;
    let metrics = &node.metrics;
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
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
    page.counter("etcd_server_health_success", "Health checks answered well.", load(&metrics.health[0]));
    page.counter("etcd_server_health_failures", "Health checks answered badly.", load(&metrics.health[1]));
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
    page.family("cairn_build_info", "gauge", "Cairn's own version.");
    page.labelled("cairn_build_info", &[("version", version::CAIRN)], 1);
    page.family("etcd_server_client_requests_total", "counter", "Requests by kind and the client's API version.");
    for (kind, place) in [("unary", 0), ("stream", 1)] {
        let labels = [("type", kind), ("client_api_version", "unknown")];
        page.labelled("etcd_server_client_requests_total", &labels, load(&metrics.unknown_clients[place]));
    }
    for ((kind, client), count) in crate::node::lock(&metrics.clients).iter() {
        let labels = [("type", *kind), ("client_api_version", client.as_str())];
        page.labelled("etcd_server_client_requests_total", &labels, count);
    }
    page.counter(
        "etcd_debugging_server_lease_expired_total",
        "Leases whose time was over.",
        load(&metrics.leases_expired),
    );
    page.counter("etcd_debugging_lease_renewed_total", "Keep-alives answered.", load(&metrics.leases_renewed));
    let quota = node.store.quota_bytes().map_or(-1, |quota| i64::try_from(quota).unwrap_or(i64::MAX));
    page.gauge("etcd_server_quota_backend_bytes", "Live bytes at which writes are refused.", quota);
}

fn members(page: &mut Page, node: &Node) {
    let cluster = &node.metrics.cluster;
    page.family("etcd_network_known_peers", "gauge", "The other members.");
    let own = format!("{:x}", node.member_id);
    for id in node.store.members().members.into_keys().filter(|id| *id != node.member_id) {
        page.labelled("etcd_network_known_peers", &[("Local", &own), ("Remote", &format!("{id:x}"))], 1);
    }
    page.counter("etcd_server_learner_promote_successes", "Learners made voters.", cluster.promotions());
    page.family("etcd_server_learner_promote_failures", "counter", "Promotions that were refused.");
    for (reason, count) in cluster.promotion_failures() {
        page.labelled("etcd_server_learner_promote_failures", &[("Reason", reason)], count);
    }
}

fn store(page: &mut Page, node: &Node) {
    let usage = node.store.usage();
    let operations = &node.metrics.operations;
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
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
    page.gauge("etcd_debugging_mvcc_keys_total", "Keys.", usage.keys);
    page.gauge("etcd_debugging_mvcc_current_revision", "The current revision.", node.store.revision());
    page.gauge("etcd_debugging_mvcc_compact_revision", "The last compacted revision.", node.store.compact_revision());
    page.counter("etcd_mvcc_put_total", "Puts applied.", load(&operations.puts));
    page.counter("etcd_mvcc_delete_total", "Deletes applied.", load(&operations.deletes));
    page.counter("etcd_mvcc_range_total", "Ranges read.", load(&operations.ranges));
    page.counter("etcd_mvcc_txn_total", "Transactions applied.", load(&operations.txns));
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
    let alarms = node.store.alarms();
    page.family("etcd_debugging_server_alarms", "gauge", "Alarms that are on.");
    for alarm in alarms {
        let name = api::etcdserverpb::AlarmType::try_from(alarm.alarm).map_or("NONE", |kind| kind.as_str_name());
        let id = format!("{:x}", alarm.member_id);
        page.labelled("etcd_debugging_server_alarms", &[("server_id", &id), ("alarm_type", name)], 1);
    }
}

fn disk(page: &mut Page, node: &Node) {
    let metrics = &node.metrics;
    metrics.wal_fsync.write(page, "etcd_disk_wal_fsync_duration_seconds", "Syncs of the Raft log.");
    metrics.checkpoint.write(page, "etcd_disk_backend_commit_duration_seconds", "Writing checkpoints.");
}

fn grpc(page: &mut Page, stats: &rpc::Stats) {
    page.counter("etcd_network_client_grpc_received_bytes_total", "Bytes from clients.", stats.bytes_received());
    page.counter("etcd_network_client_grpc_sent_bytes_total", "Bytes to clients.", stats.bytes_sent());
    page.gauge("cairn_rpc_connections", "Open client connections.", stats.connections_open());
    let most = stats.connections_max();
    page.gauge("cairn_rpc_connections_max", "Client connections that may be open.", most);
    page.family("cairn_rpc_limit_hits_total", "counter", "How often clients ran into a limit of the transport.");
    for limit in rpc::Limit::ALL {
        page.labelled("cairn_rpc_limit_hits_total", &[("limit", limit.name())], stats.limit_hits(*limit));
    }
    let mut errors = |name: &str, help: &str, count: &dyn Fn(Reason) -> u64| {
        page.family(name, "counter", help);
        for (code, text) in Reason::ERRORS.iter().filter_map(|code| Some((code, code.error_name()?))) {
            page.labelled(name, &[("code", text)], count(*code));
        }
    };
    let of_connections = |code| stats.connection_errors(code);
    errors("cairn_rpc_connection_errors_total", "Connections ended for what a client sent, by code.", &of_connections);
    let of_streams = |code| stats.stream_errors(code);
    errors("cairn_rpc_stream_errors_total", "Streams reset for what a client sent, by code.", &of_streams);
    let methods: Vec<(&rpc::Method, rpc::MethodCounts)> =
        METHODS.iter().enumerate().map(|(index, method)| (method, stats.method(index))).collect();
    let mut family = |name: &str, help: &str, value: fn(&rpc::MethodCounts) -> u64| {
        page.family(name, "counter", help);
        for (method, counts) in &methods {
            page.labelled(name, &labels(method), value(counts));
        }
    };
    family("grpc_server_started_total", "Calls begun.", |counts| counts.started);
    family("grpc_server_msg_received_total", "Messages received.", |counts| counts.messages_received);
    family("grpc_server_msg_sent_total", "Messages sent.", |counts| counts.messages_sent);
    page.family("grpc_server_handled_total", "counter", "Calls ended, by code.");
    for (method, counts) in &methods {
        let [kind, service, name] = labels(method);
        for (code, count) in Code::ALL.iter().zip(counts.handled) {
            let all = [("grpc_code", code.name()), name, service, kind];
            page.labelled("grpc_server_handled_total", &all, count);
        }
    }
}

fn labels(method: &rpc::Method) -> [(&'static str, &'static str); 3] {
    let kind = match method.kind {
        rpc::Kind::Unary => "unary",
        rpc::Kind::ClientStream => "client_stream",
        rpc::Kind::ServerStream => "server_stream",
        rpc::Kind::Bidi => "bidi_stream",
    };
    let (service, name) = method.path.trim_start_matches('/').split_once('/').unwrap_or_default();
    [("grpc_type", kind), ("grpc_service", service), ("grpc_method", name)]
}

/// What the operating system accounts to this process.
fn process(page: &mut Page) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields after the command's closing bracket, which may itself hold spaces.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    // SAFETY: plain system call.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    // SAFETY: plain system call.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as f64;
    page.counter("process_cpu_seconds_total", "User and system time in seconds.", (field(14) + field(15)) / ticks);
    page.gauge("process_virtual_memory_bytes", "Virtual memory.", field(23));
    page.gauge("process_resident_memory_bytes", "Resident memory, mapped files included.", field(24) * page_bytes);
    let boot = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let boot = boot.lines().find_map(|line| line.strip_prefix("btime ")).and_then(|text| text.parse::<f64>().ok());
    page.gauge("process_start_time_seconds", "Start since the Unix epoch.", boot.unwrap_or(0.0) + field(22) / ticks);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let limit = crate::system::open_files_limit();
    page.gauge("process_open_fds", "Open file descriptors.", open);
    page.gauge("process_max_fds", "Most file descriptors that may be open.", limit);
    page.gauge("os_fd_used", "Open file descriptors.", open);
    page.gauge("os_fd_limit", "Most file descriptors that may be open.", limit);
}
