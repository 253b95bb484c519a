//! HTTP bodies that come and go in pieces, and connections that leave HTTP.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Client, at_rest, eventually, options};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use rpc::{
    Call, HttpResponder, Method, Options, RequestBody, Responder, Server, Service, Status, StreamCall, StreamHandler,
    Upgrade,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Requests that wait, pieces that a flood has sent, and clients that were seen to go.
#[derive(Default)]
struct Seen {
    waiting: AtomicUsize,
    flooded: AtomicUsize,
    gone: AtomicUsize,
}

struct Pieces(Arc<Seen>);

impl Service for Pieces {
    fn methods(&self) -> &'static [Method] {
        &[]
    }

    fn unary(&self, _: usize, _: Call, responder: Responder) {
        drop(responder);
    }

    fn stream(&self, _: usize, _: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        Err(api::Error::Stopped.into())
    }

    fn http(&self, request: Request<Bytes>, mut responder: HttpResponder) {
        let seen = self.0.clone();
        responder.add_header(http::header::VARY, http::HeaderValue::from_static("Origin"));
        if request.uri().path() == "/wait" {
            seen.waiting.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                responder.gone().await;
                seen.gone.fetch_add(1, Ordering::SeqCst);
            });
            return;
        }
        tokio::spawn(async move {
            let mut body = responder.begin(Response::new(()));
            for _ in 0..200 {
                if body.send(Bytes::from(vec![b'x'; 64 * 1024])).await.is_err() {
                    seen.gone.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                seen.flooded.fetch_add(1, Ordering::SeqCst);
            }
            if request.uri().path() == "/flood" {
                body.finish();
            }
        });
    }

    fn takes_pieces(&self, head: &http::request::Parts) -> bool {
        matches!(head.uri.path(), "/echo" | "/upgrade" | "/unread")
    }

    fn http_in_pieces(&self, request: Request<RequestBody>, responder: HttpResponder) {
        let (head, mut body) = request.into_parts();
        tokio::spawn(async move {
            if let Some(upgrade) = head.extensions.get::<Upgrade>().cloned() {
                let mut response = Response::new(Bytes::new());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                response.headers_mut().insert("upgrade", http::HeaderValue::from_static("echo"));
                responder.send(response);
                let mut stream = upgrade.take().await.expect("a connection");
                let mut room = [0; 100];
                while let Ok(count @ 1..) = stream.read(&mut room).await {
                    stream.write_all(&room[..count]).await.expect("written");
                }
                return;
            }
            if head.uri.path() == "/unread" {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            let (mut sender, mut count) = (None, 0);
            let mut responder = Some(responder);
            while let Some(Ok(piece)) = body.next().await {
                if let Some(responder) = responder.take() {
                    sender = Some(responder.begin(Response::new(())));
                }
                count += piece.len();
                let text = if count > 10_000 { Bytes::new() } else { piece.to_ascii_uppercase().into() };
                if let Some(sender) = &mut sender
                    && sender.send(text).await.is_err()
                {
                    return;
                }
            }
            if let Some(mut sender) = sender {
                let _ = sender.send(count.to_string().into()).await;
                sender.finish();
            }
        });
    }
}

fn serve(options: Options) -> (Server, SocketAddr, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let seen = Arc::new(Seen::default());
    let server = Server::start(vec![listener], Arc::new(Pieces(seen.clone())), options).expect("starts");
    (server, address, seen)
}

fn post(path: &str) -> Request<()> {
    Request::builder().method("POST").uri(format!("http://localhost{path}")).body(()).expect("a request")
}

async fn read_until(socket: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    let mut room = [0; 1000];
    while !text.ends_with(end) {
        let count = socket.read(&mut room).await.expect("more");
        assert!(count > 0, "closed after {text:?}");
        text.push_str(&String::from_utf8_lossy(&room[..count]));
    }
    text
}

#[tokio::test]
async fn http2_answers_while_the_request_comes() {
    let (_server, address, _) = serve(options());
    let mut client = Client::connect(address).await;
    let (response, mut stream) = client.open(post("/echo")).await;
    stream.send_data("one".into(), false).expect("sent");
    let response = response.await.expect("a response");
    let mut body = response.into_body();
    assert_eq!(body.data().await.expect("a piece").expect("a piece"), "ONE");
    stream.send_data("two".into(), false).expect("sent");
    assert_eq!(body.data().await.expect("a piece").expect("a piece"), "TWO");
    stream.send_data(Bytes::new(), true).expect("sent");
    assert_eq!(body.data().await.expect("a piece").expect("a piece"), "6");
    assert!(body.data().await.is_none());
}

#[tokio::test]
async fn http2_requests_are_held_back_until_they_are_read() {
    let (_server, address, _) = serve(options());
    let mut client = Client::connect(address).await;
    let (response, mut stream) = client.open(post("/unread")).await;
    stream.reserve_capacity(20_000_000);
    stream.send_data(Bytes::from(vec![b'y'; 20_000_000]), true).expect("queued");
    tokio::time::sleep(Duration::from_millis(150)).await;
    let mut body = response.await.expect("a response").into_body();
    let mut text = Vec::new();
    while let Some(piece) = body.data().await {
        text.extend_from_slice(&piece.expect("a piece"));
    }
    assert!(text.ends_with(b"20000000"), "{}", String::from_utf8_lossy(&text[text.len().saturating_sub(20)..]));
}

