//! What was given, checked and made a configuration.

use super::url::Listen;
use super::values::{Values, unusable};
use super::{
    AutoCompaction, Config, ConfigError, audit, auth, corruption, discovery, duration, gates, http, logs, priority,
    security, table, tracing, transport, url,
};
use std::path::PathBuf;
use std::time::Duration;

/// Shorter time-outs than this would break connections that are merely slow.
const PEER_TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// A leader that is gone must be missed some day.
const ELECTION_MS_MAX: i64 = 50_000;
const DOWNGRADE_CHECK: Duration = Duration::from_secs(5);

/// Letters of the name of a zone.
pub(super) const ZONE_LETTERS_MAX: usize = 128;

/// Checks what was given and makes a configuration of it.
pub(super) fn build(mut values: Values) -> Result<Config, ConfigError> {
    let gates = gates::read(&mut values)?;
    let logs = logs::read(&values)?;
    let auth = auth::read(&mut values)?;
    let audit = audit::read(&mut values)?;
    let optional = |flag: &str| match values.get(flag) {
        "" => Ok(Vec::new()),
        text => url::listen(flag, text),
    };
    let listen_peer = url::listen("listen-peer-urls", values.get("listen-peer-urls"))?;
    let listen_client = url::listen("listen-client-urls", values.get("listen-client-urls"))?;
    let listen_client_http = optional("listen-client-http-urls")?;
    let listen_metrics = optional("listen-metrics-urls")?;
    if let Some(both) = listen_client_http.iter().find(|one| listen_client.iter().any(|other| other.place == one.place))
    {
        let url = &both.url;
        return Err(ConfigError::Value(format!(
            "cannot bind both --listen-client-urls and --listen-client-http-urls on the same url {url}"
        )));
    }
    let advertise_peer_urls =
        url::list("initial-advertise-peer-urls", "\"host:port\"", values.get("initial-advertise-peer-urls"))?;
    let advertise_client_urls = url::list(
        "advertise-client-urls",
        "in the format \"host:port\", \"unix:/path/to/socket\" or \"unixs:/path/to/socket\"",
        values.get("advertise-client-urls"),
    )?;
    let name = values.get("name").to_string();
    let zone = zone(values.get("zone"))?;
    let discovery = discovery::discovery(&values)?;
    let srv = discovery::srv(&values)?;
    let ways = [!values.get("initial-cluster").is_empty(), discovery.is_some(), srv.is_some()];
    if ways.into_iter().filter(|way| *way).count() > 1 {
        return Err(ConfigError::Value(
            "multiple discovery or bootstrap flags are set. Choose one of \"initial-cluster\", \"discovery-endpoints\" or \
             \"discovery-srv\""
                .into(),
        ));
    }
    let initial_cluster = match values.get("initial-cluster") {
        "" if srv.is_some() => Vec::new(),
        "" => vec![(name.clone(), advertise_peer_urls.clone())],
        text => url::cluster(text)?,
    };
    let (heartbeat, election_timeout) = ticks(&values)?;
    if !values.from_file && values.is_given("listen-client-urls") && !values.is_given("advertise-client-urls") {
        return Err(ConfigError::Value(
            "--advertise-client-urls is required when --listen-client-urls is set explicitly".into(),
        ));
    }
    let auto_compaction = auto_compaction(&values)?;
    let tracing = tracing::read(&values)?;
    let corruption = corruption::read(&values, &gates)?;
    let clients: Vec<Listen> = listen_client.iter().chain(&listen_client_http).cloned().collect();
    let tls_client = security::client(&mut values, &clients, &listen_metrics)?;
    let tls_peer = security::peer(&mut values, &listen_peer)?;
    let http = http::read(&values)?;
    let metrics_extensive = match values.get("metrics") {
        "extensive" => true,
        "basic" => false,
        other => {
            // etcd takes anything here, so a configuration may hold it.
            let warning = format!("--metrics={other:?} is neither basic nor extensive: basic is taken");
            values.warnings.push(warning);
            false
        }
    };
    for flag in table::WITHOUT_EFFECT {
        if values.is_given(flag.name) && !table::SILENT.contains(&flag.name) {
            // Scripts and the published tests look for etcd's words about these two.
            values.warnings.push(match flag.name {
                "max-snapshots" => "--max-snapshots is deprecated in 3.6 and will be decommissioned in 3.8".into(),
                "v2-deprecation" => {
                    "--v2-deprecation is deprecated and scheduled for removal in v3.8. The default value is \
                                     enforced, ignoring user input"
                        .into()
                }
                name => format!("flag --{name} has no effect: {}", flag.help),
            });
        }
    }
    let threads = match values.number("threads", 0, 1024)? {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        threads => threads as usize,
    };
    let mut config = Config {
        data_dir: values.path("data-dir").unwrap_or_else(|| PathBuf::from(format!("{name}.etcd"))),
        wal_dir: values.path("wal-dir"),
        listen_client,
        listen_client_http,
        listen_metrics,
        listen_peer,
        socket_reuse_port: values.is_on("socket-reuse-port"),
        tls_client,
        tls_peer,
        auth,
        http,
        metrics_extensive,
        tracing,
        corruption,
        downgrade_check_interval: values.period_or("downgrade-check-time", DOWNGRADE_CHECK)?,
        gates,
        advertise_client_urls,
        advertise_peer_urls,
        initial_is_given: values.is_given("initial-cluster") || values.is_given("initial-cluster-token"),
        initial_cluster,
        join_existing: values.get("initial-cluster-state") == "existing",
        adopt_etcd_data: values.is_on("adopt-etcd-data"),
        follow: follow(&values)?,
        force_new_cluster: values.is_on("force-new-cluster"),
        // Founding members that find each other by a token are told apart by it too.
        cluster_token: match &discovery {
            Some(discovery) => discovery.token.clone(),
            None => values.get("initial-cluster-token").to_string(),
        },
        discovery,
        srv,
        election_tick_advance: values.is_on("initial-election-tick-advance"),
        strict_reconfig: values.is_on("strict-reconfig-check"),
        max_learners: values.number("max-learners", 0, i32::MAX as i64)? as usize,
        raft_read_timeout: values.period("raft-read-timeout")?.max(PEER_TIMEOUT_MIN),
        raft_write_timeout: values.period("raft-write-timeout")?.max(PEER_TIMEOUT_MIN),
        snapshot_count: match values.number("snapshot-count", 0, i64::MAX)? {
            0 => 10_000,
            count => count as u64,
        },
        catchup_entries: values.number("snapshot-catchup-entries", 0, i64::MAX)? as u64,
        catchup_is_given: values.is_given("snapshot-catchup-entries"),
        heartbeat,
        election_timeout,
        pre_vote: values.is_on("pre-vote"),
        auto_compaction,
        quota_bytes: values.number("quota-backend-bytes", i64::MIN, i64::MAX)?,
        memory_budget_bytes: values.number("memory-budget", 0, i64::MAX)? as u64,
        max_txn_ops: values.number("max-txn-ops", 1, u32::MAX as i64)? as usize,
        max_request_bytes: values.number("max-request-bytes", 1, api::limits::REQUEST_BYTES_LIMIT as i64)? as usize,
        max_concurrent_streams: match values.number("max-concurrent-streams", 0, u32::MAX.into())? {
            0 => api::limits::CONCURRENT_STREAMS_MAX,
            streams => streams as u32,
        },
        queues: transport::queues(&values)?,
        transport: transport::read(&values)?,
        keepalive_min_time: values.period("grpc-keepalive-min-time")?,
        keepalive_interval: values.period_or("grpc-keepalive-interval", Duration::from_secs(2 * 3600))?,
        keepalive_timeout: values.period_or("grpc-keepalive-timeout", Duration::from_secs(20))?,
        max_wals: match values.number("max-wals", 0, 1 << 20)? {
            0 => usize::MAX,
            segments => segments as usize,
        },
        compaction_pause: values.period("compaction-sleep-interval")?,
        // etcd takes a limit below one for its default.
        compaction_batch_versions: values.number("compaction-batch-limit", i32::MIN.into(), i32::MAX.into())?.max(0)
            as usize,
        warning_apply: values.period("warning-apply-duration")?,
        warning_unary_request: values.period_or("warning-unary-request-duration", Duration::from_millis(300))?,
        watch_progress_interval: values
            .period_or("watch-progress-notify-interval", Duration::from_secs(600))?
            .max(Duration::from_millis(100)),
        logs,
        audit,
        io_priority: priority::read(&values)?,
        memory_lock: values.is_on("memory-mlock"),
        threads,
        unsafe_ignore_lost_log: values.is_on("unsafe-ignore-lost-log"),
        unsafe_no_fsync: values.is_on("unsafe-no-fsync"),
        warnings: Vec::new(),
        notes: Vec::new(),
        variables: Vec::new(),
        name,
        zone,
    };
    (config.warnings, config.notes, config.variables) = (values.warnings, values.notes, values.variables);
    Ok(config)
}

