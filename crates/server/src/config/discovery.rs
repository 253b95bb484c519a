//! How founding members find each other when `--initial-cluster` does not name them: through another cluster, or DNS.

use super::values::Values;
use super::{ConfigError, Tls, TlsVersion, url};
use std::path::PathBuf;
use std::time::Duration;

/// Another cluster, in which the founding members write their URLs under a common token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// The common name; also mixed into the ids.
    pub token: String,
    /// Client URLs of the other cluster.
    pub endpoints: Vec<String>,
    /// Time to connect.
    pub dial_timeout: Duration,
    /// Time of one request.
    pub request_timeout: Duration,
    /// Time between pings.
    pub keepalive: Duration,
    /// Time a ping may go unanswered.
    pub keepalive_timeout: Duration,
    /// User and password there.
    pub user: Option<(String, String)>,
    /// What is shown and whom is trusted at endpoints with `https`; `auto` trusts everybody.
    pub tls: Tls,
}

/// SRV records that name the founding members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Srv {
    /// The DNS domain.
    pub domain: String,
    /// `_etcd-server-<name>`, when not empty.
    pub service_suffix: String,
}

/// The flags of the other cluster.
pub(super) fn discovery(values: &Values) -> Result<Option<Discovery>, ConfigError> {
    let wrong = |text: &str| Err(ConfigError::Value(text.into()));
    if values.get("discovery-fallback") == "proxy" {
        return wrong("v2 proxy is deprecated, and --discovery-fallback can't be configured as \"proxy\"");
    }
    let (token, endpoints) = (values.get("discovery-token"), values.get("discovery-endpoints"));
    if token.is_empty() != endpoints.is_empty() {
        return wrong("both --discovery-token and --discovery-endpoints must be set");
    }
    if token.is_empty() {
        return Ok(None);
    }
    let tls = tls(values)?;
    let is_secure = !values.is_on("discovery-insecure-transport")
        || tls.client_cert_file.is_some()
        || tls.trusted_ca_file.is_some();
    let scheme = if is_secure { "https" } else { "http" };
    let mut hosts = Vec::new();
    for endpoint in endpoints.split(',').map(str::trim) {
        if endpoint.is_empty() {
            return wrong("--discovery-endpoints must not contain empty endpoints");
        }
        // etcd's clients take bare hosts and ports as well.
        let url = if endpoint.contains("://") { endpoint.to_string() } else { format!("{scheme}://{endpoint}") };
        hosts.extend(url::list("discovery-endpoints", "\"host:port\"", &url)?);
    }
    let user = match (values.get("discovery-user"), values.get("discovery-password")) {
        ("", _) => None,
        (user, "") => match user.split_once(':') {
            Some((user, password)) => Some((user.to_string(), password.to_string())),
            None => return wrong("--discovery-user needs --discovery-password"),
        },
        (user, password) => Some((user.to_string(), password.to_string())),
    };
    Ok(Some(Discovery {
        token: token.into(),
        endpoints: hosts,
        dial_timeout: values.period("discovery-dial-timeout")?,
        request_timeout: values.period("discovery-request-timeout")?,
        keepalive: values.period("discovery-keepalive-time")?,
        keepalive_timeout: values.period("discovery-keepalive-timeout")?,
        user,
        tls,
    }))
}

/// The flags of its certificates.
fn tls(values: &Values) -> Result<Tls, ConfigError> {
    let file = |flag| Some(values.get(flag)).filter(|path| !path.is_empty()).map(PathBuf::from);
    let (cert, key) = (file("discovery-cert"), file("discovery-key"));
    if cert.is_some() != key.is_some() {
        let shown = |path: &Option<PathBuf>| path.as_ref().map_or(String::new(), |path| path.display().to_string());
        return Err(ConfigError::Value(format!(
            "--discovery-key and --discovery-cert must both be present[key: {}, cert: {}]",
            shown(&key),
            shown(&cert)
        )));
    }
    Ok(Tls {
        cert_file: None,
        key_file: None,
        client_cert_file: cert,
        client_key_file: key,
        trusted_ca_file: file("discovery-cacert"),
        crl_file: None,
        client_cert_auth: false,
        auto: values.is_on("discovery-insecure-skip-tls-verify"),
        allowed_cns: Vec::new(),
        allowed_hostnames: Vec::new(),
        skip_client_san_verification: false,
        self_signed_validity_years: 0,
        min_version: TlsVersion::V12,
        max_version: None,
        cipher_suites: Vec::new(),
    })
}

/// The flags of DNS.
pub(super) fn srv(values: &Values) -> Result<Option<Srv>, ConfigError> {
    let domain = values.get("discovery-srv");
    let srv = Srv { domain: domain.into(), service_suffix: values.get("discovery-srv-name").into() };
    Ok((!domain.is_empty()).then_some(srv))
}
