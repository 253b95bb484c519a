//! A service with a method for every shape of call, and a client that sees everything on the wire.
#![allow(dead_code, unreachable_pub)]

pub mod wire;

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::Code;
use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use rpc::{
    Call, HttpResponder, Kind, Method, Options, Outbound, Reply, Responder, Server, Service, Source, Status,
    StreamCall, StreamHandler, StreamWaker,
};
use tokio::net::TcpStream;

/// How long a busy machine may take for what a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How often a number is looked at, and how often it must be the same to be at rest.
const LOOK: Duration = Duration::from_millis(10);
const QUIET_LOOKS: usize = 50;

pub const METHODS: &[Method] = &[
    Method { path: "/test.Echo/Now", kind: Kind::Unary },
    Method { path: "/test.Echo/Later", kind: Kind::Unary },
    Method { path: "/test.Echo/Never", kind: Kind::Unary },
    Method { path: "/test.Echo/Drop", kind: Kind::Unary },
    Method { path: "/test.Echo/Fail", kind: Kind::Unary },
    Method { path: "/test.Echo/Parts", kind: Kind::Unary },
    Method { path: "/test.Echo/Token", kind: Kind::Unary },
    Method { path: "/test.Echo/Count", kind: Kind::ServerStream },
    Method { path: "/test.Echo/Sum", kind: Kind::ClientStream },
    Method { path: "/test.Echo/Chat", kind: Kind::Bidi },
    Method { path: "/test.Echo/Refuse", kind: Kind::Bidi },
    Method { path: "/test.Echo/Whole", kind: Kind::Unary },
    Method { path: "/test.Echo/Slip", kind: Kind::Unary },
    Method { path: "/test.Echo/Resume", kind: Kind::Unary },
    Method { path: "/test.Echo/ResumeNow", kind: Kind::Unary },
    Method { path: "/test.Echo/Hold", kind: Kind::Bidi },
];

/// What the service has seen.
#[derive(Default)]
pub struct Seen {
    pub never: Mutex<Vec<Responder>>,
    pub handlers: AtomicUsize,
    pub wakers: Mutex<Vec<StreamWaker>>,
    pub source_bytes: AtomicUsize,
    pub sources: AtomicUsize,
    pub unary_calls: AtomicUsize,
    pub is_short_of_memory: AtomicBool,
}

pub struct Echo(pub Arc<Seen>);

impl Service for Echo {
    fn methods(&self) -> &'static [Method] {
        METHODS
    }

    fn unary(&self, method: usize, call: Call, responder: Responder) {
        self.0.unary_calls.fetch_add(1, Ordering::SeqCst);
        match METHODS[method].path {
            "/test.Echo/Now" => responder.send(Ok(Reply::Whole(call.message))),
            "/test.Echo/Later" => {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(20));
                    responder.send(Ok(Reply::Whole(call.message)));
                });
            }
            "/test.Echo/Resume" => {
                let own = std::thread::current().id();
                std::thread::spawn(move || responder.resume(move |responder| answer_on(own, call, responder)));
            }
            "/test.Echo/ResumeNow" => {
                let own = std::thread::current().id();
                responder.resume(move |responder| answer_on(own, call, responder));
            }
            "/test.Echo/Never" => self.0.never.lock().expect("not poisoned").push(responder),
            "/test.Echo/Drop" => drop(responder),
            "/test.Echo/Fail" => responder.send(Err(Status::new(Code::DataLoss, "50% lost:\nschön"))),
            "/test.Echo/Slip" => {
                let slipped = contain::contain(|| assert!(call.message.is_empty(), "planted in a decoder"));
                responder.send(slipped.map(|()| Reply::Whole(Bytes::new())).map_err(Status::from));
            }
            "/test.Echo/Whole" => {
                let reply: Vec<u8> = (0..number(&call.message)).map(pattern).collect();
                responder.send(Ok(Reply::Whole(Bytes::from(reply))));
            }
            "/test.Echo/Parts" => {
                let len = number(&call.message);
                self.0.sources.fetch_add(1, Ordering::SeqCst);
                let source = Box::new(Pattern { left: len, at: 0, seen: self.0.clone() });
                responder.send(Ok(Reply::Parts { len, source }));
            }
            "/test.Echo/Token" => responder.send(Ok(Reply::Whole(match call.metadata.text("token") {
                None => Bytes::from_static(b"none"),
                Some(Err(_)) => Bytes::from_static(b"not utf-8"),
                Some(Ok(token)) => Bytes::copy_from_slice(token.as_bytes()),
            }))),
            other => panic!("{other} is not unary"),
        }
    }

    fn stream(&self, method: usize, call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        let path = METHODS[method].path;
        if path == "/test.Echo/Refuse" {
            return Err(Status::new(Code::PermissionDenied, "not you"));
        }
        self.0.handlers.fetch_add(1, Ordering::SeqCst);
        self.0.wakers.lock().expect("not poisoned").push(call.waker.clone());
        Ok(Box::new(Handler { path, seen: self.0.clone(), left: 0, size: 0, sum: 0, held: 0 }))
    }

    fn is_short_of_memory(&self, _client: rpc::Address) -> bool {
        self.0.is_short_of_memory.load(Ordering::SeqCst)
    }

    fn http(&self, request: http::Request<Bytes>, responder: HttpResponder) {
        let peer = request.extensions().get::<rpc::Peer>().is_some();
        let text = format!("{} {} {} {peer}", request.method(), request.uri().path(), request.body().len());
        match request.uri().path() {
            "/later" => {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(20));
                    responder.send(http::Response::new(Bytes::from(text)));
                });
            }
            "/drop" => drop(responder),
            "/large" => responder.send(http::Response::new(Bytes::from(vec![b'x'; 3_000_000]))),
            _ => {
                let mut response = http::Response::new(Bytes::from(text));
                *response.status_mut() = http::StatusCode::IM_A_TEAPOT;
                responder.send(response);
            }
        }
    }
}