/// The name of a zone, which clients compare as it is.
fn zone(text: &str) -> Result<String, ConfigError> {
    if text.chars().count() > ZONE_LETTERS_MAX || text.chars().any(|letter| letter.is_control() || letter == ',') {
        let text =
            format!("--zone={text:?}: at most {ZONE_LETTERS_MAX} letters, none of them a comma or a control character");
        return Err(ConfigError::Value(text));
    }
    Ok(text.into())
}

/// What an observer follows. What founds or joins a cluster contradicts it.
fn follow(values: &Values) -> Result<Vec<String>, ConfigError> {
    let wrong = |text: String| Err(ConfigError::Value(text));
    let is_observer = values.is_on("observer");
    match values.get("follow") {
        "" if is_observer => wrong("--observer needs --follow: peer URLs of members or observers".into()),
        "" => Ok(Vec::new()),
        _ if !is_observer => wrong("--follow is for observers: give --observer too".into()),
        urls => {
            const MEMBERS: [&str; 6] = [
                "initial-cluster",
                "initial-cluster-token",
                "discovery-token",
                "discovery-srv",
                "force-new-cluster",
                "adopt-etcd-data",
            ];
            if let Some(flag) = MEMBERS.into_iter().find(|flag| values.is_given(flag)) {
                return wrong(format!("--{flag} is for members, and --observer makes none"));
            }
            url::list("follow", "\"host:port\"", urls)
        }
    }
}

