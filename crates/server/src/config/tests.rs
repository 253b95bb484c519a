//! What configurations are made of which flags, and what is refused.

use super::build::ZONE_LETTERS_MAX;
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
    assert_eq!(config(&["--max-request-bytes=536870912"]).map(|config| config.max_request_bytes).ok(), Some(512 << 20));
    let error = config(&["--max-request-bytes=536870913"]).expect_err("too large").to_string();
    assert!(error.contains("max-request-bytes") && error.contains("must be in 1..=536870912"), "{error}");
}

#[test]
fn flags_of_the_backend_are_taken_in_silence() {
    let flags = ["--backend-batch-interval=1s", "--backend-batch-limit=10", "--backend-bbolt-freelist-type=array"];
    assert_eq!(config(&flags).map(|config| config.warnings).ok(), Some(Vec::new()));
    assert!(config(&["--backend-batch-limit=x"]).is_err());
    assert_eq!(config(&["--bootstrap-defrag-threshold-megabytes=1"]).map(|config| config.warnings.len()).ok(), Some(1));
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