/// Echoes on the thread that had the call first, and fails on any other.
fn answer_on(own: std::thread::ThreadId, call: Call, responder: Responder) {
    let is_own = std::thread::current().id() == own;
    let elsewhere = || Status::new(Code::Internal, "resumed on another thread");
    responder.send(is_own.then_some(Reply::Whole(call.message)).ok_or_else(elsewhere));
}

struct Handler {
    path: &'static str,
    seen: Arc<Seen>,
    left: usize,
    size: usize,
    sum: usize,
    /// What it has taken since it was woken last, and says that it holds.
    held: usize,
}

impl Handler {
    fn produce(&mut self, out: &mut Outbound<'_>) {
        while self.left > 0 && out.has_room() {
            self.left -= 1;
            out.send(Bytes::from(vec![self.left as u8; self.size]));
            self.seen.source_bytes.fetch_add(self.size, Ordering::SeqCst);
            if self.left == 0 {
                out.finish(Status::OK);
            }
        }
    }
}

impl StreamHandler for Handler {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        match self.path {
            "/test.Echo/Count" => {
                // "count size"
                let text = String::from_utf8_lossy(&message).into_owned();
                let (count, size) = text.split_once(' ').expect("two numbers");
                (self.left, self.size) = (count.parse().expect("a number"), size.parse().expect("a number"));
                self.produce(out);
            }
            "/test.Echo/Sum" => self.sum += number(&message),
            "/test.Echo/Hold" => {
                self.held += message.len();
                self.seen.source_bytes.fetch_add(message.len(), Ordering::SeqCst);
            }
            _ if &message[..] == b"bye" => out.finish(Status::new(Code::Aborted, "bye")),
            _ => out.send(message),
        }
    }

    fn half_closed(&mut self, out: &mut Outbound<'_>) {
        match self.path {
            "/test.Echo/Sum" => {
                out.send(Bytes::from(self.sum.to_string()));
                out.finish(Status::OK);
            }
            "/test.Echo/Chat" => out.finish(Status::OK),
            _ => {}
        }
    }

    fn ready(&mut self, out: &mut Outbound<'_>) {
        match self.path {
            "/test.Echo/Chat" => out.send(Bytes::from_static(b"ready")),
            "/test.Echo/Hold" => self.held = 0,
            _ => self.produce(out),
        }
    }

    fn answers_in_a_crowd(&self) -> bool {
        self.path == "/test.Echo/Chat"
    }

    fn held_bytes(&self) -> usize {
        self.held
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.seen.handlers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes that count up, so that a hole or a swap shows.
struct Pattern {
    left: usize,
    at: usize,
    seen: Arc<Seen>,
}

impl Source for Pattern {
    fn next(&mut self, bytes_max: usize) -> Option<Bytes> {
        let len = self.left.min(bytes_max).min(10_000);
        if len == 0 {
            return None;
        }
        let piece: Vec<u8> = (self.at..self.at + len).map(pattern).collect();
        self.at += len;
        self.left -= len;
        self.seen.source_bytes.fetch_add(len, Ordering::SeqCst);
        Some(Bytes::from(piece))
    }
}

impl Drop for Pattern {
    fn drop(&mut self) {
        self.seen.sources.fetch_sub(1, Ordering::SeqCst);
    }
}

pub fn pattern(at: usize) -> u8 {
    (at % 251) as u8
}

fn number(message: &[u8]) -> usize {
    String::from_utf8_lossy(message).parse().expect("a number")
}

/// A server on a port of its own, and what its service sees.
pub struct Fixture {
    pub server: Server,
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
}

pub fn serve(options: Options) -> Fixture {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let seen = Arc::new(Seen::default());
    let server = Server::start(vec![listener], Arc::new(Echo(seen.clone())), options).expect("starts");
    Fixture { server, address, seen }
}

pub fn options() -> Options {
    Options { threads: 1, message_bytes_max: 1 << 20, body_bytes_max: 1 << 20, ..Options::default() }
}

/// A whole response.
#[derive(Debug)]
pub struct Answer {
    pub http_status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// The grpc-status and the raw grpc-message, from trailers or from the headers alone.
    pub fn status(&self) -> (u8, String) {
        let from = self.trailers.as_ref().unwrap_or(&self.headers);
        let code = from["grpc-status"].to_str().expect("ascii").parse().expect("a number");
        let message = from.get("grpc-message").map_or("", |value| value.to_str().expect("ascii"));
        (code, message.to_string())
    }

    pub fn code(&self) -> u8 {
        self.status().0
    }

    pub fn messages(&self) -> Vec<Bytes> {
        messages(self.body.clone())
    }
}

pub fn messages(mut body: Bytes) -> Vec<Bytes> {
    let mut found = Vec::new();
    while !body.is_empty() {
        let head = body.split_to(5);
        assert_eq!(head[0], 0, "replies are not compressed");
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        found.push(body.split_to(len));
    }
    found
}

pub fn framed(message: &[u8]) -> Bytes {
    flagged(0, message)
}

pub fn flagged(flag: u8, message: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.extend_from_slice(&[flag]);
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out.freeze()
}

pub struct Client {
    pub send: SendRequest<Bytes>,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        Client::with_windows(address, 1 << 20, 1 << 20).await
    }

    pub async fn with_windows(address: SocketAddr, stream: u32, connection: u32) -> Client {
        let socket = TcpStream::connect(address).await.expect("the server listens");
        let (send, connection) = h2::client::Builder::new()
            .initial_window_size(stream)
            .initial_connection_window_size(connection)
            .handshake(socket)
            .await
            .expect("the server speaks HTTP/2");
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Client { send }
    }

    pub async fn open(&mut self, request: Request<()>) -> (ResponseFuture, SendStream<Bytes>) {
        std::future::poll_fn(|cx| self.send.poll_ready(cx)).await.expect("connected");
        self.send.send_request(request, false).expect("sent")
    }

    /// One call whose body is `body`.
    pub async fn call(&mut self, request: Request<()>, body: Bytes) -> Answer {
        let (response, mut stream) = self.open(request).await;
        stream.send_data(body, true).expect("sent");
        answer(response).await
    }

    /// One call with one message.
    pub async fn unary(&mut self, method: &str, message: &[u8]) -> Answer {
        self.call(grpc(method, &[]), framed(message)).await
    }
}

