//! The command line, with the rules of Go's `flag` package: `-x` is `--x`, `--x=v` or `--x v`, booleans only `--x` or
//! `--x=v`, repeats allowed and the last one wins; an environment variable `ETCD_X` stands in for a flag that is not given.

use super::ConfigError;
use std::collections::BTreeMap;

/// One flag of the server.
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) default: &'static str,
    pub(super) help: &'static str,
    pub(super) boolean: bool,
}

const fn flag(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag { name, default, help, boolean: false }
}

const fn switch(name: &'static str, help: &'static str) -> Flag {
    Flag { name, default: "false", help, boolean: true }
}

const fn on(name: &'static str, help: &'static str) -> Flag {
    Flag { name, default: "true", help, boolean: true }
}

/// Every flag, in the order the usage text shows them.
pub(super) const FLAGS: &[Flag] = &[
    flag("name", "default", "name of this member, as in --initial-cluster"),
    flag("data-dir", "", "directory of the data (default \"${name}.etcd\")"),
    flag("wal-dir", "", "directory of the log, when it is to have a disk of its own"),
    flag("snapshot-count", "10000", "applied entries after which a checkpoint is written"),
    flag("heartbeat-interval", "100", "milliseconds between heartbeats"),
    flag("election-timeout", "1000", "milliseconds without a leader before an election"),
    flag("listen-peer-urls", "http://localhost:2380", "comma-separated URLs to listen on for peers"),
    flag("listen-client-urls", "http://localhost:2379", "comma-separated URLs to listen on for clients"),
    flag("max-wals", "5", "log segments that are kept at least"),
    flag("quota-backend-bytes", "0", "live bytes at which writes are refused (0: 2 GiB, negative: no limit)"),
    flag("max-txn-ops", "128", "operations in one transaction"),
    flag("max-request-bytes", "1572864", "bytes of one request"),
    flag("max-concurrent-streams", "100000", "streams one client connection may have open (0: the default)"),
    flag("grpc-keepalive-min-time", "5s", "clients that ping more often are sent away"),
    flag("grpc-keepalive-interval", "2h", "silence of a client after which it is pinged (0: the default)"),
    flag("grpc-keepalive-timeout", "20s", "time a client has to answer that ping (0: the default)"),
    flag(
        "initial-advertise-peer-urls",
        "http://localhost:2380",
        "comma-separated URLs that peers reach this member at",
    ),
    flag(
        "initial-cluster",
        "",
        "founding members, name=URL comma-separated (default \"${name}=http://localhost:2380\")",
    ),
    flag("initial-cluster-state", "new", "new or existing"),
    flag("initial-cluster-token", "etcd-cluster", "token that tells clusters with the same URLs apart"),
    on("initial-election-tick-advance", "a member that starts does not wait a whole election timeout for a leader"),
    switch(
        "force-new-cluster",
        "start as the only member from this data directory: the other members are removed for good",
    ),
    on("strict-reconfig-check", "refuse changes of the members that would cost the quorum"),
    flag("max-learners", "1", "learners the cluster may have"),
    flag("raft-read-timeout", "5s", "time without a byte after which a connection from a peer is given up"),
    flag("raft-write-timeout", "5s", "time without progress after which a connection to a peer is given up"),
    flag("discovery-token", "", "name under which the founding members find each other in another cluster"),
    flag("discovery-endpoints", "", "comma-separated endpoints of that other cluster"),
    flag("discovery-dial-timeout", "2s", "time to connect to it"),
    flag("discovery-request-timeout", "5s", "time of one request to it"),
    flag("discovery-keepalive-time", "2s", "time between pings to it"),
    flag("discovery-keepalive-timeout", "6s", "time it has to answer a ping"),
    on("discovery-insecure-transport", "talk to it without TLS"),
    switch("discovery-insecure-skip-tls-verify", "do not check its certificate"),
    flag("discovery-cert", "", "client certificate for it"),
    flag("discovery-key", "", "key of that certificate"),
    flag("discovery-cacert", "", "certificate authority of its certificate"),
    flag("discovery-user", "", "user[:password] in it"),
    flag("discovery-password", "", "password in it"),
    flag("discovery-fallback", "exit", "exit"),
    flag("discovery-srv", "", "DNS domain whose SRV records name the founding members"),
    flag("discovery-srv-name", "", "suffix of the service name in those records"),
    flag("advertise-client-urls", "http://localhost:2379", "comma-separated URLs that clients reach this member at"),
    flag("auto-compaction-mode", "periodic", "periodic or revision"),
    flag(
        "auto-compaction-retention",
        "0",
        "history kept by auto compaction: a duration (bare number: hours) or revisions; 0: all",
    ),
    flag("snapshot-catchup-entries", "5000", "entries kept in memory behind a checkpoint for slow followers"),
    flag("warning-apply-duration", "100ms", "applies slower than this are logged"),
    flag("watch-progress-notify-interval", "10m", "time between progress notifications of idle watches"),
    flag("log-level", "info", "debug, info, warn, error, panic or fatal"),
    flag("log-format", "json", "json or console"),
    flag("threads", "0", "request threads (0: one per core)"),
    switch("unsafe-no-fsync", "do not sync the log: acknowledged writes are lost on a power cut"),
    on("pre-vote", "ask for votes before raising the term"),
    flag("feature-gates", "", "comma-separated Gate=true|false; what has no effect is warned of"),
    flag(
        "listen-client-http-urls",
        "",
        "comma-separated URLs to listen on for clients in addition, HTTP and gRPC alike",
    ),
    flag("backend-bbolt-freelist-type", "map", "no effect"),
    flag("backend-batch-interval", "0", "no effect"),
    flag("backend-batch-limit", "0", "no effect"),
    flag("compaction-batch-limit", "0", "no effect: compaction never holds anything up"),
    flag("compaction-sleep-interval", "0", "no effect"),
    flag("bootstrap-defrag-threshold-megabytes", "0", "no effect: space comes back by itself"),
    switch("memory-mlock", "no effect"),
    switch("version", "print the version and exit"),
    switch("help", "print this text and exit"),
];

