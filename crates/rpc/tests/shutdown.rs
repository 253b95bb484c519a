//! The end of a server.

mod common;

use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Client, answer, eventually, framed, grpc, options, serve};
use tokio::net::TcpStream;

#[tokio::test]
async fn running_calls_are_finished() {
    let fixture = serve(rpc::Options { threads: 2, ..options() });
    let mut client = Client::connect(fixture.address).await;
    let (response, mut stream) = client.open(grpc("Later", &[])).await;
    stream.send_data(framed(b"in time"), true).expect("sent");
    eventually("the call arrives", || fixture.server.stats().method(1).started == 1).await;
    let began = Instant::now();
    let server = fixture.server;
    let stopped = tokio::task::spawn_blocking(move || server.shutdown(Duration::from_secs(20)));
    assert_eq!(answer(response).await.messages(), [&b"in time"[..]]);
    stopped.await.expect("no panic");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(TcpStream::connect(fixture.address).await.is_err());
    assert!(std::future::poll_fn(|cx| client.send.poll_ready(cx)).await.is_err());
}

#[tokio::test]
async fn the_grace_ends() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let (response, mut stream) = client.open(grpc("Never", &[])).await;
    stream.send_data(framed(b""), true).expect("sent");
    eventually("the call arrives", || fixture.server.stats().method(2).started == 1).await;
    let (chat, mut talk) = client.open(grpc("Chat", &[])).await;
    talk.send_data(framed(b"hello"), false).expect("sent");
    let chat = chat.await.expect("a response");
    let began = Instant::now();
    let server = fixture.server;
    tokio::task::spawn_blocking(move || server.shutdown(Duration::from_millis(200))).await.expect("no panic");
    assert!((Duration::from_millis(200)..Duration::from_secs(5)).contains(&began.elapsed()));
    assert!(response.await.is_err());
    drop(chat);
    assert!(fixture.seen.never.lock().expect("not poisoned")[0].is_canceled());
    assert_eq!(fixture.seen.handlers.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn idle_connections_do_not_delay_it() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    assert_eq!(client.unary("Now", b"").await.code(), 0);
    let silent = TcpStream::connect(fixture.address).await.expect("the server listens");
    let mut http1 = TcpStream::connect(fixture.address).await.expect("the server listens");
    tokio::io::AsyncWriteExt::write_all(&mut http1, b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    let mut first = [0; 8];
    tokio::io::AsyncReadExt::read_exact(&mut http1, &mut first).await.expect("a response");
    let began = Instant::now();
    let server = fixture.server;
    tokio::task::spawn_blocking(move || server.shutdown(Duration::from_secs(20))).await.expect("no panic");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop((silent, Bytes::new()));
}

#[tokio::test]
async fn dropping_it_stops_it() {
    let fixture = serve(options());
    drop(fixture.server);
    assert!(TcpStream::connect(fixture.address).await.is_err());
}
