//! The client over TLS: which certificates it trusts, and files that change while it runs.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::Code;
use api::etcdserverpb::RangeRequest;
use bytes::Bytes;
use client::{Client, Endpoint, Error, Options, OptionsError, Security};
use rpc::{
    Acceptor, Address, Call, Gatekeeper, HttpResponder, Kind, Listener, Method, Refusal, Reply, Responder, Server,
    Serves, Service, Status, StreamCall, StreamHandler,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};

const METHODS: &[Method] = &[Method { path: "/etcdserverpb.KV/Range", kind: Kind::Unary }];

/// Answers, then closes the connection: every call makes a new one.
struct Once(Mutex<Arc<ServerConfig>>);

impl Gatekeeper for Once {
    fn config(&self) -> Arc<ServerConfig> {
        self.0.lock().expect("unharmed").clone()
    }

    fn admit(&self, _: &ServerConnection, _: &Address) -> Result<Option<Arc<str>>, String> {
        Ok(None)
    }

    fn rejected(&self, _: &Address, _: Option<&str>, _: &Refusal) {}
}

struct Empty;

impl Service for Empty {
    fn methods(&self) -> &'static [Method] {
        METHODS
    }

    fn unary(&self, _method: usize, _call: Call, responder: Responder) {
        responder.send(Ok(Reply::Whole(Bytes::new())));
    }

    fn stream(&self, _method: usize, _call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        Err(Status::new(Code::Unimplemented, "no streams"))
    }

    fn http(&self, _request: http::Request<Bytes>, _responder: HttpResponder) {}
}

/// A certificate for `name` that vouches for itself, written to a file, and a server that shows it.
fn certificate(name: &str, file: &Path) -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed([name.to_string()]).expect("a certificate");
    std::fs::write(file, made.cert.pem()).expect("a file");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key);
    let mut config = config.expect("a pair");
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

struct Site {
    gate: Arc<Once>,
    port: u16,
    server: Option<Server>,
}

impl Site {
    fn start(config: Arc<ServerConfig>) -> Site {
        let mut site = Site { gate: Arc::new(Once(Mutex::new(config))), port: 0, server: None };
        site.restart();
        site
    }

    /// Ends all connections, and takes new ones on the same port.
    fn restart(&mut self) {
        self.server = None;
        let socket = TcpListener::bind(("127.0.0.1", self.port)).expect("a port");
        self.port = socket.local_addr().expect("an address").port();
        let gatekeeper: Arc<dyn Gatekeeper> = self.gate.clone();
        let acceptor = Acceptor::Tcp(socket);
        let listener = Listener { acceptor, gatekeeper: Some(gatekeeper), plaintext: false, serves: Serves::All };
        let options = rpc::Options { threads: 1, ..rpc::Options::default() };
        self.server = Some(Server::start(vec![listener], Arc::new(Empty), options).expect("a server"));
    }

    fn client(&self, host: &str, security: Security) -> Result<Client, OptionsError> {
        let endpoint: Endpoint = format!("https://{host}:{}", self.port).parse().expect("an endpoint");
        let call_timeout = Some(Duration::from_secs(2));
        Client::new(Options { endpoints: vec![endpoint], call_timeout, security, ..Options::default() })
    }
}

fn trusting(file: &Path) -> Security {
    Security { authorities: Some(file.into()), ..Security::default() }
}

fn directory(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("cairn-client-tls-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

async fn refusal(client: &Client) -> String {
    client.range(RangeRequest::default()).await.map_err(|error: Error| error.to_string()).expect_err("refused")
}

#[tokio::test]
async fn only_members_that_prove_their_name_are_believed() {
    let dir = directory("name");
    let (good, other) = (dir.join("good.pem"), dir.join("other.pem"));
    let site = Site::start(certificate("localhost", &good));
    certificate("localhost", &other);
    let client = site.client("localhost", trusting(&good)).expect("a client");
    client.range(RangeRequest::default()).await.expect("an answer");
    let stranger = refusal(&site.client("localhost", trusting(&other)).expect("a client")).await;
    assert!(stranger.contains("authentication handshake failed: tls: failed to verify certificate"), "{stranger}");
    let elsewhere = refusal(&site.client("127.0.0.1", trusting(&good)).expect("a client")).await;
    assert!(elsewhere.contains("cannot validate certificate for 127.0.0.1"), "{elsewhere}");
    let named = Security { server_name: Some("localhost".into()), ..trusting(&good) };
    let client = site.client("127.0.0.1", named).expect("a client");
    client.range(RangeRequest::default()).await.expect("an answer under another name");
    let careless = Security { skips_verification: true, ..Security::default() };
    let client = site.client("127.0.0.1", careless).expect("a client");
    client.range(RangeRequest::default()).await.expect("an answer of anybody");
    let absent = site.client("localhost", trusting(&dir.join("absent.pem"))).err().expect("refused").to_string();
    assert!(absent.ends_with("absent.pem: no such file or directory"), "{absent}");
    std::fs::remove_dir_all(&dir).expect("removed");
}

#[tokio::test]
async fn files_are_read_anew_with_every_connection() {
    let dir = directory("reload");
    let file = dir.join("ca.pem");
    let mut site = Site::start(certificate("localhost", &file));
    let client = site.client("localhost", trusting(&file)).expect("a client");
    client.range(RangeRequest::default()).await.expect("an answer");
    *site.gate.0.lock().expect("unharmed") = certificate("localhost", &file);
    site.restart();
    client.range(RangeRequest::default()).await.expect("an answer of the member with another certificate");
    // Half a file is passed over: the last one that was of use counts.
    std::fs::write(&file, "-----BEGIN CERT").expect("a file");
    site.restart();
    client.range(RangeRequest::default()).await.expect("an answer while the file is being written");
    std::fs::remove_dir_all(&dir).expect("removed");
}