pub async fn answer(response: ResponseFuture) -> Answer {
    let (head, body) = response.await.expect("a response").into_parts();
    let mut answer =
        Answer { http_status: head.status.as_u16(), headers: head.headers, body: Bytes::new(), trailers: None };
    (answer.body, answer.trailers) = rest(body).await;
    answer
}

pub async fn rest(mut body: RecvStream) -> (Bytes, Option<HeaderMap>) {
    let mut all = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data.expect("a body");
        body.flow_control().release_capacity(data.len()).expect("it was received");
        all.extend_from_slice(&data);
    }
    (all.freeze(), body.trailers().await.expect("trailers"))
}

/// Reads from `body` until `count` messages are there.
pub async fn next_messages(body: &mut RecvStream, count: usize) -> Vec<Bytes> {
    let mut all = BytesMut::new();
    loop {
        let data = body.data().await.expect("more").expect("a body");
        body.flow_control().release_capacity(data.len()).expect("it was received");
        all.extend_from_slice(&data);
        let found = messages(all.clone().freeze());
        if found.len() >= count {
            return found;
        }
    }
}

/// The headers of a gRPC call.
pub fn grpc(method: &str, headers: &[(&str, &[u8])]) -> Request<()> {
    let headers: HashMap<&str, &[u8]> = [("content-type", &b"application/grpc"[..]), ("te", b"trailers")]
        .into_iter()
        .chain(headers.iter().copied())
        .collect();
    let mut request = Request::post(format!("http://localhost/test.Echo/{method}"));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.body(()).expect("a request")
}

/// Waits until `condition` holds.
pub async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until `number` has not changed for a while.
pub async fn at_rest(number: impl Fn() -> usize) -> usize {
    let (mut last, mut quiet) = (number(), 0);
    while quiet < QUIET_LOOKS {
        tokio::time::sleep(LOOK).await;
        let now = number();
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
    }
    last
}
