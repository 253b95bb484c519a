//! Flags that are read and checked, but whose feature does not look at them yet. Whoever wires one takes it off this list.

use super::values::Values;
use super::{Config, ConfigError};

const FLAGS: &[&str] = &[
    "config-file",
    "memory-mlock",
    "socket-reuse-port",
    "socket-reuse-address",
    "enable-grpc-gateway",
    "listen-metrics-urls",
    "cert-file",
    "client-cert-file",
    "client-cert-auth",
    "client-crl-file",
    "client-cert-allowed-hostname",
    "trusted-ca-file",
    "auto-tls",
    "peer-cert-file",
    "peer-client-cert-file",
    "peer-client-cert-auth",
    "peer-trusted-ca-file",
    "peer-auto-tls",
    "peer-crl-file",
    "peer-cert-allowed-cn",
    "peer-cert-allowed-hostname",
    "peer-skip-client-san-verification",
    "self-signed-cert-validity",
    "cipher-suites",
    "tls-min-version",
    "tls-max-version",
    "cors",
    "host-whitelist",
    "auth-token",
    "bcrypt-cost",
    "auth-token-ttl",
    "enable-pprof",
    "metrics",
    "log-outputs",
    "enable-log-rotation",
    "warning-unary-request-duration",
    "enable-distributed-tracing",
    "corrupt-check-time",
    "compact-hash-check-time",
    "downgrade-check-time",
    "io-priority",
];

/// Gates of the same kind.
const GATES: &[&str] =
    &["InitialCorruptCheck", "CompactHashCheck", "FastLeaseKeepAlive", "SetMemberLocalAddr", "PriorityRequest"];

/// Warns of every such flag that is not at its default.
pub(super) fn warn(values: &mut Values, config: &Config) {
    for flag in FLAGS {
        let default = super::table::find(flag).map_or("", |flag| flag.default);
        if values.is_given(flag) && values.get(flag) != default {
            values.warnings.push(format!("flag --{flag} has no effect yet"));
        }
    }
    let default = super::gates::Gates::default();
    for ((name, _, on), (_, _, usual)) in config.gates.list().zip(default.list()) {
        if on != usual && GATES.contains(&name) {
            values.warnings.push(format!("feature gate {name}={on} has no effect yet"));
        }
    }
}

/// Refuses what would be done otherwise than it was asked for: plaintext where TLS was wanted.
pub(super) fn refuse(config: &Config) -> Result<(), ConfigError> {
    let listeners = config.listen_client.iter().chain(&config.listen_client_http).chain(&config.listen_peer);
    if let Some(listener) = listeners.into_iter().find(|listener| listener.secure) {
        return Err(ConfigError::Value(format!("{}: TLS is not supported by this version", listener.url)));
    }
    let unix = |listener: &&super::Listen| matches!(listener.place, super::Place::Unix(_));
    if let Some(listener) = config.listen_client.iter().chain(&config.listen_client_http).find(unix) {
        return Err(ConfigError::Value(format!(
            "{}: Unix sockets for clients are not supported by this version",
            listener.url
        )));
    }
    Ok(())
}
