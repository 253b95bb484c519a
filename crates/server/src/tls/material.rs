//! The TLS material of connections: what the files hold at one moment.

use super::Role;
use super::suites::{Dialect, dialect};
use crate::config::Tls;
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WantsServerCert;
use rustls::{ConfigBuilder, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use trust::{Anybody, Authorities, Certificate, Hosts, Pair, PairError, Revocations, Visitors};

/// What connections of one kind are secured with.
pub(super) struct Material {
    /// For clients; none without a certificate.
    pub(super) server: Option<Arc<ServerConfig>>,
    /// For connecting, made when it is first needed.
    client: OnceLock<Result<Arc<ClientConfig>, String>>,
    /// The certificates among the files, and until when they are valid.
    pub(super) expiries: Vec<(PathBuf, SystemTime)>,
    role: Role,
    options: Tls,
    shown: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    authorities: Option<Vec<CertificateDer<'static>>>,
    revoked: Revocations,
}

/// The files that `options` name.
pub(super) fn files(options: &Tls) -> Vec<PathBuf> {
    let all = [
        &options.cert_file,
        &options.key_file,
        &options.client_cert_file,
        &options.client_key_file,
        &options.trusted_ca_file,
        &options.crl_file,
    ];
    all.into_iter().flatten().cloned().collect()
}

impl Material {
    /// Reads the files. The error names flag and file.
    pub(super) fn load(role: Role, options: &Tls) -> Result<Material, String> {
        let mut expiries = Vec::new();
        let own = pair(role, ("cert-file", &options.cert_file), ("key-file", &options.key_file), &mut expiries)?;
        let client = pair(
            role,
            ("client-cert-file", &options.client_cert_file),
            ("client-key-file", &options.client_key_file),
            &mut expiries,
        )?;
        let authorities = match &options.trusted_ca_file {
            Some(path) => Some(authorities(role, path, &mut expiries)?),
            None => None,
        };
        let revoked = revoked(role, options)?;
        let mut material = Material {
            server: None,
            client: OnceLock::new(),
            expiries,
            role,
            options: options.clone(),
            shown: own.as_ref().map(|own| (own.0.clone(), own.1.clone_key())),
            authorities,
            revoked,
        };
        if let Some((chain, key)) = own {
            material.server = Some(Arc::new(material.server_config(chain, key)?));
        }
        if let Some(client) = client {
            material.shown = Some(client);
        }
        Ok(material)
    }

    fn dialect(&self) -> Result<Dialect, String> {
        dialect(&self.options)
    }

    fn server_config(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<ServerConfig, String> {
        let Dialect { provider, versions } = self.dialect()?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|error| error.to_string())?;
        let options = &self.options;
        // As with etcd, a file of authorities alone asks for certificates too.
        let builder: ConfigBuilder<ServerConfig, WantsServerCert> =
            if options.client_cert_auth || options.trusted_ca_file.is_some() {
                builder.with_client_cert_verifier(Arc::new(Visitors::new(self.trusted()?, &provider)?))
            } else {
                builder.with_no_client_auth()
            };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| error.to_string())?;
        config.alpn_protocols = match self.role {
            Role::Client => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Role::Peer | Role::Discovery => vec![b"http/1.1".to_vec()],
        };
        // Clients that come back save the signatures. The keys of the tickets go with this configuration: a certificate that was
        // revoked since, or whose authority was, cannot come back by one.
        config.ticketer = ring::Ticketer::new().map_err(|error| error.to_string())?;
        config.send_tls13_tickets = 1;
        Ok(config)
    }

    /// The configuration for connecting to other members.
    pub(super) fn client(&self) -> Result<Arc<ClientConfig>, String> {
        self.client.get_or_init(|| self.client_config().map(Arc::new)).clone()
    }

    fn client_config(&self) -> Result<ClientConfig, String> {
        let Dialect { provider, versions } = self.dialect()?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|error| error.to_string())?
            .dangerous();
        let builder = if self.options.auto {
            builder.with_custom_certificate_verifier(Arc::new(Anybody { provider }))
        } else {
            builder.with_custom_certificate_verifier(Arc::new(Hosts { authorities: self.trusted()?, provider }))
        };
        let mut config = match &self.shown {
            Some((chain, key)) => {
                builder.with_client_auth_cert(chain.clone(), key.clone_key()).map_err(|error| error.to_string())?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::in_memory_sessions(64);
        Ok(config)
    }

    /// The authorities of the file, or of the system.
    fn trusted(&self) -> Result<Authorities, String> {
        let certificates = match &self.authorities {
            Some(certificates) => certificates.clone(),
            None => trust::system_authorities()?,
        };
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            let is_revoked = Certificate::parse(certificate).is_ok_and(|parsed| self.revoked.check(&parsed).is_err());
            if !is_revoked {
                // Those of the file were looked at when it was read; of the system's some may be odd.
                let _ = roots.add(certificate.clone());
            }
        }
        if roots.is_empty() {
            return Err("no authority is left to trust: all are revoked".into());
        }
        Ok(Authorities {
            roots: Arc::new(roots),
            certificates,
            revoked: self.revoked.clone(),
            allowed_cns: self.options.allowed_cns.clone(),
            allowed_hostnames: self.options.allowed_hostnames.clone(),
        })
    }
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").field("role", &self.role).finish_non_exhaustive()
    }
}

