//! The table of all flags of the server: name, kind, default and help text.

/// What a flag's value is. Checked where it is read, so that the first wrong flag is the one that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any text.
    Text,
    /// True or false; no value means true.
    Switch,
    /// A whole number in this range.
    Number(i128, i128),
    /// A Go duration. In a configuration file: nanoseconds.
    Period,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Comma-separated URLs.
    Urls,
    /// Comma-separated words. In a configuration file also a list.
    Words,
    /// Feature gates.
    Gates,
    /// Was a flag once; read and ignored.
    Ignored,
}

/// One flag of the server.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) default: &'static str,
    pub(super) help: &'static str,
}

const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, default, help }
}

const fn text(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    flag(name, Kind::Text, default, help)
}

const fn words(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    flag(name, Kind::Words, default, help)
}

const fn urls(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    flag(name, Kind::Urls, default, help)
}

const fn switch(name: &'static str, help: &'static str) -> Flag {
    flag(name, Kind::Switch, "false", help)
}

const fn on(name: &'static str, help: &'static str) -> Flag {
    flag(name, Kind::Switch, "true", help)
}

const fn unsigned(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    flag(name, Kind::Number(0, u64::MAX as i128), default, help)
}

const fn signed(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    flag(name, Kind::Number(i64::MIN as i128, i64::MAX as i128), default, help)
}

const fn period(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    flag(name, Kind::Period, default, help)
}

/// The flags in the order the usage text shows them, under its headings.
pub(super) const GROUPS: &[(&str, &[Flag])] = &[
    ("Member", MEMBER),
    ("Clustering", CLUSTERING),
    ("Security", SECURITY),
    ("Auth", AUTH),
    ("Profiling and monitoring", MONITORING),
    ("Logging", LOGGING),
    ("Distributed tracing", TRACING),
    ("Features", FEATURES),
    ("Unsafe", UNSAFE),
    ("Cairn", OWN),
    ("Without effect", WITHOUT_EFFECT),
];

const MEMBER: &[Flag] = &[
    text(
        "config-file",
        "",
        "YAML or JSON file with all of the configuration; every other flag and variable is ignored then",
    ),
    text("name", "default", "name of this member, as in --initial-cluster"),
    text("data-dir", "", "directory of the data (default \"${name}.etcd\")"),
    text("wal-dir", "", "directory of the log, when it is to have a disk of its own"),
    unsigned("snapshot-count", "10000", "applied entries after which a checkpoint is written"),
    unsigned("heartbeat-interval", "100", "milliseconds between heartbeats"),
    unsigned("election-timeout", "1000", "milliseconds without a leader before an election"),
    on("initial-election-tick-advance", "a member that starts does not wait a whole election timeout for a leader"),
    urls("listen-peer-urls", "http://localhost:2380", "comma-separated URLs to listen on for peers"),
    urls("listen-client-urls", "http://localhost:2379", "comma-separated URLs to listen on for clients"),
    urls(
        "listen-client-http-urls",
        "",
        "comma-separated URLs to listen on for HTTP only, which --listen-client-urls then leaves to them",
    ),
    unsigned("max-wals", "5", "log segments that are kept at least (0: all)"),
    switch("memory-mlock", "keep all of the process in memory"),
    signed("quota-backend-bytes", "0", "live bytes at which writes are refused (0: 2 GiB, negative: no limit)"),
    unsigned("max-txn-ops", "128", "operations in one transaction"),
    unsigned("max-request-bytes", "1572864", "bytes of one request (512 MiB at most)"),
    flag(
        "max-concurrent-streams",
        Kind::Number(0, u32::MAX as i128),
        "100000",
        "streams one client connection may have open (0: the default)",
    ),
    period("grpc-keepalive-min-time", "5s", "clients that ping more often are sent away"),
    period("grpc-keepalive-interval", "2h", "silence of a client after which it is pinged (0: the default)"),
    period("grpc-keepalive-timeout", "20s", "time a client has to answer that ping (0: the default)"),
    switch("socket-reuse-port", "let several processes listen at the same port (SO_REUSEPORT)"),
    switch("socket-reuse-address", "listen at a port that old connections still hold (SO_REUSEADDR): done in any case"),
    on("enable-grpc-gateway", "answer JSON over HTTP on the client port"),
    period("raft-read-timeout", "5s", "time without a byte after which a connection from a peer is given up"),
    period("raft-write-timeout", "5s", "time without progress after which a connection to a peer is given up"),
    flag("feature-gates", Kind::Gates, "", "comma-separated Gate=true|false"),
];

