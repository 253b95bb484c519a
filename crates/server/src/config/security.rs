//! TLS of clients and of peers.

use super::values::Values;
use super::{ConfigError, Listen};
use std::path::PathBuf;

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    V12,
    /// TLS 1.3.
    V13,
}

/// The certificates of one kind of connection, and the requirements for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Certificate shown to clients.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// Certificate shown when this member connects; the above if there is none.
    pub client_cert_file: Option<PathBuf>,
    /// Its key.
    pub client_key_file: Option<PathBuf>,
    /// Authorities of clients' certificates.
    pub trusted_ca_file: Option<PathBuf>,
    /// Revoked certificates.
    pub crl_file: Option<PathBuf>,
    /// Clients must have a certificate.
    pub client_cert_auth: bool,
    /// Make a certificate at start.
    pub auto: bool,
    /// Common names, one of which a certificate must have; empty for any. Never together with `allowed_hostnames`.
    pub allowed_cns: Vec<String>,
    /// Names, one of which a certificate must be for; empty for any.
    pub allowed_hostnames: Vec<String>,
    /// Do not check that a peer's certificate is for the address it comes from.
    pub skip_client_san_verification: bool,
    /// How many years a certificate made at start is valid.
    pub self_signed_validity_years: u32,
    /// Lowest version.
    pub min_version: TlsVersion,
    /// Highest version, if one is set.
    pub max_version: Option<TlsVersion>,
    /// Cipher suites by the names of RFC 8446 and IANA; empty for all good ones.
    pub cipher_suites: Vec<String>,
}

impl Tls {
    /// Whether there is a certificate to show, from files or made at start.
    pub fn has_certificate(&self) -> bool {
        self.cert_file.is_some() || self.auto
    }
}

fn version(text: &str) -> Result<Option<TlsVersion>, ConfigError> {
    match text {
        "" => Ok(None),
        "TLS1.2" => Ok(Some(TlsVersion::V12)),
        "TLS1.3" => Ok(Some(TlsVersion::V13)),
        _ => Err(ConfigError::Value(format!("unexpected TLS version {text:?} (must be one of: TLS1.2, TLS1.3)"))),
    }
}

/// Reads the flags of clients (`prefix` is empty) or peers (`peer-`).
fn read(values: &mut Values, prefix: &str) -> Result<Tls, ConfigError> {
    let min = version(values.get("tls-min-version"))?;
    let max = version(values.get("tls-max-version"))?;
    if let (Some(low), Some(high)) = (min, max)
        && low > high
    {
        let (low, high) = (values.get("tls-min-version"), values.get("tls-max-version"));
        return Err(ConfigError::Value(format!("min version ({low}) is greater than max version ({high})")));
    }
    let cipher_suites = values.words("cipher-suites");
    if min == Some(TlsVersion::V13) && !cipher_suites.is_empty() {
        return Err(ConfigError::Value("cipher suites cannot be configured when only TLS1.3 is enabled".into()));
    }
    let kind = if prefix.is_empty() { "client" } else { "peer" };
    let flag = |name: &str| format!("{prefix}{name}");
    let path = |name: &str| values.path(&flag(name));
    let mut tls = Tls {
        cert_file: path("cert-file"),
        key_file: path("key-file"),
        client_cert_file: path("client-cert-file"),
        client_key_file: path("client-key-file"),
        trusted_ca_file: path("trusted-ca-file"),
        crl_file: values.path(&format!("{kind}-crl-file")),
        client_cert_auth: values.is_on(&flag("client-cert-auth")),
        auto: values.is_on(&flag("auto-tls")),
        allowed_cns: values.words(&format!("{kind}-cert-allowed-cn")),
        allowed_hostnames: values.words(&format!("{kind}-cert-allowed-hostname")),
        skip_client_san_verification: values.is_on(&flag("skip-client-san-verification")),
        self_signed_validity_years: values.number("self-signed-cert-validity", 0, 1_000)? as u32,
        min_version: min.unwrap_or(TlsVersion::V12),
        max_version: max,
        cipher_suites,
    };
    let shown = |path: &Option<PathBuf>| path.as_ref().map_or(String::new(), |path| path.display().to_string());
    if tls.cert_file.is_some() != tls.key_file.is_some() {
        let (key, cert) = (shown(&tls.key_file), shown(&tls.cert_file));
        return Err(ConfigError::Value(format!(
            "KeyFile and CertFile must both be present[key: {key}, cert: {cert}] (--{prefix}key-file, --{prefix}cert-file)"
        )));
    }
    if tls.client_cert_file.is_some() != tls.client_key_file.is_some() {
        let (key, cert) = (shown(&tls.client_key_file), shown(&tls.client_cert_file));
        return Err(ConfigError::Value(format!(
            "ClientKeyFile and ClientCertFile must both be present or both absent: key: {key}, cert: {cert}] \
             (--{prefix}client-key-file, --{prefix}client-cert-file)"
        )));
    }
    if !tls.allowed_cns.is_empty() && !tls.allowed_hostnames.is_empty() {
        return Err(ConfigError::Value(format!(
            "AllowedCNs and AllowedHostnames are mutually exclusive (cns={:?}, hostnames={:?})",
            tls.allowed_cns, tls.allowed_hostnames
        )));
    }
    if tls.auto && tls.cert_file.is_some() {
        tls.auto = false;
        values.warnings.push(format!("ignoring --{prefix}auto-tls since certs given"));
    } else if tls.auto && tls.self_signed_validity_years == 0 {
        return Err(ConfigError::Value(
            "--self-signed-cert-validity must be at least 1 with --auto-tls or --peer-auto-tls".into(),
        ));
    }
    Ok(tls)
}

/// The TLS of clients, checked against the URLs it is for.
pub(super) fn client(values: &mut Values, listeners: &[Listen], metrics: &[Listen]) -> Result<Tls, ConfigError> {
    let tls = read(values, "")?;
    for listener in listeners {
        match listener.secure {
            true if !tls.has_certificate() => {
                let url = &listener.url;
                return Err(ConfigError::Value(format!(
                    "TLS key/cert (--cert-file, --key-file) must be provided for client url {url} with HTTPS scheme"
                )));
            }
            false => warn_of_plaintext(values, &tls, &listener.url, ""),
            true => {}
        }
    }
    if metrics.iter().any(|listener| listener.secure) && !tls.has_certificate() {
        return Err(ConfigError::Value(
            "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url".into(),
        ));
    }
    Ok(tls)
}

/// The TLS of peers.
pub(super) fn peer(values: &mut Values, listeners: &[Listen]) -> Result<Tls, ConfigError> {
    let tls = read(values, "peer-")?;
    for listener in listeners {
        match listener.secure {
            true if !tls.has_certificate() => {
                let url = &listener.url;
                return Err(ConfigError::Value(format!(
                    "cannot listen on TLS for {url}: KeyFile and CertFile are not presented (--peer-key-file, --peer-cert-file)"
                )));
            }
            false => warn_of_plaintext(values, &tls, &listener.url, "peer-"),
            true => {}
        }
    }
    Ok(tls)
}

fn warn_of_plaintext(values: &mut Values, tls: &Tls, url: &str, prefix: &str) {
    if tls.has_certificate() {
        values.warnings.push(format!("the scheme of {url} asks for no TLS: certificates are ignored there"));
    }
    if tls.client_cert_auth {
        values
            .warnings
            .push(format!("the scheme of {url} asks for no TLS: --{prefix}client-cert-auth is ignored there"));
    }
}
