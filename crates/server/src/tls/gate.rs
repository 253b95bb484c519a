//! Admission of clients' TLS connections.

use super::keeper::Keeper;
use contain::lock;
use rpc::{Address, Gatekeeper, Refusal};
use rustls::{ServerConfig, ServerConnection};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use telemetry::logging;
use trust::Certificate;
use trust::{describe, describe_io};

/// Lines about refused connections per second: a client that sends garbage must not fill the disk.
const LINES_MAX: u32 = 20;

/// Guards the listeners of clients and of metrics.
pub(crate) struct ClientGate {
    keeper: Arc<Keeper>,
    /// A configuration to fall back on: a listener with TLS has had one since the start.
    first: Arc<ServerConfig>,
    /// When the second began in which so many lines were written, and how many were not.
    lines: Mutex<(Instant, u32, u64)>,
}

impl ClientGate {
    /// The error is for a member without a certificate.
    pub(crate) fn new(keeper: Arc<Keeper>) -> Result<ClientGate, String> {
        let first = keeper.server().ok_or("a listener with TLS needs --cert-file and --key-file, or --auto-tls")?;
        Ok(ClientGate { keeper, first, lines: Mutex::new((Instant::now(), 0, 0)) })
    }
}

impl Gatekeeper for ClientGate {
    fn config(&self) -> Arc<ServerConfig> {
        self.keeper.server().unwrap_or_else(|| self.first.clone())
    }

    fn admit(&self, session: &ServerConnection, _address: &Address) -> Result<Option<Arc<str>>, String> {
        let Some(chain) = session.peer_certificates() else { return Ok(None) };
        let Some(leaf) = chain.first() else { return Ok(None) };
        self.keeper.check_revoked(chain)?;
        let certificate = Certificate::parse(leaf)?;
        // A session that was resumed has not been verified again.
        if !certificate.is_valid_at(SystemTime::now()) {
            return Err("tls: failed to verify certificate: x509: certificate has expired or is not yet valid".into());
        }
        Ok(Some(certificate.common_name.into()))
    }

    fn rejected(&self, address: &Address, server_name: Option<&str>, refusal: &Refusal) {
        let why = match refusal {
            Refusal::Tls(error) => describe(error),
            Refusal::Io(error) => describe_io(error),
            Refusal::TimedOut => "the handshake took too long".into(),
            Refusal::Admission(why) => why.clone(),
        };
        let mut lines = lock(&self.lines);
        let now = Instant::now();
        let mut passed_over = 0;
        if now.duration_since(lines.0) >= Duration::from_secs(1) {
            passed_over = lines.2;
            *lines = (now, 0, 0);
        }
        if lines.1 >= LINES_MAX {
            lines.2 = lines.2.saturating_add(1);
            return;
        }
        lines.1 = lines.1.saturating_add(1);
        drop(lines);
        if passed_over > 0 {
            logging::warn("more connections were rejected than there are lines", &[("number", passed_over.into())]);
        }
        logging::warn(
            "rejected connection on client endpoint",
            &[
                ("remote-addr", (&address.to_string()).into()),
                ("server-name", server_name.unwrap_or_default().into()),
                ("error", (&why).into()),
            ],
        );
    }
}