#[tokio::test]
async fn responses_wait_for_their_readers() {
    let (_server, address, seen) = serve(options());
    let mut client = Client::with_windows(address, 65_535, 65_535).await;
    let (response, _stream) = client.open(post("/flood")).await;
    let (response, mut stream) = (response, _stream);
    stream.send_data(Bytes::new(), true).expect("sent");
    let response = response.await.expect("a response");
    assert_eq!(response.headers()["vary"], "Origin");
    let flooded = at_rest(|| seen.flooded.load(Ordering::SeqCst)).await;
    assert!(flooded < 40, "{flooded} pieces for nobody");
    let mut body = response.into_body();
    let mut count = 0;
    while let Some(piece) = body.data().await {
        let piece = piece.expect("a piece");
        count += piece.len();
        body.flow_control().release_capacity(piece.len()).expect("room");
    }
    assert_eq!(count, 200 * 64 * 1024);

    // One that breaks off is reset, and one that nobody reads any more ends.
    let (response, mut stream) = client.open(post("/broken")).await;
    stream.send_data(Bytes::new(), true).expect("sent");
    let mut body = response.await.expect("a response").into_body();
    let mut end = Ok(());
    while end.is_ok()
        && let Some(piece) = body.data().await
    {
        match piece {
            Ok(piece) => body.flow_control().release_capacity(piece.len()).expect("room"),
            Err(error) => end = Err(error),
        }
    }
    assert!(end.is_err_and(|error| error.is_reset()));
    let (response, mut stream) = client.open(post("/flood")).await;
    stream.send_data(Bytes::new(), true).expect("sent");
    drop(response.await.expect("a response"));
    drop(stream);
    eventually("the flood ends with its reader", || seen.gone.load(Ordering::SeqCst) == 1).await;
    let (response, stream) = client.open(post("/wait")).await;
    let (response, mut stream) = (response, stream);
    stream.send_data(Bytes::new(), true).expect("sent");
    eventually("the request comes", || seen.waiting.load(Ordering::SeqCst) == 1).await;
    drop((response, stream));
    eventually("the responder learns that the client has gone", || seen.gone.load(Ordering::SeqCst) == 2).await;
}

#[tokio::test]
async fn http1_answers_while_the_request_comes() {
    let (_server, address, seen) = serve(options());
    let mut socket = TcpStream::connect(address).await.expect("the server listens");
    socket
        .write_all(b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        .await
        .expect("sent");
    read_until(&mut socket, "ONE\r\n").await;
    socket.write_all(b"3\r\ntwo\r\n").await.expect("sent");
    read_until(&mut socket, "TWO\r\n").await;
    socket.write_all(b"0\r\n\r\n").await.expect("sent");
    read_until(&mut socket, "6\r\n0\r\n\r\n").await;
    // The same connection, and its end while a response waits and while one is made.
    socket.write_all(b"GET /flood HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    eventually("the response is begun", || seen.flooded.load(Ordering::SeqCst) > 0).await;
    drop(socket);
    eventually("the flood ends with its reader", || seen.gone.load(Ordering::SeqCst) == 1).await;
    let mut socket = TcpStream::connect(address).await.expect("the server listens");
    socket.write_all(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    eventually("the request comes", || seen.waiting.load(Ordering::SeqCst) == 1).await;
    drop(socket);
    eventually("the responder learns that the client has gone", || seen.gone.load(Ordering::SeqCst) == 2).await;
}

#[tokio::test]
async fn connections_leave_http() {
    let (server, address, _) = serve(options());
    let mut socket = TcpStream::connect(address).await.expect("the server listens");
    let head = b"GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nearly";
    socket.write_all(head).await.expect("sent");
    let text = read_until(&mut socket, "early").await;
    assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
    socket.write_all(b"late").await.expect("sent");
    read_until(&mut socket, "late").await;
    let stats = server.stats();
    assert_eq!(stats.connections_open(), 1, "it counts as open");
    drop(socket);
    eventually("the connection is counted as closed", || stats.connections_open() == 0).await;
}

#[tokio::test]
async fn bodies_come_in_time_or_not_at_all() {
    let slow = Options { http_body_timeout: Duration::from_millis(100), ..options() };
    let (_server, address, _) = serve(slow);
    let mut socket = TcpStream::connect(address).await.expect("the server listens");
    socket.write_all(b"POST /flood HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhel").await.expect("sent");
    let text = read_until(&mut socket, "Request Timeout\n").await;
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    let mut client = Client::connect(address).await;
    let (response, mut stream) = client.open(post("/flood")).await;
    stream.send_data("hel".into(), false).expect("sent");
    assert_eq!(response.await.expect("a response").status(), 408);
}