const CLUSTERING: &[Flag] = &[
    urls(
        "initial-advertise-peer-urls",
        "http://localhost:2380",
        "comma-separated URLs that peers reach this member at",
    ),
    text(
        "initial-cluster",
        "",
        "founding members, name=URL comma-separated (default \"${name}=http://localhost:2380\")",
    ),
    flag("initial-cluster-state", Kind::Choice(&["new", "existing"]), "new", "new or existing"),
    text("initial-cluster-token", "etcd-cluster", "token that tells clusters with the same URLs apart"),
    urls("advertise-client-urls", "http://localhost:2379", "comma-separated URLs that clients reach this member at"),
    text("discovery-token", "", "name under which the founding members find each other in another cluster"),
    words("discovery-endpoints", "", "comma-separated endpoints of that other cluster"),
    period("discovery-dial-timeout", "2s", "time to connect to it"),
    period("discovery-request-timeout", "5s", "time of one request to it"),
    period("discovery-keepalive-time", "2s", "time between pings to it"),
    period("discovery-keepalive-timeout", "6s", "time it has to answer a ping"),
    on("discovery-insecure-transport", "talk to it without TLS"),
    switch("discovery-insecure-skip-tls-verify", "do not check its certificate"),
    text("discovery-cert", "", "client certificate for it"),
    text("discovery-key", "", "key of that certificate"),
    text("discovery-cacert", "", "certificate authority of its certificate"),
    text("discovery-user", "", "user[:password] in it"),
    text("discovery-password", "", "password in it"),
    flag("discovery-fallback", Kind::Choice(&["exit", "proxy"]), "exit", "exit"),
    text("discovery-srv", "", "DNS domain whose SRV records name the founding members"),
    text("discovery-srv-name", "", "suffix of the service name in those records"),
    on("strict-reconfig-check", "refuse configuration changes that would cost the quorum"),
    on("pre-vote", "ask for votes before raising the term"),
    text(
        "auto-compaction-retention",
        "0",
        "history kept by auto compaction: a duration (bare number: hours) or revisions; 0: all",
    ),
    text("auto-compaction-mode", "periodic", "periodic or revision"),
    period("compaction-sleep-interval", "0", "pause before each slice of the work that a compaction leaves"),
    signed("compaction-batch-limit", "0", "versions of such a slice; 0: as many as 4 MiB of work has"),
];

const SECURITY: &[Flag] = &[
    text("cert-file", "", "certificate shown to clients"),
    text("key-file", "", "key of that certificate"),
    text(
        "client-cert-file",
        "",
        "certificate the gateway shows to this member, when clients must have one (default: --cert-file)",
    ),
    text("client-key-file", "", "key of that certificate"),
    switch("client-cert-auth", "clients must have a certificate that --trusted-ca-file has signed"),
    text("client-crl-file", "", "revoked client certificates"),
    words("client-cert-allowed-hostname", "", "comma-separated names, one of which a client certificate must be for"),
    text("trusted-ca-file", "", "certificate authorities of clients"),
    switch("auto-tls", "clients talk TLS with a certificate made at start"),
    text("peer-cert-file", "", "certificate shown to peers that connect"),
    text("peer-key-file", "", "key of that certificate"),
    text("peer-client-cert-file", "", "certificate shown to peers that are connected to (default: --peer-cert-file)"),
    text("peer-client-key-file", "", "key of that certificate"),
    switch("peer-client-cert-auth", "peers must have a certificate that --peer-trusted-ca-file has signed"),
    text("peer-trusted-ca-file", "", "certificate authorities of peers"),
    switch("peer-auto-tls", "peers talk TLS with a certificate made at start"),
    text("peer-crl-file", "", "revoked peer certificates"),
    words("peer-cert-allowed-cn", "", "comma-separated common names, one of which a peer's certificate must have"),
    words("peer-cert-allowed-hostname", "", "comma-separated names, one of which a peer's certificate must be for"),
    switch(
        "peer-skip-client-san-verification",
        "do not check that a peer's certificate is for the address it comes from",
    ),
    unsigned("self-signed-cert-validity", "1", "years that certificates made at start are valid"),
    words("cipher-suites", "", "comma-separated cipher suites, for clients and peers"),
    text("tls-min-version", "TLS1.2", "TLS1.2 or TLS1.3"),
    text("tls-max-version", "", "TLS1.2 or TLS1.3"),
    flag("cors", Kind::Words, "*", "comma-separated origins that a browser may ask from"),
    words("host-whitelist", "*", "comma-separated host names that HTTP requests without TLS may name"),
];

const AUTH: &[Flag] = &[
    text(
        "auth-token",
        "simple",
        "kind of the tokens: simple, or jwt with its options (jwt,sign-method=...,pub-key=...,priv-key=...,ttl=...)",
    ),
    unsigned("bcrypt-cost", "10", "cost of hashing a password (4 to 31)"),
    unsigned("auth-token-ttl", "300", "seconds that a simple token lives without use"),
];