/// The values that were given, by flag name.
#[derive(Debug, Default)]
pub(super) struct Values {
    given: BTreeMap<&'static str, String>,
    /// What is worth a warning once logging is up.
    pub(super) warnings: Vec<String>,
}

/// Why a command line is refused. The caller prints it with the usage text and exits with 2.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No such flag.
    #[error("flag provided but not defined: -{0}")]
    Unknown(String),
    /// Not a flag at all.
    #[error("bad flag syntax: {0}")]
    Syntax(String),
    /// A flag that takes a value stands last without one.
    #[error("flag needs an argument: -{0}")]
    Missing(&'static str),
    /// A value that cannot be read.
    #[error("invalid value {value:?} for flag -{flag}: {why}")]
    Value {
        /// The flag.
        flag: String,
        /// What was given.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A boolean that is neither true nor false.
    #[error("invalid boolean value {value:?} for -{flag}: parse error")]
    Boolean {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
    },
}

impl Values {
    pub(super) fn get(&self, name: &str) -> &str {
        match self.given.get(name) {
            Some(value) => value,
            None => FLAGS.iter().find(|flag| flag.name == name).map_or("", |flag| flag.default),
        }
    }

    pub(super) fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }
}

pub(super) fn parse(
    args: impl IntoIterator<Item = String>,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Values, ConfigError> {
    let mut values = Values::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let stripped = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'));
        let Some(body) = stripped else { return Err(ConfigError::Value(format!("'{arg}' is not a valid flag"))) };
        if body.is_empty() || body.starts_with(['-', '=']) {
            return Err(FlagError::Syntax(arg).into());
        }
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (body, None),
        };
        let name = if name == "h" { "help" } else { name };
        let Some(flag) = FLAGS.iter().find(|flag| flag.name == name) else {
            return Err(FlagError::Unknown(name.to_string()).into());
        };
        let value = match (flag.boolean, inline) {
            (true, None) => "true".to_string(),
            (true, Some(value)) => boolean(flag, value)?,
            (false, Some(value)) => value,
            (false, None) => args.next().ok_or(FlagError::Missing(flag.name))?,
        };
        values.given.insert(flag.name, value);
    }
    for (variable, value) in env {
        let Some(suffix) = variable.strip_prefix("ETCD_") else { continue };
        let name = suffix.to_ascii_lowercase().replace('_', "-");
        match FLAGS.iter().find(|flag| flag.name == name && flag.name != "help" && flag.name != "version") {
            _ if value.is_empty() => {}
            None if suffix == "UNSUPPORTED_ARCH" || suffix == "VERIFY" => {}
            None => values.warnings.push(format!("unrecognized environment variable: {variable}={value}")),
            // Two answers to one question: etcd 3.7 refuses to choose, and so do we.
            Some(flag) if values.is_given(flag.name) => {
                return Err(ConfigError::Value(format!(
                    "conflicting environment variable {variable} is shadowed by corresponding command-line flag --{name} (either \
                     unset environment variable or disable flag))"
                )));
            }
            Some(flag) => {
                let value = if flag.boolean { boolean(flag, value)? } else { value };
                values.given.insert(flag.name, value);
            }
        }
    }
    Ok(values)
}

