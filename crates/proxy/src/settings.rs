//! The flags, which are etcd's.

use client::{Endpoint, Security};
use flags::{Command, Flag, Parsed, Program, duration, int, list, switch, text, uint};
use std::path::PathBuf;
use std::time::Duration;

use crate::StartError;
use crate::upkeep::Registration;

const FLAGS: &[Flag] = &[
    text("listen-addr", "127.0.0.1:23790", "host and port to listen at"),
    text("discovery-srv", "", "domain whose SRV records name the members; without records, --endpoints counts"),
    text("discovery-srv-name", "", "what the name of the service ends with in DNS, after a dash"),
    text("metrics-addr", "", "URL of a further listener, for metrics and health alone"),
    switch("insecure-discovery", "take members that DNS names without checking that they answer and are for TLS"),
    list("endpoints", "127.0.0.1:2379", "members to ask"),
    duration("endpoints-auto-sync-interval", "0s", "how often the list of members is asked for; 0 for never"),
    duration(
        "dial-keepalive-time",
        "0s",
        "after this long without anything from a member that was asked something it is pinged; 0 for ten seconds",
    ),
    duration("dial-keepalive-timeout", "20s", "how long the answer to that ping may take"),
    switch("permit-without-stream", "ping members also while nothing is asked"),
    text(
        "advertise-client-url",
        "127.0.0.1:23790",
        "the address that the list of members has; empty for the members themselves",
    ),
    text("resolver-prefix", "", "prefix of the keys under which proxies register themselves"),
    int("resolver-ttl", "0", "seconds after which a proxy that is gone is not registered any more"),
    text("namespace", "", "prefix of all keys, which clients do not see"),
    switch("enable-pprof", "answer under /debug/pprof/"),
    text("data-dir", "default.proxy", "where the certificate of --auto-tls is"),
    int("max-send-bytes", "1572864", "largest request to a member, in bytes"),
    int("max-recv-bytes", "2147483647", "largest answer of a member, in bytes"),
    duration("grpc-keepalive-min-time", "5s", "clients that ping more often are disconnected"),
    duration("grpc-keepalive-interval", "2h0m0s", "after this long without anything from a client it is pinged"),
    duration("grpc-keepalive-timeout", "20s", "how long the answer to that ping may take"),
    text("cert", "", "file of the certificate that is shown to members; without a common name"),
    text("key", "", "file of its key"),
    text("cacert", "", "file of the authorities that vouch for members"),
    switch("insecure-skip-tls-verify", "believe every member"),
    text("cert-file", "", "file of the certificate that is shown to clients"),
    text("key-file", "", "file of its key"),
    text("trusted-ca-file", "", "file of the authorities that must vouch for clients"),
    list("listen-cipher-suites", "", "suites that clients may use with TLS 1.2, by name; empty for all good ones"),
    switch("auto-tls", "without --cert-file: show clients a certificate that is made at the first start"),
    text("client-crl-file", "", "file of clients' certificates that are revoked"),
    uint("self-signed-cert-validity", "1", "years for which the certificate of --auto-tls is valid"),
    text("tls-min-version", "TLS1.2", "TLS1.2 or TLS1.3: the oldest that clients may speak"),
    text("tls-max-version", "", "the same for the newest"),
    switch("experimental-serializable-ordering", "serializable reads never go back behind what was shown before"),
    text(
        "experimental-leasing-prefix",
        "",
        "answer reads of single keys from memory, at most 65536 keys and 64 MiB, while keys with this prefix say so; all writers must use such proxies",
    ),
    switch("experimental-enable-grpc-logging", "write a line for each call"),
    switch("debug", "write lines of level debug"),
    int("max-held-bytes", "536870912", "memory that all clients together may have the proxy hold, in bytes"),
    uint("max-concurrent-streams", "4294967295", "streams that a connection of a client may have open"),
];

/// `grpc-proxy start`.
pub(crate) const PROGRAM: Program = Program {
    name: "grpc-proxy",
    help: "Serves the API by asking members, and shares their watches among clients",
    commands: &[Command {
        name: "start",
        help: "Starts the proxy",
        notes: "Watches of the same keys by clients with the same token share one watch at a member.",
        flags: FLAGS,
    }],
};

