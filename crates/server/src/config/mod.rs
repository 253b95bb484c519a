//! The configuration of a member: flags, environment and file, checked and typed.

mod audit;
mod auth;
mod corruption;
mod discovery;
pub(crate) mod duration;
mod file;
mod flags;
mod gates;
mod http;
mod kind;
mod legacy;
mod logs;
mod number;
mod priority;
mod security;
mod shown;
mod table;
mod tracing;
mod transport;
mod url;
mod values;
mod yaml;

pub use audit::Audit;
pub use auth::Auth;
pub use corruption::Corruption;
pub use discovery::{Discovery, Srv};
pub use flags::{FlagError, page, usage};
pub use gates::{Gate, Gates};
pub use http::Http;
pub use priority::IoPriority;
pub use security::{Tls, TlsVersion};
pub(crate) use shown::{command_line, value as shown_value};
pub use transport::Transport;
pub use url::{Listen, Place};
pub(crate) use url::{members as parse_members, peer_urls};

use crate::overload::QueueLimits;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use values::{Values, unusable};

/// Shorter time-outs than this would break connections that are merely slow.
const PEER_TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// A leader that is gone must be missed some day.
const ELECTION_MS_MAX: i64 = 50_000;
const DOWNGRADE_CHECK: Duration = Duration::from_secs(5);

/// How history is compacted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCompaction {
    /// Never.
    Off,
    /// Keep this much time.
    Periodic(Duration),
    /// Keep this many revisions.
    Revisions(i64),
}

/// Letters of the name of a zone.
const ZONE_LETTERS_MAX: usize = 128;

