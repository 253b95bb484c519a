//! The configuration of a member: flags, environment and file, checked and typed.

mod audit;
mod auth;
mod build;
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
#[cfg(test)]
mod tests;
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
    build::build(values).map(|config| Asked::Serve(Box::new(config)))
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

    /// What clients may have held of requests that are not whole: some of the longest in any case.
    pub(crate) fn incomplete_bytes_max(&self) -> u64 {
        host::incomplete_bytes_max().max(16 * self.max_request_bytes as u64)
    }

    /// How long a request may wait for consensus.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(5) + 2 * self.election_timeout
    }
}