/// What a proxy is to do.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) listen: String,
    pub(crate) metrics: Option<(String, bool)>,
    pub(crate) discovery: Option<(String, String, bool)>,
    pub(crate) endpoints: Vec<String>,
    pub(crate) security: Security,
    pub(crate) tls: Option<crate::tls::Files>,
    pub(crate) namespace: String,
    pub(crate) advertised: String,
    pub(crate) registration: Option<Registration>,
    /// Zero for never.
    pub(crate) sync_interval: Duration,
    pub(crate) orders: bool,
    /// With `--experimental-leasing-prefix`.
    pub(crate) leasing_prefix: Option<String>,
    pub(crate) logs_calls: bool,
    pub(crate) send_bytes_max: usize,
    pub(crate) recv_bytes_max: usize,
    pub(crate) dial_keepalive: (Duration, Duration),
    pub(crate) pings_idle: bool,
    pub(crate) held_bytes_max: u64,
    /// The shortest time between pings of clients, when clients are pinged, and how long they may take.
    pub(crate) keepalive: (Duration, Duration, Duration),
    pub(crate) streams_max: u32,
    pub(crate) debug: bool,
    pub(crate) has_profiles: bool,
}

/// How often clients are pinged if 0 was given.
const KEEPALIVE_OF_ZERO: Duration = Duration::from_secs(2 * 3600);
/// How often members are pinged if 0 was given. One that has vanished would keep shared watches silent until it is noticed.
const DIAL_KEEPALIVE_OF_ZERO: Duration = Duration::from_secs(10);
/// The least memory that clients may have the proxy hold: as much as some requests of the largest size.
const HELD_BYTES_MIN: i64 = 16 << 20;

impl Settings {
    /// The settings of a command line.
    pub(crate) fn read(parsed: &Parsed) -> Result<Settings, StartError> {
        let given = |name: &str| Some(parsed.text(name)).filter(|text| !text.is_empty());
        let path = |name: &str| given(name).map(PathBuf::from);
        let bytes = |name: &'static str| match usize::try_from(parsed.int(name)) {
            Ok(bytes) if bytes > 0 => Ok(bytes.min(api::limits::SEND_BYTES_MAX)),
            _ => Err(StartError::Value(format!("--{name} must be positive"))),
        };
        let security = Security {
            cert: path("cert"),
            key: path("key"),
            authorities: path("cacert"),
            server_name: None,
            skips_verification: parsed.switch("insecure-skip-tls-verify"),
            is_wanted: false,
            is_nameless: true,
        };
        let metrics = given("metrics-addr").map(|url| match url.split_once("://") {
            Some(("http", address)) => Ok((address.trim_end_matches('/').to_string(), false)),
            Some(("https", address)) => Ok((address.trim_end_matches('/').to_string(), true)),
            _ => Err(StartError::Value(format!("cannot parse {url:?}: --metrics-addr is a URL with http or https"))),
        });
        let interval = Some(parsed.duration("grpc-keepalive-interval")).filter(|time| !time.is_zero());
        let dial = Some(parsed.duration("dial-keepalive-time")).filter(|time| !time.is_zero());
        Ok(Settings {
            listen: parsed.text("listen-addr").into(),
            metrics: metrics.transpose()?,
            discovery: given("discovery-srv").map(|domain| {
                (domain.to_string(), parsed.text("discovery-srv-name").to_string(), parsed.switch("insecure-discovery"))
            }),
            endpoints: parsed.texts("endpoints").into_iter().map(String::from).collect(),
            security,
            tls: crate::tls::Files::read(parsed)?,
            namespace: parsed.text("namespace").into(),
            advertised: parsed.text("advertise-client-url").into(),
            registration: registration(parsed)?,
            sync_interval: parsed.duration("endpoints-auto-sync-interval"),
            orders: parsed.switch("experimental-serializable-ordering"),
            leasing_prefix: given("experimental-leasing-prefix").map(String::from),
            logs_calls: parsed.switch("experimental-enable-grpc-logging"),
            send_bytes_max: bytes("max-send-bytes")?,
            recv_bytes_max: bytes("max-recv-bytes")?,
            dial_keepalive: (dial.unwrap_or(DIAL_KEEPALIVE_OF_ZERO), parsed.duration("dial-keepalive-timeout")),
            pings_idle: parsed.switch("permit-without-stream"),
            held_bytes_max: match parsed.int("max-held-bytes") {
                bytes @ HELD_BYTES_MIN.. => bytes.unsigned_abs(),
                _ => return Err(StartError::Value(format!("--max-held-bytes must be {HELD_BYTES_MIN} at least"))),
            },
            keepalive: (
                parsed.duration("grpc-keepalive-min-time"),
                interval.unwrap_or(KEEPALIVE_OF_ZERO),
                parsed.duration("grpc-keepalive-timeout"),
            ),
            streams_max: u32::try_from(parsed.uint("max-concurrent-streams")).unwrap_or(u32::MAX),
            debug: parsed.switch("debug"),
            has_profiles: parsed.switch("enable-pprof"),
        })
    }

    /// The options of clients of `endpoints`.
    pub(crate) fn client(&self, endpoints: Vec<Endpoint>) -> client::Options {
        client::Options {
            endpoints,
            security: self.security.clone(),
            connect_timeout: Duration::from_secs(5),
            call_timeout: None,
            keepalive_interval: self.dial_keepalive.0,
            keepalive_timeout: self.dial_keepalive.1,
            pings_idle: self.pings_idle,
            request_bytes_max: self.send_bytes_max,
            answer_bytes_max: self.recv_bytes_max,
            ..client::Options::default()
        }
    }
}