/// A member's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name among the members.
    pub name: String,
    /// Where the member runs; empty if that is not said.
    pub zone: String,
    /// Directory of the data.
    pub data_dir: PathBuf,
    /// Directory of the log, if not below the data.
    pub wal_dir: Option<PathBuf>,
    /// Where clients are listened for.
    pub listen_client: Vec<Listen>,
    /// Where clients are listened for that speak HTTP but not gRPC. If there are such places, the others speak gRPC only.
    pub listen_client_http: Vec<Listen>,
    /// Where metrics and health are told, and nothing else.
    pub listen_metrics: Vec<Listen>,
    /// Where peers are listened for.
    pub listen_peer: Vec<Listen>,
    /// Listen at a port that another process listens at.
    pub socket_reuse_port: bool,
    /// TLS of clients, of metrics, and of the gateway.
    pub tls_client: Tls,
    /// TLS of peers.
    pub tls_peer: Tls,
    /// Tokens and passwords.
    pub auth: Auth,
    /// HTTP beside gRPC.
    pub http: Http,
    /// Histograms of each method among the metrics.
    pub metrics_extensive: bool,
    /// OpenTelemetry traces, if they are wanted.
    pub tracing: Option<telemetry::tracing::Options>,
    /// Comparing the members' data.
    pub corruption: Corruption,
    /// Time between looks whether a downgrade is done.
    pub downgrade_check_interval: Duration,
    /// Feature gates.
    pub gates: Gates,
    /// URLs told to clients.
    pub advertise_client_urls: Vec<String>,
    /// URLs told to peers.
    pub advertise_peer_urls: Vec<String>,
    /// `--initial-cluster` or `--initial-cluster-token` was given.
    pub initial_is_given: bool,
    /// Founding members: name and peer URLs. Empty when DNS names them.
    pub initial_cluster: Vec<(String, Vec<String>)>,
    /// Another cluster in which the founding members find each other.
    pub discovery: Option<Discovery>,
    /// SRV records that name the founding members.
    pub srv: Option<Srv>,
    /// `--initial-cluster-state existing`.
    pub join_existing: bool,
    /// `--adopt-etcd-data`: a stopped etcd's data becomes this member's.
    pub adopt_etcd_data: bool,
    /// `--observer`, with the peer URLs of `--follow`; none for a member.
    pub follow: Vec<String>,
    /// `--force-new-cluster`: the only member from now on.
    pub force_new_cluster: bool,
    /// Token mixed into ids.
    pub cluster_token: String,
    /// `--initial-election-tick-advance`: a start costs no whole election timeout.
    pub election_tick_advance: bool,
    /// `--strict-reconfig-check`: no configuration change that would cost the quorum.
    pub strict_reconfig: bool,
    /// Learners the cluster may have.
    pub max_learners: usize,
    /// Silence after which a connection from a peer is given up.
    pub raft_read_timeout: Duration,
    /// Time without progress after which a connection to a peer is given up.
    pub raft_write_timeout: Duration,
    /// Applied entries between checkpoints.
    pub snapshot_count: u64,
    /// Entries kept in memory behind a checkpoint.
    pub catchup_entries: u64,
    /// Whether that was asked for: then a follower that lags further gets a snapshot, as in etcd, even if it answers.
    pub catchup_is_given: bool,
    /// Time between heartbeats: one tick.
    pub heartbeat: Duration,
    /// Time without a leader before an election.
    pub election_timeout: Duration,
    /// Ask for votes first.
    pub pre_vote: bool,
    /// How history is compacted by itself.
    pub auto_compaction: AutoCompaction,
    /// Live bytes at which writes are refused; 0 for the default, negative for no limit.
    pub quota_bytes: i64,
    /// Memory of the process, in bytes, from which writes are refused; 0 for what [`crate::node`] makes of the system's limit.
    pub memory_budget_bytes: u64,
    /// Operations in one transaction.
    pub max_txn_ops: usize,
    /// Bytes of one request.
    pub max_request_bytes: usize,
    /// Streams one client connection may have open.
    pub max_concurrent_streams: u32,
    /// How many requests of each class may wait.
    pub queues: QueueLimits,
    /// What else one client may have, and how long it may take.
    pub transport: Transport,
    /// Clients that ping more often are sent away.
    pub keepalive_min_time: Duration,
    /// Silence of a client after which it is pinged.
    pub keepalive_interval: Duration,
    /// Time it has to answer.
    pub keepalive_timeout: Duration,
    /// Log segments kept at least.
    pub max_wals: usize,
    /// Pause before each slice of the work that a compaction leaves.
    pub compaction_pause: Duration,
    /// Versions that a compaction looks at between two pauses; 0 is as many as a slice has.
    pub compaction_batch_versions: usize,
    /// Applies slower than this are logged.
    pub warning_apply: Duration,
    /// Requests slower than this are logged.
    pub warning_unary_request: Duration,
    /// Time between progress notifications.
    pub watch_progress_interval: Duration,
    /// The log of what happens (not of what is stored).
    pub logs: telemetry::logging::Options,
    /// The audit log, if there is one.
    pub audit: Option<Audit>,
    /// How the disk treats the thread that writes the Raft log.
    pub io_priority: Option<IoPriority>,
    /// Keep all of the process in memory.
    pub memory_lock: bool,
    /// Request threads.
    pub threads: usize,
    /// Go on with a log that is known to have lost what was acknowledged.
    pub unsafe_ignore_lost_log: bool,
    /// Do not sync the log.
    pub unsafe_no_fsync: bool,
    /// What to warn about once logging is up.
    pub warnings: Vec<String>,
    /// What to tell then.
    pub notes: Vec<String>,
    /// Variables of the environment that were used, with their values as they may be shown.
    pub variables: Vec<(String, String)>,
}

/// What the command line asks for.
pub enum Asked {
    /// Start a member.
    Serve(Box<Config>),
    /// Print the version.
    Version,
    /// Print the usage.
    Help,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The command line itself: usage, exit 2.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// A value that does not fit: exit 1.
    #[error("{0}")]
    Value(String),
}