fn boolean(flag: &Flag, value: String) -> Result<String, FlagError> {
    match value.as_str() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok("true".into()),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok("false".into()),
        _ => Err(FlagError::Boolean { flag: flag.name, value }),
    }
}

/// The usage text.
pub fn usage() -> String {
    let mut text = String::from(
        "Usage:\n\n  cairn serve [flags]      start a member (also: cairn [flags], or under the name etcd)\n  \
         cairn cluster            start a cluster on this machine, for trying out (cairn cluster --help)\n  \
         cairn version            show the version\n\nFlags (each also as ETCD_<NAME>):\n\n",
    );
    for flag in FLAGS {
        let value = match (flag.boolean, flag.default) {
            (true, "false") => String::new(),
            (true, default) => format!(" (default {default})"),
            (false, default) => format!(" '{default}'"),
        };
        text.push_str(&format!("  --{}{value}\n        {}\n", flag.name, flag.help));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_args(args: &[&str]) -> Result<Values, ConfigError> {
        parse(args.iter().map(|arg| arg.to_string()), [])
    }

    fn refused(args: &[&str]) -> Option<FlagError> {
        match parse_args(args) {
            Err(ConfigError::Flag(error)) => Some(error),
            _ => None,
        }
    }

    #[test]
    fn go_rules() {
        let values = parse_args(&["-name", "a", "--name=b", "--unsafe-no-fsync", "--pre-vote=f"]).expect("valid");
        assert_eq!(values.get("name"), "b", "the last one wins");
        assert_eq!((values.get("unsafe-no-fsync"), values.get("pre-vote")), ("true", "false"));
        assert_eq!(values.get("snapshot-count"), "10000");
        assert_eq!(refused(&["--nme=a"]), Some(FlagError::Unknown("nme".into())));
        assert_eq!(refused(&["--name"]), Some(FlagError::Missing("name")));
        assert!(matches!(parse_args(&["data"]), Err(ConfigError::Value(_))));
        assert!(matches!(refused(&["--pre-vote=maybe"]), Some(FlagError::Boolean { .. })));
    }

    #[test]
    fn environment_stands_in() {
        let env = [("ETCD_DATA_DIR", "d"), ("ETCD_NONE", "x"), ("PATH", "y")];
        let env = env.map(|(name, value)| (name.to_string(), value.to_string()));
        let values = parse(["--name=flag".to_string()], env.clone()).expect("valid");
        assert_eq!((values.get("name"), values.get("data-dir")), ("flag", "d"));
        assert_eq!(values.warnings.len(), 1);
        assert!(matches!(parse(["--data-dir=e".to_string()], env), Err(ConfigError::Value(_))));
    }
}