/// How the proxy registers itself, if it is to.
fn registration(parsed: &Parsed) -> Result<Option<Registration>, StartError> {
    let prefix = parsed.text("resolver-prefix");
    let (ttl, address) = (parsed.int("resolver-ttl"), parsed.text("advertise-client-url"));
    let invalid = |text: String| Err(StartError::Value(text));
    match (prefix, u64::try_from(ttl)) {
        ("", Ok(0) | Err(_)) => Ok(None),
        ("", Ok(_)) => invalid(format!("invalid resolver-prefix {prefix:?}")),
        (_, Ok(0) | Err(_)) => invalid(format!("invalid resolver-ttl {ttl}")),
        (_, Ok(_)) if address.is_empty() => invalid(format!("invalid advertise-client-url {address:?}")),
        (_, Ok(ttl)) => Ok(Some(Registration {
            prefix: format!("{}{prefix}", parsed.text("namespace")),
            ttl: Duration::from_secs(ttl),
            address: address.into(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Settings, String> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let Ok(flags::Asked::Run("start", parsed)) = PROGRAM.asked("grpc-proxy", &words) else { panic!("{line}") };
        Settings::read(&parsed).map_err(|error| error.to_string())
    }

    #[test]
    fn mistakes_are_refused() {
        assert!(read("start").is_ok());
        for line in [
            "--resolver-prefix=a",
            "--resolver-ttl=5",
            "--resolver-prefix=a --resolver-ttl=5 --advertise-client-url=",
            "--auto-tls --self-signed-cert-validity=0",
            "--listen-cipher-suites=TLS_AES_128_GCM_SHA256 --tls-min-version=TLS1.3",
            "--max-held-bytes=1",
            "--max-send-bytes=0",
            "--max-recv-bytes=-1",
            "--metrics-addr=127.0.0.1:1",
            "--tls-min-version=TLS1.1",
        ] {
            assert!(read(&format!("start {line}")).is_err(), "{line}");
        }
    }

    #[test]
    fn the_bounds_of_leased_keys_are_those_that_the_help_names() {
        let flag = FLAGS.iter().find(|flag| flag.name == "experimental-leasing-prefix").expect("a flag");
        let bounds = format!("{} keys and {} MiB", crate::leasing::KEYS_MAX, crate::leasing::BYTES_MAX >> 20);
        assert!(flag.help.contains(&bounds), "{}", flag.help);
        assert_eq!(
            read("start --experimental-leasing-prefix=l/").map(|read| read.leasing_prefix),
            Ok(Some("l/".into()))
        );
    }

    #[test]
    fn every_flag_is_on_the_page_about_configuration() {
        let page = include_str!("../../../docs/configuration.md");
        let (_, section) = page.split_once("\n## `cairn grpc-proxy start`\n").expect("a section of its own");
        let section = section.split("\n## ").next().unwrap_or_default();
        for flag in FLAGS {
            assert!(section.contains(&format!("`--{}`", flag.name)), "--{}", flag.name);
        }
    }
}