/// Reads flags and environment.
pub fn parse(
    args: impl IntoIterator<Item = String>,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Asked, ConfigError> {
    let mut values = flags::parse(args)?;
    if values.is_on("help") {
        return Ok(Asked::Help);
    }
    if let Some(word) = &values.extra {
        return Err(ConfigError::Value(format!("{word:?} is not a valid flag")));
    }
    if values.is_on("version") {
        return Ok(Asked::Version);
    }
    let env: Vec<(String, String)> = env.into_iter().collect();
    let named = env.iter().find(|(name, _)| name == "ETCD_CONFIG_FILE").map(|(_, path)| path.as_str());
    let path =
        Some(values.get("config-file")).filter(|path| !path.is_empty()).or(named.filter(|path| !path.is_empty()));
    let values = match path {
        Some(path) => {
            let mut read = file::read(Path::new(path))?;
            let loaded =
                format!("loaded server configuration from {path}: other flags and environment variables are ignored");
            read.notes.push(loaded);
            read
        }
        None => {
            flags::add_environment(&mut values, env)?;
            values
        }
    };
    build(values).map(|config| Asked::Serve(Box::new(config)))
}

/// Checks what was given and makes a configuration of it.
fn build(mut values: Values) -> Result<Config, ConfigError> {
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

impl Config {
    /// Ticks of [`Config::heartbeat`] without a leader before an election.
    pub fn election_ticks(&self) -> usize {
        (self.election_timeout.as_millis() / self.heartbeat.as_millis()) as usize
    }

    /// The shortest time to live of a lease in seconds: one and a half election timeouts in whole ticks, rounded up, as etcd has it.
    pub fn lease_ttl_seconds_min(&self) -> i64 {
        let ticks = (3 * self.election_ticks() / 2) as u128;
        (ticks * self.heartbeat.as_millis()).div_ceil(1000) as i64
    }

    /// The address that connections to peers come from (feature gate `SetMemberLocalAddr`): the first that this member advertises
    /// to them, if it is not one of this machine alone.
    pub fn local_address(&self) -> Option<IpAddr> {
        if !self.gates.is_on(Gate::SetMemberLocalAddr) {
            return None;
        }
        let addresses = self.advertise_peer_urls.iter().filter_map(|url| url::ip(url));
        addresses.into_iter().find(|ip| !ip.is_loopback() && !ip.is_unspecified())
    }

    /// How long a request may wait for consensus.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(5) + 2 * self.election_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    pub(super) fn config(args: &[&str]) -> Result<Config, ConfigError> {
        match parse(args.iter().map(|arg| arg.to_string()), [])? {
            Asked::Serve(config) => Ok(*config),
            _ => panic!("asked to serve"),
        }
    }

    #[test]
    fn zones_have_short_names() {
        assert_eq!(config(&[]).map(|config| config.zone).ok(), Some(String::new()));
        assert_eq!(config(&["--zone=eu-1a"]).map(|config| config.zone).ok(), Some("eu-1a".into()));
        let long = "ü".repeat(ZONE_LETTERS_MAX);
        assert_eq!(config(&["--zone", &long]).map(|config| config.zone).ok(), Some(long.clone()));
        for wrong in [format!("{long}x").as_str(), "a,b", "a\nb"] {
            let refused = config(&["--zone", wrong]).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|text| text.starts_with("--zone=")), "{wrong}");
        }
    }

    #[test]
    fn defaults_are_etcds() {
        let config = config(&[]).expect("defaults are valid");
        assert_eq!(config.data_dir, PathBuf::from("default.etcd"));
        assert_eq!(config.election_ticks(), 10);
        assert_eq!(config.lease_ttl_seconds_min(), 2);
        // Ten and a half ticks are ten.
        let odd = self::config(&["--heartbeat-interval=100", "--election-timeout=700"]);
        assert_eq!(odd.map(|config| config.lease_ttl_seconds_min()).ok(), Some(1));
        assert_eq!(config.request_timeout(), Duration::from_secs(7));
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
        assert!(config.http.gateway && config.http.cors.is_none() && config.http.host_whitelist.is_none());
        assert!(!config.tls_client.has_certificate() && config.tracing.is_none() && config.logs.rotation.is_none());
        assert_eq!(config.corruption.compact_hash_interval, None);
        assert!(config.pre_vote && config.strict_reconfig && config.election_tick_advance && !config.force_new_cluster);
        assert_eq!((config.keepalive_min_time, config.keepalive_timeout), (5 * SECOND, 20 * SECOND));
        assert_eq!((config.max_learners, config.raft_read_timeout), (1, Duration::from_secs(5)));
        assert_eq!(config.initial_cluster, [("default".to_string(), vec!["http://localhost:2380".to_string()])]);
    }

    #[test]
    fn local_addresses() {
        let from = |gate: &str, urls: &str| {
            config(&[&format!("--feature-gates={gate}"), &format!("--initial-advertise-peer-urls={urls}")])
                .expect("valid")
                .local_address()
        };
        let urls = "http://127.0.0.1:1,http://name:1,http://192.0.2.7:1";
        assert_eq!(from("SetMemberLocalAddr=true", urls), Some(IpAddr::from([192, 0, 2, 7])));
        assert_eq!((from("", urls), from("SetMemberLocalAddr=true", "http://name:1")), (None, None));
    }

    #[test]
    fn the_largest_request_is_named() {
        assert_eq!(
            config(&["--max-request-bytes=536870912"]).map(|config| config.max_request_bytes).ok(),
            Some(512 << 20)
        );
        let error = config(&["--max-request-bytes=536870913"]).expect_err("too large").to_string();
        assert!(error.contains("max-request-bytes") && error.contains("must be in 1..=536870912"), "{error}");
    }

    #[test]
    fn flags_of_the_backend_are_taken_in_silence() {
        let flags = ["--backend-batch-interval=1s", "--backend-batch-limit=10", "--backend-bbolt-freelist-type=array"];
        assert_eq!(config(&flags).map(|config| config.warnings).ok(), Some(Vec::new()));
        assert!(config(&["--backend-batch-limit=x"]).is_err());
        assert_eq!(
            config(&["--bootstrap-defrag-threshold-megabytes=1"]).map(|config| config.warnings.len()).ok(),
            Some(1)
        );
    }

    #[test]
    fn contradictions_are_refused() {
        for args in [
            &["--election-timeout=400"][..],
            &["--listen-client-urls=http://127.0.0.1:1"],
            &["--listen-peer-urls=http://example.com:1"],
            &["--snapshot-count=-1"],
            &["--auto-compaction-mode=never"],
            &["--auto-compaction-retention=soon"],
            &["--log-level=loud"],
            &["--initial-cluster=a"],
            &["--initial-cluster=a=http://x:1", "--discovery-srv=example.com"],
            &["--discovery-token=t"],
            &["--discovery-endpoints=http://x:1"],
            &["--discovery-fallback=proxy"],
            &["--max-learners=-1"],
            &["--election-timeout=60000"],
            &["--heartbeat-interval=0"],
            &["--cert-file=a"],
            &["--peer-client-key-file=a"],
            &["--peer-cert-allowed-cn=a", "--peer-cert-allowed-hostname=b"],
            &["--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"],
            &["--tls-min-version=TLS1.3", "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
            &["--tls-max-version=TLS1.1"],
            &["--listen-metrics-urls=https://127.0.0.1:1"],
            &["--listen-client-http-urls=http://localhost:2379"],
            &["--compact-hash-check-time=0s"],
            &["--enable-distributed-tracing", "--distributed-tracing-sampling-rate=1000001"],
            &["--cors=example.com"],
            &["--warning-apply-duration=-1s"],
            &["--observer"],
            &["--follow=http://127.0.0.1:1"],
            &["--observer", "--follow=127.0.0.1:1"],
            &["--observer", "--follow=http://127.0.0.1:1", "--force-new-cluster"],
            &["--observer", "--follow=http://127.0.0.1:1", "--initial-cluster=a=http://127.0.0.1:1"],
        ] {
            assert!(config(args).is_err(), "{args:?}");
        }
    }
}
