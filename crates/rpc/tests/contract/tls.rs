//! Connections over TLS: the same service behind handshakes, and what happens to those who do not shake hands.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::Echo;
use rpc::{Acceptor, Address, Gatekeeper, Listener, Options, Refusal, Server, Serves};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

const PATIENCE: Duration = Duration::from_secs(10);

/// Lets everybody in, and remembers who was refused.
struct Gate {
    config: Arc<ServerConfig>,
    refusals: Mutex<Vec<String>>,
}

impl Gatekeeper for Gate {
    fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    fn admit(&self, _: &ServerConnection, _: &Address) -> Result<Option<Arc<str>>, String> {
        Ok(Some("somebody".into()))
    }

    fn rejected(&self, _: &Address, _: Option<&str>, refusal: &Refusal) {
        self.refusals.lock().expect("unharmed").push(format!("{refusal:?}"));
    }
}

/// A server with TLS, and what its clients trust.
struct Site {
    server: Server,
    gate: Arc<Gate>,
    address: std::net::SocketAddr,
    client: Arc<ClientConfig>,
}

fn site(plaintext: bool, options: Options) -> Site {
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    let certificate: CertificateDer<'static> = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("a pair");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("an authority");
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let gate = Arc::new(Gate { config: Arc::new(config), refusals: Mutex::default() });
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("bound");
    let gatekeeper: Arc<dyn Gatekeeper> = gate.clone();
    let listener =
        Listener { acceptor: Acceptor::Tcp(socket), gatekeeper: Some(gatekeeper), plaintext, serves: Serves::All };
    let server = Server::start(vec![listener], Arc::new(Echo(Arc::default())), options).expect("started");
    Site { server, gate, address, client: Arc::new(client) }
}

impl Site {
    fn dial(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).expect("listening");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        socket
    }

    fn secure(&self) -> StreamOwned<ClientConnection, TcpStream> {
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(self.client.clone(), name).expect("a session");
        StreamOwned::new(session, self.dial())
    }
}

/// Asks for a page, with a body of so many bytes, and reads to the end.
fn ask(stream: impl Read + Write, bytes: usize) -> String {
    ask_for(stream, "/", bytes)
}

fn ask_for(mut stream: impl Read + Write, path: &str, bytes: usize) -> String {
    let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {bytes}\r\n\r\n");
    // What is refused early is not read to its end.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&vec![b'x'; bytes]);
    let mut answer = Vec::new();
    // Whether the end is announced is the server's business.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_first_byte_tells() {
    let both = site(true, Options { threads: 1, ..Options::default() });
    assert!(ask(both.secure(), 10).starts_with("HTTP/1.1 418"));
    assert!(ask(both.dial(), 10).starts_with("HTTP/1.1 418"));
    let only = site(false, Options { threads: 1, ..Options::default() });
    assert!(ask(only.secure(), 10).starts_with("HTTP/1.1 418"));
    assert!(!ask(only.dial(), 10).contains("418"));
    await_that("the refusal is reported", || !only.gate.refusals.lock().expect("unharmed").is_empty());
    assert_eq!(only.server.stats().handshakes().failed.load(Ordering::Relaxed), 1);
}

/// More than fits any buffer on the way, both ways.
#[test]
fn large_bodies_pass() {
    let site = site(false, Options { threads: 1, ..Options::default() });
    for bytes in [0, 1, 16 * 1024 - 1, 16 * 1024 + 1, 1 << 20] {
        let answer = ask(site.secure(), bytes);
        assert!(
            answer.starts_with("HTTP/1.1 418") && answer.contains(&format!("POST / {bytes} true")),
            "{answer:.200}"
        );
    }
    assert!(ask_for(site.secure(), "/large", 0).len() > 3_000_000);
}

#[test]
fn whoever_stalls_is_given_up() {
    let site = site(true, Options { threads: 1, handshake_timeout: Duration::from_millis(300), ..Options::default() });
    let silent = site.dial();
    let mut half = site.dial();
    half.write_all(&[22, 3, 1, 2, 0, 1, 0]).expect("written");
    for mut stalled in [silent, half] {
        assert!(matches!(stalled.read(&mut [0; 16]), Ok(0) | Err(_)), "it is closed");
    }
    assert_eq!(site.server.stats().handshakes().timed_out.load(Ordering::Relaxed), 2);
    assert!(ask(site.secure(), 1).starts_with("HTTP/1.1 418"));
}

/// An address that opens ever more connections and says nothing on them takes the places from itself, not from others.
#[test]
fn one_address_does_not_take_the_places_of_others() {
    let site = site(false, Options { threads: 1, handshake_timeout: Duration::from_secs(600), ..Options::default() });
    let counts = site.server.stats().handshakes().clone();
    // Another address has begun first, and is in the middle of its handshake.
    let elsewhere = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    elsewhere.bind(&std::net::SocketAddr::from(([127, 0, 0, 2], 0)).into()).expect("all of 127/8 is this host");
    elsewhere.connect(&site.address.into()).expect("listening");
    let elsewhere = TcpStream::from(elsewhere);
    elsewhere.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut silent: Vec<_> = (0..1024 + 100).map(|_| site.dial()).collect();
    await_that("too many are given up", || counts.given_up.load(Ordering::Relaxed) >= 101);
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(site.client.clone(), name).expect("a session");
    assert!(ask(StreamOwned::new(session, elsewhere), 1).starts_with("HTTP/1.1 418"), "it has lost its place");
    // The oldest of the address with most of them have lost theirs.
    for mut first in silent.drain(..100) {
        assert!(matches!(first.read(&mut [0; 16]), Ok(0) | Err(_)), "it is closed");
    }
    assert_eq!(counts.timed_out.load(Ordering::Relaxed), 0);
}
