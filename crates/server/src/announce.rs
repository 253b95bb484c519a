//! What the log says at the start and at the end: the configuration in effect, without secrets.

use crate::config::{AutoCompaction, Config, Listen, Tls, shown_value};
use crate::system;
use telemetry::logging::{self, Value};

fn urls(list: &[Listen]) -> Vec<String> {
    list.iter().map(|listen| shown_value("url", &listen.url)).collect()
}

fn shown(list: &[String]) -> Vec<String> {
    list.iter().map(|url| shown_value("url", url)).collect()
}

/// Founding members as `--initial-cluster` has them.
fn founders(config: &Config) -> String {
    let of = |(name, urls): &(String, Vec<String>)| urls.iter().map(|url| format!("{name}={url}")).collect::<Vec<_>>();
    let pairs: Vec<String> = config.initial_cluster.iter().flat_map(of).collect();
    shown(&pairs).join(",")
}

/// Where the configuration comes from: variables that were used, and what is worth a note or a warning.
pub(crate) fn sources(config: &Config) {
    for (name, value) in &config.variables {
        logging::info(
            "recognized and used environment variable",
            &[("variable-name", name.into()), ("variable-value", value.into())],
        );
    }
    for note in &config.notes {
        logging::info(note, &[]);
    }
    for warning in &config.warnings {
        logging::warn(warning, &[]);
    }
    let words = system::command_line();
    logging::info("Running: ", &[("args", Value::List(&words))]);
    if config.max_request_bytes > RECOMMENDED_REQUEST_BYTES {
        let sizes = [config.max_request_bytes, RECOMMENDED_REQUEST_BYTES].map(|bytes| logging::size(bytes as u64));
        logging::warn(
            "exceeded recommended request limit",
            &[
                ("max-request-bytes", config.max_request_bytes.into()),
                ("max-request-size", (&sizes[0]).into()),
                ("recommended-request-bytes", RECOMMENDED_REQUEST_BYTES.into()),
                ("recommended-request-size", (&sizes[1]).into()),
            ],
        );
    }
}

/// Larger requests are taken, with a warning, as by etcd.
const RECOMMENDED_REQUEST_BYTES: usize = 10 << 20;

/// The effective configuration in one line, with the names of etcd's.
pub(crate) fn starting(config: &Config, is_initialized: bool) {
    let texts = [
        ("initial-advertise-peer-urls", shown(&config.advertise_peer_urls)),
        ("listen-peer-urls", urls(&config.listen_peer)),
        ("advertise-client-urls", shown(&config.advertise_client_urls)),
        ("listen-client-urls", urls(&config.listen_client)),
        ("listen-client-http-urls", urls(&config.listen_client_http)),
        ("listen-metrics-urls", urls(&config.listen_metrics)),
        ("cors", config.http.cors.clone().unwrap_or_else(|| vec!["*".into()])),
        ("host-whitelist", config.http.host_whitelist.clone().unwrap_or_else(|| vec!["*".into()])),
    ];
    let gates = config.gates.list().map(|(name, _, on)| format!("{name}={on}")).collect::<Vec<_>>().join(",");
    let (mode, retention) = match config.auto_compaction {
        AutoCompaction::Off => ("periodic", "0s".to_string()),
        AutoCompaction::Periodic(period) => ("periodic", format!("{period:?}")),
        AutoCompaction::Revisions(revisions) => ("revision", revisions.to_string()),
    };
    let data_dir = config.data_dir.display();
    let wal_dir = config.wal_dir.as_ref().map(|dir| dir.display().to_string()).unwrap_or_default();
    let member_dir = config.data_dir.join("member");
    let (heartbeat, election) = (format!("{:?}", config.heartbeat), format!("{:?}", config.election_timeout));
    let (founders, token) = (founders(config), config.discovery.as_ref().map_or("", |discovery| &discovery.token));
    let endpoints = config.discovery.as_ref().map(|discovery| shown(&discovery.endpoints)).unwrap_or_default();
    let local_address = config.local_address().map(|address| address.to_string()).unwrap_or_default();
    let corrupt_check = format!("{:?}", config.corruption.check_interval.unwrap_or_default());
    let audit_log = config.audit.as_ref().map(|audit| audit.target.to_string()).unwrap_or_default();
    let mut fields: Vec<(&str, Value<'_>)> = vec![
        ("etcd-version", api::version::ETCD.into()),
        ("cairn-version", api::version::CAIRN.into()),
        ("go-os", std::env::consts::OS.into()),
        ("go-arch", crate::arch().into()),
        ("max-cpu-set", config.threads.into()),
        ("max-cpu-available", std::thread::available_parallelism().map_or(1, |cores| cores.get()).into()),
        ("member-initialized", is_initialized.into()),
        ("name", (&config.name).into()),
        ("data-dir", Value::Shown(&data_dir)),
        ("wal-dir", (&wal_dir).into()),
    ];
    let member_dir = member_dir.display();
    fields.extend([
        ("member-dir", Value::Shown(&member_dir)),
        ("force-new-cluster", config.force_new_cluster.into()),
        ("heartbeat-interval", (&heartbeat).into()),
        ("election-timeout", (&election).into()),
        ("initial-election-tick-advance", config.election_tick_advance.into()),
        ("snapshot-count", config.snapshot_count.into()),
        ("max-wals", if config.max_wals == usize::MAX { 0 } else { config.max_wals }.into()),
        ("snapshot-catchup-entries", config.catchup_entries.into()),
    ]);
    fields.extend(texts.iter().map(|(name, list)| (*name, Value::List(list))));
    fields.extend([
        ("local-address", Value::from(&local_address)),
        ("initial-cluster", (&founders).into()),
        ("initial-cluster-state", if config.join_existing { "existing" } else { "new" }.into()),
        ("initial-cluster-token", (&config.cluster_token).into()),
        ("quota-backend-bytes", quota(config).into()),
        ("max-request-bytes", config.max_request_bytes.into()),
        ("max-concurrent-streams", u64::from(config.max_concurrent_streams).into()),
        ("max-txn-ops", config.max_txn_ops.into()),
        ("pre-vote", config.pre_vote.into()),
        ("feature-gates", (&gates).into()),
        ("corrupt-check-time-interval", (&corrupt_check).into()),
        ("auto-compaction-mode", mode.into()),
        ("auto-compaction-retention", (&retention).into()),
        ("discovery-token", token.into()),
        ("discovery-endpoints", Value::List(&endpoints)),
        // A JSON web token's options name files, which the flag's documentation lists.
        ("auth-token", config.auth.token.split(',').next().unwrap_or_default().into()),
        ("bcrypt-cost", u64::from(config.auth.bcrypt_cost).into()),
        ("max-learners", config.max_learners.into()),
        ("audit-log", (&audit_log).into()),
        // There is no v2 store to do more with.
        ("v2-deprecation", "write-only".into()),
    ]);
    let dir_type = if is_initialized { "member" } else { "empty" };
    let dir = [("data-dir", Value::Shown(&data_dir)), ("dir-type", dir_type.into())];
    if is_initialized {
        logging::info("server has already been initialized", &dir);
    }
    logging::info("Initialize and start etcd server", &dir);
    logging::info("starting an etcd server", &fields);
}