const MONITORING: &[Flag] = &[
    switch("enable-pprof", "answer under /debug/pprof/ on the client port"),
    text("metrics", "basic", "basic, or extensive: with histograms of each method"),
    urls(
        "listen-metrics-urls",
        "",
        "comma-separated URLs to listen on for /metrics, /health, /livez and /readyz alone",
    ),
];

const LOGGING: &[Flag] = &[
    text("logger", "zap", "zap"),
    words("log-outputs", "default", "comma-separated: default or stderr, stdout, systemd/journal, files"),
    flag(
        "log-level",
        Kind::Choice(&["debug", "info", "warn", "error", "panic", "fatal"]),
        "info",
        "debug, info, warn, error, panic or fatal",
    ),
    text("log-format", "json", "json or console"),
    switch("enable-log-rotation", "begin a new log file when the one in --log-outputs is full"),
    text(
        "log-rotation-config-json",
        r#"{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}"#,
        "when, and what becomes of old ones: size in MB, age in days and number (0: no limit), local time in names, gzip",
    ),
    text(
        "audit-log",
        "",
        "file (or stderr) that gets a JSON line for each write, login, and request of operators: who, from where, what, how it ended",
    ),
    switch("audit-log-reads", "reads are in the audit log too"),
    period("warning-apply-duration", "100ms", "applies slower than this are logged"),
    period("warning-unary-request-duration", "300ms", "requests slower than this are logged (0: the default)"),
];

const TRACING: &[Flag] = &[
    switch("enable-distributed-tracing", "send OpenTelemetry traces"),
    text("distributed-tracing-address", "localhost:4317", "collector they are sent to"),
    text("distributed-tracing-service-name", "etcd", "name of the service in them"),
    text("distributed-tracing-instance-id", "", "name of this member in them"),
    signed("distributed-tracing-sampling-rate", "0", "traces per million requests"),
];

const FEATURES: &[Flag] = &[
    period("corrupt-check-time", "0s", "time between comparisons of the members' data (0: none)"),
    period(
        "compact-hash-check-time",
        "1m",
        "time between comparisons of the members' hashes of compactions (feature gate CompactHashCheck)",
    ),
    period(
        "watch-progress-notify-interval",
        "10m",
        "time between progress notifications of idle watches (0: the default)",
    ),
    signed("max-learners", "1", "learners the cluster may have"),
    period("downgrade-check-time", "5s", "time between looks whether a downgrade is done"),
    unsigned(
        "snapshot-catchup-entries",
        "5000",
        "entries kept in memory for slow followers; if it is not given, more for those that answer",
    ),
];

const UNSAFE: &[Flag] = &[
    switch(
        "force-new-cluster",
        "start as the only member from this data directory: the other members are removed for good",
    ),
    switch(
        "unsafe-ignore-lost-log",
        "go on although a leader has proven that the log lost what was acknowledged: acknowledged writes may be lost",
    ),
    switch("unsafe-no-fsync", "do not sync the log: acknowledged writes are lost on a power cut"),
];

const OWN: &[Flag] = &[
    switch(
        "adopt-etcd-data",
        "take over the data of a stopped etcd 3.5 to 3.7 in --data-dir; its files are kept there under etcd-backup-TIME",
    ),
    switch("observer", "be no member: take what --follow has, serve what members serve, and never vote"),
    urls("follow", "", "comma-separated peer URLs of members or observers, one of which an observer follows"),
    flag("threads", Kind::Number(0, 1024), "0", "request threads (0: one per core)"),
    text("zone", "", "where this member runs, for clients that prefer members of their own zone; at most 128 letters"),
    unsigned(
        "max-client-connections",
        "0",
        "connections that clients may have open (0: three quarters of the open files that the system allows, and no more than one for 1 MiB of memory)",
    ),
    unsigned(
        "max-held-bytes",
        "536870912",
        "bytes of answers and of unfinished requests that all clients together may have this member hold; without it a quarter of the memory of the machine or its control group, if that is less",
    ),
    unsigned(
        "memory-budget",
        "0",
        "bytes of memory, without files and what clients hold, at which this member raises the NOSPACE alarm (0: by what the machine or its control group has)",
    ),
    unsigned(
        "max-watches",
        "1000000",
        "watches of all clients; each kilobyte of a watched key counts as one more (where it is not set, no more than one for 16 KiB of memory)",
    ),
    unsigned(
        "max-watches-per-connection",
        "250000",
        "watches of one client connection, counted in the same way (where neither is set, no more than a quarter of all)",
    ),
    unsigned(
        "client-share",
        "0",
        "percent of the request threads' time that one user, or one address without users, may take while others call, too (0: all of it)",
    ),
    unsigned("max-header-bytes", "65536", "bytes of the headers of one request"),
    period("client-handshake-timeout", "20s", "time for the first bytes of a connection, TLS included"),
    period("client-header-timeout", "20s", "time for the rest of headers that have begun"),
    period("client-body-timeout", "20s", "time for the next kilobyte of a request that has begun"),
    period("client-write-timeout", "20s", "time for the next byte of an answer to be taken"),
    words(
        "client-rate-limits",
        "",
        "what one connection may send in a second, name=number: idle_frames, resets, forced_resets, tiny_data, window_updates",
    ),
    words(
        "queue-limits",
        "",
        "requests that may wait, class=number: reads, writes, auth, leases, upkeep, members, slow, forwards, shares",
    ),
    text(
        "io-priority",
        "",
        "priority of the log's thread at the disk: realtime:LEVEL, best-effort:LEVEL (0 highest, 7 lowest) or idle",
    ),
    words("client-cert-allowed-cn", "", "comma-separated common names, one of which a client certificate must have"),
    switch("version", "print the version and exit"),
    switch("help", "print this text and exit"),
];

