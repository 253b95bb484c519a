//! Opening connections in both directions, with TLS where the URLs say so.

use crate::address::Address;
use crate::encrypted::Encrypted;
use crate::identity::{Identity, OBSERVER, PEER_URLS};
use crate::stream::{Plain, Stream};
use crate::timeouts::after;
use contain::contain;
use http::{HeaderMap, HeaderValue};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use socket2::Socket;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use trust::Certificate;

/// The first byte of a TLS connection: a record of the handshake.
const RECORD_OF_HANDSHAKE: u8 = 22;

/// The certificates and checks of TLS handshakes between members. Read for every connection, because files may have
/// changed.
pub trait Credentials: std::fmt::Debug + Send + Sync {
    /// The configuration for a connection that another member begins; `None` without a certificate of our own.
    fn server(&self) -> Option<Arc<ServerConfig>>;
    /// The configuration for a connection that this member begins, or why there is none.
    fn client(&self) -> Result<Arc<ClientConfig>, String>;
    /// Fails with a text if one of the certificates was revoked.
    fn check_revoked(&self, chain: &[CertificateDer<'_>]) -> Result<(), String>;
    /// Whether certificates need not be valid for the address that their member connects from.
    fn skips_addresses(&self) -> bool;
}

/// Opens and accepts connections between members.
#[derive(Clone, Debug)]
pub struct Connector {
    credentials: Arc<dyn Credentials>,
    /// The name for which certificates of other members must be valid, instead of the host that was dialled.
    server_name: Option<Arc<str>>,
    /// The local address of connections to others; `None` lets the system choose.
    local: Option<IpAddr>,
    /// This member's id in every call, once it is known: the peers that it calls keep places for members.
    pub(crate) own: Arc<HeaderMap>,
}

/// The security of a listening socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// No TLS.
    #[default]
    Plaintext,
    /// Only TLS.
    Tls,
    /// Both: the first byte of a connection decides.
    Both,
}

impl Connector {
    /// A connector that presents and verifies certificates according to `credentials`. Those of others must be valid
    /// for `server_name`, or for the host that was dialled if there is none.
    pub fn new(credentials: Arc<dyn Credentials>, server_name: Option<&str>) -> Connector {
        Connector { credentials, server_name: server_name.map(Into::into), local: None, own: Arc::default() }
    }

    /// This connector, with a local address to connect from.
    pub fn bound_to(self, local: Option<IpAddr>) -> Connector {
        Connector { local, ..self }
    }

    /// This connector for a member that knows its id.
    pub fn of_member(self, member_id: u64, cluster_id: u64, urls: &[String]) -> Connector {
        let own = Identity { member_id, cluster_id, urls: urls.join(",") }.headers();
        Connector { own: Arc::new(own), ..self }
    }

    /// This connector for an observer, which nobody dials.
    pub fn of_observer(self, id: u64, cluster_id: u64) -> Connector {
        let mut own = Identity { member_id: id, cluster_id, urls: String::new() }.headers();
        own.remove(PEER_URLS);
        own.insert(OBSERVER, HeaderValue::from_static("1"));
        Connector { own: Arc::new(own), ..self }
    }

    /// Connects to the member at `url`.
    pub(crate) fn dial(&self, address: &Address, timeout: Duration) -> io::Result<Stream> {
        let deadline = after(timeout);
        let socket = address.connect(self.local, timeout)?;
        if !address.secure {
            return Ok(Box::new(Plain::new(socket)));
        }
        let config = self.credentials.client().map_err(io::Error::other)?;
        let host = self.server_name.as_deref().unwrap_or_else(|| address.name());
        let name = ServerName::try_from(host.to_string())
            .map_err(|_| io::Error::other(format!("`{host}` is no name that a certificate can be for")))?;
        let session = ClientConnection::new(config, name).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Box::new(Encrypted::shake(socket, session, deadline)?))
    }

    /// Prepares an accepted connection.
    pub(crate) fn take(&self, socket: Socket, security: Security, timeout: Duration) -> io::Result<Stream> {
        let secure = match security {
            Security::Plaintext => false,
            Security::Tls => true,
            Security::Both => begins_handshake(&socket, timeout)?,
        };
        if !secure {
            return Ok(Box::new(Plain::new(socket)));
        }
        let config = self.credentials.server().ok_or_else(|| io::Error::other("there is no certificate to show"))?;
        let remote = socket.peer_addr()?.as_socket().map(|address| address.ip());
        let session = ServerConnection::new(config).map_err(|error| io::Error::other(error.to_string()))?;
        let stream = Encrypted::shake(socket, session, after(timeout))?;
        if let Some(chain) = stream.session().peer_certificates() {
            self.admit(chain, remote).map_err(|why| io::Error::new(io::ErrorKind::PermissionDenied, why))?;
        }
        Ok(Box::new(stream))
    }

    /// Checks the certificate of a member that connects. If it names addresses, one must be that of the member. It must
    /// not have expired or been revoked: TLS does not verify it again in a resumed session.
    fn admit(&self, chain: &[CertificateDer<'_>], remote: Option<IpAddr>) -> Result<(), String> {
        let Some(leaf) = chain.first() else { return Ok(()) };
        self.credentials.check_revoked(chain)?;
        let certificate = contain(|| Certificate::parse(leaf)).map_err(|panicked| panicked.to_string())??;
        if !certificate.is_valid_at(SystemTime::now()) {
            return Err("tls: failed to verify certificate: x509: certificate has expired or is not yet valid".into());
        }
        let names_nobody = certificate.ips.is_empty() && certificate.dns_names.is_empty();
        let Some(remote) = remote.filter(|_| !names_nobody && !self.credentials.skips_addresses()) else {
            return Ok(());
        };
        if !certificate.ips.is_empty() {
            match certificate.check_host(&remote.to_string()) {
                Err(why) if certificate.dns_names.is_empty() => return Err(why),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
        let is_of = |name: &String| {
            // A wildcard matches any host below the name, but the name server can only be asked for the name itself.
            let Ok(mut addresses) = (name.trim_start_matches("*."), 0).to_socket_addrs() else { return false };
            addresses.any(|address| address.ip().to_canonical() == remote.to_canonical())
        };
        if certificate.dns_names.iter().any(is_of) {
            return Ok(());
        }
        Err(format!("tls: {:?} does not match any of DNSNames {:?}", remote.to_string(), certificate.dns_names))
    }
}

/// Looks at the first byte without taking it.
fn begins_handshake(socket: &Socket, timeout: Duration) -> io::Result<bool> {
    socket.set_read_timeout(Some(timeout))?;
    let mut first = [std::mem::MaybeUninit::new(0)];
    let count = socket.peek(&mut first)?;
    socket.set_read_timeout(None)?;
    let [first] = first;
    // SAFETY: `first` was initialised above, and at most overwritten.
    Ok(count > 0 && unsafe { first.assume_init() } == RECORD_OF_HANDSHAKE)
}
