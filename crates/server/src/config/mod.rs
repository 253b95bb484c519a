//! What a member is told at start: flags and environment, checked and typed.

mod discovery;
mod duration;
mod flags;
mod gates;
mod url;

pub use discovery::{Discovery, Srv};
pub use flags::{FlagError, usage};
pub use url::{Listen, ListenPeer};
pub(crate) use url::{members as parse_members, peer_urls};

use crate::logging::{Format, Level};
use std::path::PathBuf;
use std::time::Duration;

/// Shorter time-outs than this would break connections that are merely slow.
const PEER_TIMEOUT_MIN: Duration = Duration::from_millis(100);

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

/// A member's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name among the members.
    pub name: String,
    /// Directory of the data.
    pub data_dir: PathBuf,
    /// Directory of the log, if not below the data.
    pub wal_dir: Option<PathBuf>,
    /// Where clients are listened for.
    pub listen_client: Vec<Listen>,
    /// Where peers are listened for.
    pub listen_peer: Vec<ListenPeer>,
    /// URLs told to clients.
    pub advertise_client_urls: Vec<String>,
    /// URLs told to peers.
    pub advertise_peer_urls: Vec<String>,
    /// Founding members: name and peer URLs. Empty when DNS names them.
    pub initial_cluster: Vec<(String, Vec<String>)>,
    /// Another cluster in which the founding members find each other.
    pub discovery: Option<Discovery>,
    /// SRV records that name the founding members.
    pub srv: Option<Srv>,
    /// `--initial-cluster-state existing`.
    pub join_existing: bool,
    /// `--force-new-cluster`: the only member from now on.
    pub force_new_cluster: bool,
    /// Token mixed into ids.
    pub cluster_token: String,
    /// `--initial-election-tick-advance`: a start costs no whole election timeout.
    pub election_tick_advance: bool,
    /// `--strict-reconfig-check`: no change of the members that would cost the quorum.
    pub strict_reconfig: bool,
    /// Learners the cluster may have.
    pub max_learners: usize,
    /// Feature gate `LeaseCheckpoint`: a change of leaders does not give leases all of their time again.
    pub lease_checkpoint: bool,
    /// Silence after which a connection from a peer is given up.
    pub raft_read_timeout: Duration,
    /// Time without progress after which a connection to a peer is given up.
    pub raft_write_timeout: Duration,
    /// Applied entries between checkpoints.
    pub snapshot_count: u64,
    /// Entries kept in memory behind a checkpoint.
    pub catchup_entries: u64,
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
    /// Operations in one transaction.
    pub max_txn_ops: usize,
    /// Bytes of one request.
    pub max_request_bytes: usize,
    /// Streams one client connection may have open.
    pub max_concurrent_streams: u32,
    /// Clients that ping more often are sent away.
    pub keepalive_min_time: Duration,
    /// Silence of a client after which it is pinged.
    pub keepalive_interval: Duration,
    /// Time it has to answer.
    pub keepalive_timeout: Duration,
    /// Log segments kept at least.
    pub max_wals: usize,
    /// Applies slower than this are logged.
    pub warning_apply: Duration,
    /// Time between progress notifications.
    pub watch_progress_interval: Duration,
    /// Lowest level logged.
    pub log_level: Level,
    /// How log lines look.
    pub log_format: Format,
    /// Request threads.
    pub threads: usize,
    /// Do not sync the log.
    pub unsafe_no_fsync: bool,
    /// What to warn about once logging is up.
    pub warnings: Vec<String>,
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

/// A value that cannot be read: usage, exit 2, as Go's flags do.
fn invalid<T>(flag: &str, value: &str, why: impl std::fmt::Display) -> Result<T, ConfigError> {
    Err(FlagError::Value { flag: flag.into(), value: value.into(), why: why.to_string() }.into())
}

/// A value that can be read but not used: exit 1.
fn unusable<T>(flag: &str, value: &str, why: impl std::fmt::Display) -> Result<T, ConfigError> {
    Err(ConfigError::Value(format!("cannot use {value:?} for --{flag}: {why}")))
}

/// A time of which zero means the default.
fn or_default(period: Duration, default: Duration) -> Duration {
    if period.is_zero() { default } else { period }
}