/// Time of a heartbeat and of an election, in this order.
fn ticks(values: &Values) -> Result<(Duration, Duration), ConfigError> {
    let wrong = |text: String| Err(ConfigError::Value(text));
    let heartbeat_ms = values.number("heartbeat-interval", 0, i64::MAX)?;
    let election_ms = values.number("election-timeout", 0, i64::MAX)?;
    if heartbeat_ms == 0 {
        return wrong("--heartbeat-interval must be >0 (set to 0ms)".into());
    }
    if election_ms == 0 {
        return wrong("--election-timeout must be >0 (set to 0ms)".into());
    }
    if election_ms / 5 < heartbeat_ms {
        return wrong(format!(
            "--election-timeout[{election_ms}ms] should be at least as 5 times as --heartbeat-interval[{heartbeat_ms}ms]"
        ));
    }
    if election_ms > ELECTION_MS_MAX {
        return wrong(format!(
            "--election-timeout[{election_ms}ms] is too long, and should be set less than {ELECTION_MS_MAX}ms"
        ));
    }
    Ok((Duration::from_millis(heartbeat_ms as u64), Duration::from_millis(election_ms as u64)))
}

fn auto_compaction(values: &Values) -> Result<AutoCompaction, ConfigError> {
    let retention = values.get("auto-compaction-retention");
    match values.get("auto-compaction-mode") {
        "periodic" => match duration::hours_or_duration(retention) {
            Some(Duration::ZERO) => Ok(AutoCompaction::Off),
            Some(period) => Ok(AutoCompaction::Periodic(period)),
            None => Err(unusable("auto-compaction-retention", retention, "must be hours or a duration like 30m")),
        },
        "revision" => match values.number("auto-compaction-retention", 0, i64::MAX)? {
            0 => Ok(AutoCompaction::Off),
            revisions => Ok(AutoCompaction::Revisions(revisions)),
        },
        "" => Err(ConfigError::Value("undefined auto-compaction-mode".into())),
        other => {
            Err(ConfigError::Value(format!("unknown auto-compaction-mode {other:?} (must be periodic or revision)")))
        }
    }
}
