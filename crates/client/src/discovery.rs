//! Members found by the SRV records of a domain.

use rpc::dns::{self, DnsError, Record};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use crate::{Endpoint, EndpointError, Security};

/// How long a member may take to accept a connection, and for each step of its handshake.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a domain names no members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// Neither of the two services has records.
    #[error("dns lookup errors: {0} and {1}")]
    Lookup(String, String),
    /// A record that cannot be used.
    #[error(transparent)]
    Endpoint(#[from] crate::EndpointError),
}

/// A member that a domain names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// Whether it is a record of the service for TLS.
    pub is_encrypted: bool,
    /// Where the member is.
    pub record: Record,
}

impl Discovered {
    /// Its URL, `https://m1.example.com:2379`.
    pub fn url(&self) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.record.target, self.record.port)
    }
}

/// Asks DNS for `_etcd-client-ssl._tcp.<domain>` and `_etcd-client._tcp.<domain>`, the services' names with `-<suffix>` if there is one.
/// Blocks as long as name servers take.
///
/// # Errors
/// If there are no records.
pub fn discover_records(domain: &str, suffix: &str) -> Result<Vec<Discovered>, DiscoveryError> {
    let (servers, random) = (dns::servers(), RandomState::new());
    let ask = |service: &str, is_encrypted: bool| -> Result<Vec<Discovered>, DnsError> {
        let suffix = if suffix.is_empty() { String::new() } else { format!("-{suffix}") };
        let name = format!("_{service}{suffix}._tcp.{domain}");
        let records = dns::srv(&servers, &name, random.hash_one(&name) as u16)?;
        Ok(records.into_iter().map(|record| Discovered { is_encrypted, record }).collect())
    };
    match (ask("etcd-client-ssl", true), ask("etcd-client", false)) {
        (Err(secure), Err(plain)) => Err(DiscoveryError::Lookup(secure.to_string(), plain.to_string())),
        (secure, plain) => Ok([secure.unwrap_or_default(), plain.unwrap_or_default()].concat()),
    }
}

/// The endpoints of [`discover_records`].
///
/// # Errors
/// If there are no records, or some cannot be used.
pub fn discover(domain: &str, suffix: &str) -> Result<Vec<Endpoint>, DiscoveryError> {
    discover_records(domain, suffix)?.iter().map(|found| Ok(found.url().parse()?)).collect()
}

/// Of `found`, what may be used where DNS is not trusted: records of the service for TLS whose member answers. With a file of `authorities`
/// the member must also prove, by TLS, that one of them vouches for it as `domain`. Beside those, what is wrong with the others. Blocks
/// for five seconds for each member at most.
pub fn reachable(found: Vec<Discovered>, domain: &str, authorities: Option<&Path>) -> (Vec<Discovered>, Vec<String>) {
    let mut wrong = Vec::new();
    let check = |member: &Discovered| {
        let url = member.url();
        if !member.is_encrypted {
            return Err(format!("{url:?} is insecure"));
        }
        try_member(member, domain, authorities).map_err(|why| format!("{url:?} failed to dial ({why})"))
    };
    let good = found.into_iter().filter(|member| check(member).map_err(|why| wrong.push(why)).is_ok()).collect();
    (good, wrong)
}

fn try_member(member: &Discovered, domain: &str, authorities: Option<&Path>) -> Result<(), String> {
    let text = |error: io::Error| trust::describe_io(&error);
    let host = (member.record.target.as_str(), member.record.port);
    let address = host.to_socket_addrs().map_err(text)?.next().ok_or("the name has no address")?;
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE).map_err(text)?;
    let Some(authorities) = authorities else { return Ok(()) };
    let (authorities, server_name) = (Some(authorities.to_path_buf()), Some(domain.to_string()));
    let security = Security { authorities, server_name, ..Security::default() };
    let endpoint: Endpoint = member.url().parse().map_err(|error: EndpointError| error.to_string())?;
    let encryption = security.encryption(&endpoint)?.ok_or("it is not encrypted")?;
    socket.set_read_timeout(Some(PATIENCE)).and_then(|()| socket.set_write_timeout(Some(PATIENCE))).map_err(text)?;
    let mut session = rustls::ClientConnection::new((encryption.config)()?, encryption.name)
        .map_err(|error| trust::describe(&error))?;
    while session.is_handshaking() {
        session.complete_io(&mut socket).map_err(text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn member(port: u16, is_encrypted: bool) -> Discovered {
        let record = Record { target: "127.0.0.1".into(), port, priority: 0, weight: 0 };
        Discovered { is_encrypted, record }
    }

    #[test]
    fn members_must_be_encrypted_and_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        // Nobody listens at port 1. A port that was free a moment ago may be another test's by now.
        let all = vec![member(port, true), member(port, false), member(1, true)];
        let (good, wrong) = reachable(all, "example.com", None);
        assert_eq!(good, [member(port, true)]);
        assert!(wrong[0].ends_with("is insecure") && wrong[1].contains("failed to dial"), "{wrong:?}");
        let (good, wrong) = reachable(vec![member(port, true)], "example.com", Some(Path::new("/nowhere/ca.pem")));
        assert!(good.is_empty() && wrong[0].contains("/nowhere/ca.pem"), "{wrong:?}");
    }

    #[test]
    fn only_members_that_the_authority_vouches_for_are_taken() {
        let serve = |name: &str| {
            let made = rcgen::generate_simple_self_signed(vec![name.to_string()]).expect("a certificate");
            let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
            let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key.into())
                .expect("a configuration");
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let config = std::sync::Arc::new(config);
            std::thread::spawn(move || {
                while let Ok((mut socket, _)) = listener.accept() {
                    let Ok(mut session) = rustls::ServerConnection::new(config.clone()) else { return };
                    while session.is_handshaking() && session.complete_io(&mut socket).is_ok() {}
                }
            });
            (port, made.cert.pem())
        };
        let (port, pem) = serve("example.com");
        let path = std::env::temp_dir().join(format!("cairn-discovered-{}.pem", std::process::id()));
        std::fs::write(&path, pem).expect("a file");
        let (good, wrong) = reachable(vec![member(port, true)], "example.com", Some(&path));
        assert_eq!((good.len(), wrong.len()), (1, 0), "{wrong:?}");
        let (stranger, _) = serve("example.com");
        let (good, wrong) = reachable(vec![member(stranger, true), member(port, true)], "other.com", Some(&path));
        assert_eq!((good.len(), wrong.len()), (0, 2), "{wrong:?}");
        drop(std::fs::remove_file(&path));
    }
}