/// Reads flags and environment.
pub fn parse(
    args: impl IntoIterator<Item = String>,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Asked, ConfigError> {
    let mut values = flags::parse(args, env)?;
    if values.get("help") == "true" {
        return Ok(Asked::Help);
    }
    if values.get("version") == "true" {
        return Ok(Asked::Version);
    }
    gates::check(&mut values)?;
    let name = values.get("name").to_string();
    let number = |flag: &str, low: i64, high: i64| -> Result<i64, ConfigError> {
        let text = values.get(flag);
        match text.parse::<i64>() {
            Ok(number) if (low..=high).contains(&number) => Ok(number),
            Ok(number) if low == 0 && number < 0 => invalid(flag, text, "parse error"),
            Ok(_) => unusable(flag, text, format_args!("must be in {low}..={high}")),
            Err(_) => invalid(flag, text, "parse error"),
        }
    };
    let heartbeat_ms = number("heartbeat-interval", 1, 50_000)?;
    let election_ms = number("election-timeout", 1, 50_000)?;
    if election_ms < 5 * heartbeat_ms {
        let why = format!(
            "--election-timeout[{election_ms}ms] should be at least as 5 times as --heartbeat-interval[{heartbeat_ms}ms]"
        );
        return Err(ConfigError::Value(why));
    }
    let mut listen_client = url::listen("listen-client-urls", values.get("listen-client-urls"))?;
    if values.is_given("listen-client-http-urls") {
        listen_client.extend(url::listen("listen-client-http-urls", values.get("listen-client-http-urls"))?);
    }
    let listen_peer = url::listen_peer("listen-peer-urls", values.get("listen-peer-urls"))?;
    if values.is_given("listen-client-urls") && !values.is_given("advertise-client-urls") {
        return Err(ConfigError::Value(
            "--advertise-client-urls is required when --listen-client-urls is set explicitly".into(),
        ));
    }
    let advertise_client_urls = url::list("advertise-client-urls", values.get("advertise-client-urls"))?;
    let advertise_peer_urls = url::peer_list("initial-advertise-peer-urls", values.get("initial-advertise-peer-urls"))?;
    let period = |flag: &str| {
        let text = values.get(flag);
        duration::parse(text).map_or_else(|| invalid(flag, text, "must be a duration like 100ms"), Ok)
    };
    let discovery = discovery::discovery(&values, &period)?;
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
    let join_existing = match values.get("initial-cluster-state") {
        "new" => false,
        "existing" => true,
        other => return invalid("initial-cluster-state", other, "must be new or existing"),
    };
    let retention = values.get("auto-compaction-retention");
    let auto_compaction = match values.get("auto-compaction-mode") {
        "periodic" => match duration::hours_or_duration(retention) {
            Some(Duration::ZERO) => AutoCompaction::Off,
            Some(period) => AutoCompaction::Periodic(period),
            None => return unusable("auto-compaction-retention", retention, "must be hours or a duration like 30m"),
        },
        "revision" => match number("auto-compaction-retention", 0, i64::MAX)? {
            0 => AutoCompaction::Off,
            revisions => AutoCompaction::Revisions(revisions),
        },
        other => return unusable("auto-compaction-mode", other, "must be periodic or revision"),
    };
    let level = values.get("log-level");
    let format = values.get("log-format");
    let threads = match number("threads", 0, 1024)? {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        threads => threads as usize,
    };
    let data_dir = match values.get("data-dir") {
        "" => PathBuf::from(format!("{name}.etcd")),
        dir => PathBuf::from(dir),
    };
    Ok(Asked::Serve(Box::new(Config {
        data_dir,
        wal_dir: Some(values.get("wal-dir")).filter(|dir| !dir.is_empty()).map(PathBuf::from),
        listen_client,
        listen_peer,
        advertise_client_urls,
        advertise_peer_urls,
        initial_cluster,
        join_existing,
        force_new_cluster: values.get("force-new-cluster") == "true",
        // Founding members that find each other by a token are told apart by it too.
        cluster_token: match &discovery {
            Some(discovery) => discovery.token.clone(),
            None => values.get("initial-cluster-token").to_string(),
        },
        discovery,
        srv,
        election_tick_advance: values.get("initial-election-tick-advance") == "true",
        strict_reconfig: values.get("strict-reconfig-check") == "true",
        max_learners: number("max-learners", 0, i32::MAX as i64)? as usize,
        lease_checkpoint: gates::is_on(&values, gates::LEASE_CHECKPOINT),
        raft_read_timeout: period("raft-read-timeout")?.max(PEER_TIMEOUT_MIN),
        raft_write_timeout: period("raft-write-timeout")?.max(PEER_TIMEOUT_MIN),
        snapshot_count: match number("snapshot-count", 0, i64::MAX)? {
            0 => 10_000,
            count => count as u64,
        },
        catchup_entries: number("snapshot-catchup-entries", 0, i64::MAX)? as u64,
        heartbeat: Duration::from_millis(heartbeat_ms as u64),
        election_timeout: Duration::from_millis(election_ms as u64),
        pre_vote: values.get("pre-vote") == "true",
        auto_compaction,
        quota_bytes: number("quota-backend-bytes", i64::MIN, i64::MAX)?,
        max_txn_ops: number("max-txn-ops", 1, u32::MAX as i64)? as usize,
        max_request_bytes: number("max-request-bytes", 1, i32::MAX as i64 - api::limits::GRPC_OVERHEAD_BYTES as i64)?
            as usize,
        max_concurrent_streams: match number("max-concurrent-streams", 0, u32::MAX.into())? {
            0 => api::limits::CONCURRENT_STREAMS_MAX,
            streams => streams as u32,
        },
        keepalive_min_time: period("grpc-keepalive-min-time")?,
        keepalive_interval: or_default(period("grpc-keepalive-interval")?, Duration::from_secs(2 * 3600)),
        keepalive_timeout: or_default(period("grpc-keepalive-timeout")?, Duration::from_secs(20)),
        max_wals: match number("max-wals", 0, 1 << 20)? {
            0 => usize::MAX,
            segments => segments as usize,
        },
        warning_apply: period("warning-apply-duration")?,
        watch_progress_interval: match period("watch-progress-notify-interval")? {
            Duration::ZERO => Duration::from_secs(600),
            interval => interval.max(Duration::from_millis(100)),
        },
        log_level: Level::parse(level).map_or_else(|| invalid("log-level", level, "no such level"), Ok)?,
        log_format: Format::parse(format)
            .map_or_else(|| unusable("log-format", format, "must be json or console"), Ok)?,
        threads,
        unsafe_no_fsync: values.get("unsafe-no-fsync") == "true",
        warnings: values.warnings,
        name,
    })))
}

impl Config {
    /// Ticks of [`Config::heartbeat`] without a leader before an election.
    pub fn election_ticks(&self) -> usize {
        (self.election_timeout.as_millis() / self.heartbeat.as_millis()) as usize
    }

    /// The shortest time to live of a lease in seconds: one and a half election timeouts, rounded up.
    pub fn lease_ttl_seconds_min(&self) -> i64 {
        let ticks = (3 * self.election_ticks()).div_ceil(2) as u128;
        (ticks * self.heartbeat.as_millis()).div_ceil(1000) as i64
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

    fn config(args: &[&str]) -> Result<Config, ConfigError> {
        match parse(args.iter().map(|arg| arg.to_string()), [])? {
            Asked::Serve(config) => Ok(*config),
            _ => panic!("asked to serve"),
        }
    }

    #[test]
    fn defaults_are_etcds() {
        let config = config(&[]).expect("defaults are valid");
        assert_eq!(config.data_dir, PathBuf::from("default.etcd"));
        assert_eq!(config.election_ticks(), 10);
        assert_eq!(config.lease_ttl_seconds_min(), 2);
        assert_eq!(config.request_timeout(), Duration::from_secs(7));
        assert!(config.pre_vote && config.strict_reconfig && config.election_tick_advance && !config.force_new_cluster);
        assert_eq!((config.keepalive_min_time, config.keepalive_timeout), (5 * SECOND, 20 * SECOND));
        assert_eq!((config.max_learners, config.raft_read_timeout), (1, Duration::from_secs(5)));
        assert_eq!(config.initial_cluster, [("default".to_string(), vec!["http://localhost:2380".to_string()])]);
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
        ] {
            assert!(config(args).is_err(), "{args:?}");
        }
    }
}