/// Flags that tune what this server does not have. They are read and checked.
pub(super) const WITHOUT_EFFECT: &[Flag] = &[
    unsigned("max-snapshots", "5", "one state is kept"),
    text("backend-bbolt-freelist-type", "map", "no such list"),
    period("backend-batch-interval", "0", "no such batches"),
    signed("backend-batch-limit", "0", "no such batches"),
    unsigned("bootstrap-defrag-threshold-megabytes", "0", "Skipping defragmentation, since space comes back by itself"),
    flag(
        "v2-deprecation",
        Kind::Choice(&["write-only", "write-only-skip-check", "write-only-drop-data", "gone"]),
        "write-only",
        "no v2 store",
    ),
];

/// Those of them that say nothing about what is stored or promised: many units and charts carry them, and nobody has to do anything.
pub(super) const SILENT: [&str; 3] = ["backend-bbolt-freelist-type", "backend-batch-interval", "backend-batch-limit"];

/// Flags of etcd 2, which guides still carry.
const IGNORED: [Flag; 15] = [
    ignored("cluster-active-size"),
    ignored("cluster-remove-delay"),
    ignored("cluster-sync-interval"),
    ignored("config"),
    ignored("force"),
    ignored("max-result-buffer"),
    ignored("max-retry-attempts"),
    ignored("peer-heartbeat-interval"),
    ignored("peer-election-timeout"),
    ignored("retry-interval"),
    ignored("snapshot"),
    ignored("v"),
    ignored("vv"),
    ignored("test.coverprofile"),
    ignored("test.outputdir"),
];

const fn ignored(name: &'static str) -> Flag {
    flag(name, Kind::Ignored, "", "")
}

/// The flag of this name, shown in the usage text or not.
pub(super) fn find(name: &str) -> Option<&'static Flag> {
    shown().chain(&IGNORED).find(|flag| flag.name == name)
}

/// Every flag of the usage text.
pub(super) fn shown() -> impl Iterator<Item = &'static Flag> {
    GROUPS.iter().flat_map(|(_, flags)| flags.iter())
}

impl Flag {
    /// Whether the flag needs no value.
    pub(super) fn is_switch(&self) -> bool {
        matches!(self.kind, Kind::Switch | Kind::Ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The table of `docs/configuration.md`.
    fn documented() -> String {
        let mut text = String::new();
        for (title, flags) in GROUPS {
            text.push_str(&format!("### {title}\n\n| flag | default | |\n|---|---|---|\n"));
            for flag in *flags {
                let default = if flag.default.is_empty() { String::new() } else { format!("`{}`", flag.default) };
                text.push_str(&format!("| `--{}` | {default} | {} |\n", flag.name, flag.help.replace('|', "\\|")));
            }
            text.push('\n');
        }
        text.trim_end().to_string() + "\n"
    }

    /// `WRITE_DOCS=1` writes the table anew.
    #[test]
    fn the_documentation_has_every_flag() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(path).expect("the page is there");
        let (before, table) = page.split_once("## All flags\n\n").expect("the page has the heading");
        if std::env::var_os("WRITE_DOCS").is_some() {
            std::fs::write(path, format!("{before}## All flags\n\n{}", documented())).expect("written");
        } else {
            assert!(table == documented(), "docs/configuration.md is not up to date: run this test with WRITE_DOCS=1");
        }
    }

    #[test]
    fn names_are_unique_and_defaults_valid() {
        let mut names = BTreeSet::new();
        for flag in shown() {
            assert!(names.insert(flag.name), "{}", flag.name);
            assert!(!flag.help.is_empty(), "{}", flag.name);
            if !flag.default.is_empty() {
                assert_eq!(flag.kind.check(flag.default), Ok(()), "{}", flag.name);
            }
        }
        assert!(SILENT.iter().all(|name| WITHOUT_EFFECT.iter().any(|flag| flag.name == *name)));
    }
}
