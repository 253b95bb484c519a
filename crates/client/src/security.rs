//! TLS of connections.

use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trust::{Anybody, Authorities, Certificate, Hosts, PairError, Revocations};

use crate::Endpoint;

/// TLS of a client. With nothing set, endpoints with `https` are checked against the authorities that the system trusts, and all
/// others are talked to without TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// File of the certificate that this client shows.
    pub cert: Option<PathBuf>,
    /// File of its key.
    pub key: Option<PathBuf>,
    /// File of the authorities that vouch for members; otherwise those of the system.
    pub authorities: Option<PathBuf>,
    /// Shows no certificate with a common name: for a proxy, whose clients members would take for the user of that name.
    pub is_nameless: bool,
    /// The name that members' certificates must have, instead of the endpoint's host.
    pub server_name: Option<String>,
    /// Believes every member.
    pub skips_verification: bool,
    /// Endpoints that do not say `http` are talked to over TLS, even if no file is named.
    pub is_wanted: bool,
}

/// What of `Security` the connections of one client share.
pub(crate) struct Guard {
    security: Security,
    /// The newest configuration that could be made: files that are being replaced may be unusable for a moment.
    newest: Mutex<Arc<ClientConfig>>,
}

impl Security {
    /// Whether `endpoint` is talked to over TLS.
    pub(crate) fn covers(&self, endpoint: &Endpoint) -> bool {
        let is_named = self.cert.is_some() || self.key.is_some() || self.authorities.is_some();
        let is_asked_for = is_named || self.server_name.is_some() || self.skips_verification || self.is_wanted;
        endpoint.is_encrypted() || (is_asked_for && endpoint.leaves_open())
    }

    /// How a connection to `endpoint` is encrypted, if it is.
    ///
    /// # Errors
    /// If files cannot be used, also where this endpoint needs none.
    pub fn encryption(&self, endpoint: &Endpoint) -> Result<Option<rpc::client::Encryption>, String> {
        let is_covered = self.covers(endpoint);
        if !is_covered && self.cert.is_none() && self.key.is_none() && self.authorities.is_none() {
            return Ok(None);
        }
        let guard = Guard::new(self)?;
        if is_covered { guard.encryption(endpoint).map(Some) } else { Ok(None) }
    }

    fn config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous();
        let builder = if self.skips_verification {
            builder.with_custom_certificate_verifier(Arc::new(Anybody { provider }))
        } else {
            builder.with_custom_certificate_verifier(Arc::new(Hosts { authorities: self.trusted()?, provider }))
        };
        let mut config = match (&self.cert, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let pair = trust::pair(cert, key).map_err(|(PairError::Cert(why) | PairError::Key(why))| why);
                let (chain, key) = pair?;
                if self.is_nameless {
                    refuse_named(&chain)?;
                }
                builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?
            }
            (cert, key) => {
                let shown =
                    |path: &Option<PathBuf>| path.as_ref().map_or(String::new(), |path| path.display().to_string());
                let (cert, key) = (shown(cert), shown(key));
                return Err(format!("KeyFile and CertFile must both be present[key: {key}, cert: {cert}]"));
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    fn trusted(&self) -> Result<Authorities, String> {
        let certificates = match &self.authorities {
            Some(path) => trust::authorities(path).map_err(|why| named(path, why))?,
            None => trust::system_authorities()?,
        };
        let mut roots = rustls::RootCertStore::empty();
        for certificate in &certificates {
            // Those of a file were looked at when it was read; of the system's some may be odd.
            let _ = roots.add(certificate.clone());
        }
        let (roots, revoked) = (Arc::new(roots), Revocations::default());
        Ok(Authorities { roots, certificates, revoked, allowed_cns: Vec::new(), allowed_hostnames: Vec::new() })
    }
}

impl Guard {
    /// Reads the files for the first time.
    pub(crate) fn new(security: &Security) -> Result<Arc<Guard>, String> {
        let newest = Mutex::new(Arc::new(security.config()?));
        Ok(Arc::new(Guard { security: security.clone(), newest }))
    }

    fn config(&self) -> Arc<ClientConfig> {
        let mut newest = self.newest.lock();
        if let Ok(config) = self.security.config() {
            *newest = Arc::new(config);
        }
        newest.clone()
    }

    /// How connections to `endpoint` are encrypted.
    pub(crate) fn encryption(self: Arc<Guard>, endpoint: &Endpoint) -> Result<rpc::client::Encryption, String> {
        let name = self.security.server_name.clone().unwrap_or_else(|| endpoint.host().to_string());
        let name = ServerName::try_from(name).map_err(|error| format!("endpoint `{endpoint}`: {error}"))?;
        let config = Arc::new(move || Ok(self.config()));
        Ok(rpc::client::Encryption { config, name, describe })
    }
}

fn refuse_named(chain: &[CertificateDer<'_>]) -> Result<(), String> {
    let Some(leaf) = chain.first() else { return Ok(()) };
    match Certificate::parse(leaf)?.common_name.as_str() {
        "" => Ok(()),
        name => Err(format!("cert has non empty Common Name ({name})")),
    }
}

/// What is wrong with the file `path`, which it does not always say itself.
fn named(path: &Path, why: String) -> String {
    let name = path.display().to_string();
    if why.contains(&name) { why } else { format!("`{name}`: {why}") }
}

fn describe(error: &std::io::Error) -> String {
    format!("authentication handshake failed: {}", trust::describe_io(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encrypted() {
        let parsed = |text: &str| text.parse::<Endpoint>().expect("an endpoint");
        let (none, some) = (Security::default(), Security { skips_verification: true, ..Security::default() });
        for (text, without, with) in [
            ("127.0.0.1:1", false, true),
            ("http://127.0.0.1:1", false, false),
            ("https://127.0.0.1:1", true, true),
            ("unix:///tmp/a", false, true),
            ("unixs:///tmp/a", true, true),
        ] {
            assert_eq!((none.covers(&parsed(text)), some.covers(&parsed(text))), (without, with), "{text}");
        }
    }

    #[test]
    fn files_that_are_of_no_use_are_named() {
        let lone = Security { cert: Some("a.pem".into()), skips_verification: true, ..Security::default() };
        let text = "KeyFile and CertFile must both be present[key: , cert: a.pem]";
        assert_eq!(lone.config().err(), Some(text.to_string()));
        let absent = Security { authorities: Some("/nowhere/ca.pem".into()), ..Security::default() };
        assert_eq!(absent.config().err(), Some("open /nowhere/ca.pem: no such file or directory".to_string()));
        let odd = Security { authorities: Some("/dev/null".into()), ..Security::default() };
        assert_eq!(odd.config().err(), Some("`/dev/null`: it holds no certificate".to_string()));
    }
}