/// The certificates that were called back, as the file has them now.
pub(super) fn revoked(role: Role, options: &Tls) -> Result<Revocations, String> {
    let Some(path) = &options.crl_file else { return Ok(Revocations::default()) };
    let flag = if role == Role::Client { "client-crl-file" } else { "peer-crl-file" };
    trust::read(path).and_then(|bytes| Revocations::parse(&bytes)).map_err(|why| unusable(flag, path, why))
}

fn unusable(flag: &str, path: &Path, why: impl std::fmt::Display) -> String {
    format!("cannot use {:?} for --{flag}: {why}", path.display().to_string())
}

/// A certificate and its key, if flags name them.
fn pair(
    role: Role,
    cert: (&str, &Option<PathBuf>),
    key: (&str, &Option<PathBuf>),
    expiries: &mut Vec<(PathBuf, SystemTime)>,
) -> Result<Option<Pair>, String> {
    let (Some(cert_file), Some(key_file)) = (cert.1, key.1) else { return Ok(None) };
    let (cert_flag, key_flag) = (role.flag(cert.0), role.flag(key.0));
    let bad_cert = |why: String| unusable(&cert_flag, cert_file, why);
    let (chain, key) = trust::pair(cert_file, key_file).map_err(|error| match error {
        PairError::Cert(why) => bad_cert(why),
        PairError::Key(why) => unusable(&key_flag, key_file, why),
    })?;
    let leaf = chain.first().ok_or_else(|| "it holds no certificate".to_string());
    let leaf = leaf.and_then(|leaf| Certificate::parse(leaf)).map_err(bad_cert)?;
    let now = SystemTime::now();
    if leaf.not_after < now {
        return Err(bad_cert("x509: certificate has expired".into()));
    }
    if leaf.not_before > now {
        return Err(bad_cert("x509: certificate is not yet valid".into()));
    }
    expiries.push((cert_file.clone(), leaf.not_after));
    Ok(Some((chain, key)))
}

/// The certificates of a file of authorities.
fn authorities(
    role: Role,
    path: &Path,
    expiries: &mut Vec<(PathBuf, SystemTime)>,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let flag = role.flag("trusted-ca-file");
    let bad = |why: String| unusable(&flag, path, why);
    let all = trust::authorities(path).map_err(bad)?;
    let ends = all.iter().filter_map(|certificate| Certificate::parse(certificate).ok());
    let first_to_expire = ends.map(|parsed| parsed.not_after).min();
    expiries.extend(first_to_expire.map(|time| (path.to_path_buf(), time)));
    Ok(all)
}