/// The bytes at which writes are refused; negative for no limit.
fn quota(config: &Config) -> i64 {
    match config.quota_bytes {
        0 => 2 << 30,
        bytes => bytes,
    }
}

/// The sockets, before they are bound, and the files that secure them.
pub(crate) fn listeners(config: &Config) {
    logging::info("configuring peer listeners", &[("listen-peer-urls", Value::List(&urls(&config.listen_peer)))]);
    if config.listen_peer.iter().any(|listen| listen.secure) {
        secured("starting with peer TLS", &config.tls_peer);
    }
    if config.http.pprof {
        logging::info("pprof is enabled", &[("path", "/debug/pprof".into())]);
    }
    logging::info("configuring client listeners", &[("listen-client-urls", Value::List(&urls(&config.listen_client)))]);
    let mut clients = config.listen_client.iter().chain(&config.listen_client_http).chain(&config.listen_metrics);
    if clients.any(|listen| listen.secure) {
        secured("starting with client TLS", &config.tls_client);
    }
}

fn secured(text: &str, tls: &Tls) {
    let path =
        |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let info = format!(
        "cert = {}, key = {}, client-cert={}, client-key={}, trusted-ca = {}, client-cert-auth = {}, crl-file = {}",
        path(&tls.cert_file),
        path(&tls.key_file),
        path(&tls.client_cert_file),
        path(&tls.client_key_file),
        path(&tls.trusted_ca_file),
        tls.client_cert_auth,
        path(&tls.crl_file),
    );
    let fields = [
        ("tls-info", (&info).into()),
        ("auto-tls", tls.auto.into()),
        ("cipher-suites", Value::List(&tls.cipher_suites)),
    ];
    logging::info(text, &fields);
}

/// The sockets are served: peers and metrics at once, clients as soon as the member has something to say to them.
pub(crate) fn serving(config: &Config, member_id: u64) {
    let texts = [
        ("initial-advertise-peer-urls", shown(&config.advertise_peer_urls)),
        ("listen-peer-urls", urls(&config.listen_peer)),
        ("advertise-client-urls", shown(&config.advertise_client_urls)),
        ("listen-client-urls", urls(&config.listen_client)),
        ("listen-metrics-urls", urls(&config.listen_metrics)),
    ];
    let mut fields = vec![("local-member-id", Value::Id(member_id))];
    fields.extend(texts.iter().map(|(name, list)| (*name, Value::List(list))));
    logging::info("now serving peer/client/metrics", &fields);
}

/// The member begins to end, or has ended.
pub(crate) fn closing(config: &Config, text: &str) {
    let (peer, client) = (shown(&config.advertise_peer_urls), shown(&config.advertise_client_urls));
    logging::info(
        text,
        &[
            ("name", (&config.name).into()),
            ("data-dir", Value::Shown(&config.data_dir.display())),
            ("advertise-peer-urls", Value::List(&peer)),
            ("advertise-client-urls", Value::List(&client)),
        ],
    );
}
