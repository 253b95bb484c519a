//! TLS of the proxy's clients.

use flags::Parsed;
use parking_lot::Mutex;
use rpc::{Address, Gatekeeper, Refusal};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use std::path::PathBuf;
use std::sync::Arc;
use telemetry::logging::{self, Pace};
use trust::{Authorities, Certificate, PairError, Revocations, Visitors, describe, describe_io};

use crate::StartError;

/// What clients are shown, and what they must show.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    cert: PathBuf,
    key: PathBuf,
    /// The pair is to be made, if it is not there.
    made: Option<Made>,
    suites: Vec<String>,
    authorities: Option<PathBuf>,
    revoked: Option<PathBuf>,
    versions: Vec<&'static SupportedProtocolVersion>,
}

/// What a pair is made for: `--auto-tls`.
#[derive(Clone, Debug)]
struct Made {
    dir: PathBuf,
    host: Option<String>,
    years: u32,
}

fn version(text: &str) -> Option<u8> {
    match text {
        "TLS1.2" => Some(2),
        "TLS1.3" => Some(3),
        _ => None,
    }
}

impl Files {
    /// The files of a command line; none if it names none.
    pub(crate) fn read(parsed: &Parsed) -> Result<Option<Files>, StartError> {
        let path = |name: &str| Some(parsed.text(name)).filter(|text| !text.is_empty()).map(PathBuf::from);
        let invalid = |name: &str| {
            StartError::Value(format!("{name} is invalid: unexpected TLS version {:?}", parsed.text(name)))
        };
        let min = match parsed.text("tls-min-version") {
            "" => 2,
            text => version(text).ok_or_else(|| invalid("tls-min-version"))?,
        };
        let max = match parsed.text("tls-max-version") {
            "" => 3,
            text => version(text).ok_or_else(|| invalid("tls-max-version"))?,
        };
        if min > max {
            let (min, max) = (parsed.text("tls-min-version"), parsed.text("tls-max-version"));
            return Err(StartError::Value(format!("min version ({min}) is greater than max version ({max})")));
        }
        let versions = [(2, &TLS12), (3, &TLS13)].into_iter().filter(|(number, _)| (min..=max).contains(number));
        let versions = versions.map(|(_, version)| version).collect();
        let suites: Vec<String> = parsed.texts("listen-cipher-suites").into_iter().map(String::from).collect();
        let suites: Vec<String> = suites.into_iter().filter(|name| !name.is_empty()).collect();
        if min == 3 && !suites.is_empty() {
            let text = "cipher suites cannot be configured when only TLS1.3 is enabled";
            return Err(StartError::Value(text.into()));
        }
        let (is_auto, years) = (parsed.switch("auto-tls"), parsed.uint("self-signed-cert-validity"));
        if is_auto && years == 0 {
            let text = "selfSignedCertValidity is invalid,it should be greater than 0";
            return Err(StartError::Value(text.into()));
        }
        let revoked = path("client-crl-file");
        match (path("cert-file"), path("key-file"), path("trusted-ca-file")) {
            (None, None, None) if is_auto => {
                let dir = PathBuf::from(parsed.text("data-dir")).join("fixtures").join("proxy");
                let host = trust::host_of_url(&format!("https://{}", parsed.text("listen-addr")));
                let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
                let made = Some(Made { dir, host, years: u32::try_from(years).unwrap_or(u32::MAX) });
                Ok(Some(Files { cert, key, made, suites, authorities: None, revoked, versions }))
            }
            (None, None, None) => Ok(None),
            (Some(cert), Some(key), authorities) => {
                Ok(Some(Files { cert, key, made: None, suites, authorities, revoked, versions }))
            }
            _ => Err(StartError::Value("TLS of clients needs --cert-file and --key-file".into())),
        }
    }

    fn config(&self) -> Result<(ServerConfig, Revocations), String> {
        let provider = Arc::new(trust::provider(&self.suites, "listen-cipher-suites")?);
        let pair = trust::pair(&self.cert, &self.key);
        let (chain, key) = pair.map_err(|(PairError::Cert(why) | PairError::Key(why))| why)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&self.versions)
            .map_err(|error| error.to_string())?;
        let revoked = match &self.revoked {
            Some(path) => trust::read(path).and_then(|bytes| Revocations::parse(&bytes))?,
            None => Revocations::default(),
        };
        let builder = match &self.authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let certificates = trust::authorities(path)?;
                let mut roots = rustls::RootCertStore::empty();
                for certificate in &certificates {
                    roots.add(certificate.clone()).map_err(|error| error.to_string())?;
                }
                let (allowed_cns, allowed_hostnames) = (Vec::new(), Vec::new());
                let roots = Arc::new(roots);
                let authorities =
                    Authorities { roots, certificates, revoked: revoked.clone(), allowed_cns, allowed_hostnames };
                builder.with_client_cert_verifier(Arc::new(Visitors::new(authorities, &provider)?))
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A session that is resumed would not be verified again.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok((config, revoked))
    }
}

/// Admits clients. Files are read again with each handshake, so that they can be replaced.
pub(crate) struct Gate {
    files: Files,
    /// The newest configuration that could be made.
    newest: Mutex<Arc<ServerConfig>>,
    pace: Pace,
}

impl Gate {
    /// Reads the files for the first time. A pair that is to be made is made now, if there is none that is valid.
    pub(crate) fn new(files: &Files) -> Result<Arc<Gate>, String> {
        if let Some(Made { dir, host, years }) = &files.made {
            let hosts: Vec<String> = host.iter().cloned().collect();
            trust::self_signed(dir, &hosts, *years).map_err(|why| format!("--auto-tls: {why}"))?;
        }
        let newest = Mutex::new(Arc::new(files.config()?.0));
        Ok(Arc::new(Gate { files: files.clone(), newest, pace: Pace::new() }))
    }
}

impl Gatekeeper for Gate {
    fn config(&self) -> Arc<ServerConfig> {
        let made = self.files.config();
        let mut newest = self.newest.lock();
        if let Ok((config, _)) = made {
            *newest = Arc::new(config);
        }
        newest.clone()
    }

    fn admit(&self, session: &ServerConnection, _address: &Address) -> Result<Option<Arc<str>>, String> {
        let Some(leaf) = session.peer_certificates().and_then(<[_]>::first) else { return Ok(None) };
        Ok(Some(Certificate::parse(leaf)?.common_name.into()))
    }

    fn rejected(&self, address: &Address, server_name: Option<&str>, refusal: &Refusal) {
        let why = match refusal {
            Refusal::Tls(error) => describe(error),
            Refusal::Io(error) => describe_io(error),
            Refusal::TimedOut => "the handshake took too long".into(),
            Refusal::Admission(why) => why.clone(),
        };
        if let Some(left_out) = self.pace.line() {
            let address = address.to_string();
            let fields = [
                ("remote-addr", (&address).into()),
                ("server-name", server_name.unwrap_or_default().into()),
                ("error", (&why).into()),
                ("lines-left-out", left_out.into()),
            ];
            logging::warn("rejected connection on client endpoint", &fields);
        }
    }
}
