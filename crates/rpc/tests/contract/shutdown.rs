//! The end of a server.

use std::time::{Duration, Instant};

use crate::common::{Client, PATIENCE, answer, eventually, framed, grpc, options, serve};
use bytes::Bytes;
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
    let stopped = tokio::task::spawn_blocking(move || server.shutdown(2 * PATIENCE, Duration::ZERO));
    assert_eq!(answer(response).await.messages(), [&b"in time"[..]]);
    stopped.await.expect("no panic");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
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
    tokio::task::spawn_blocking(move || server.shutdown(Duration::from_millis(200), Duration::ZERO))
        .await
        .expect("no panic");
    assert!((Duration::from_millis(200)..PATIENCE).contains(&began.elapsed()));
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
    tokio::task::spawn_blocking(move || server.shutdown(2 * PATIENCE, Duration::ZERO)).await.expect("no panic");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    drop((silent, Bytes::new()));
}

/// A call of `method` whose reply is larger than the client's window.
async fn large(client: &mut Client, method: &str) -> h2::RecvStream {
    let (response, mut stream) = client.open(grpc(method, &[])).await;
    stream.send_data(framed(b"1000000"), true).expect("sent");
    response.await.expect("a response").into_body()
}

/// Takes a large answer slowly while its server shuts down. False if it was cut off after both sides had stood still for a while: a client
/// that takes nothing for a second is given up, and on a busy machine that may be any client.
async fn is_waited_for() -> bool {
    const STANDSTILL: Duration = Duration::from_millis(100);
    let fixture = serve(options());
    let mut client = Client::with_windows(fixture.address, 65_535, 1 << 24).await;
    let mut body = large(&mut client, "Parts").await;
    let began = Instant::now();
    let server = fixture.server;
    let grace = Duration::from_millis(100);
    let stopped = tokio::task::spawn_blocking(move || server.shutdown(grace, 2 * PATIENCE));
    let (mut read, mut last, mut longest) = (0, began, Duration::ZERO);
    while let Some(data) = body.data().await {
        longest = longest.max(last.elapsed());
        last = Instant::now();
        let data = match data {
            Err(_) if longest > STANDSTILL => return false,
            data => data.expect("the server waits"),
        };
        read += data.len();
        tokio::time::sleep(Duration::from_millis(10)).await;
        body.flow_control().release_capacity(data.len()).expect("it was received");
    }
    assert!(read > 1_000_000 && began.elapsed() > 3 * grace, "{read} bytes in {:?}", began.elapsed());
    assert!(body.trailers().await.expect("trailers").is_some());
    stopped.await.expect("no panic");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    true
}

#[tokio::test]
async fn answers_that_are_taken_are_waited_for() {
    for _ in 0..20 {
        if is_waited_for().await {
            return;
        }
    }
    panic!("each answer is cut off");
}

#[tokio::test]
async fn who_takes_nothing_and_streams_without_end_are_not_waited_for() {
    let fixture = serve(options());
    let mut client = Client::with_windows(fixture.address, 65_535, 65_535).await;
    let body = large(&mut client, "Parts").await;
    let mut other = Client::connect(fixture.address).await;
    let (chat, mut talk) = other.open(grpc("Chat", &[])).await;
    talk.send_data(framed(b"hello"), false).expect("sent");
    let chat = chat.await.expect("a response");
    let began = Instant::now();
    let server = fixture.server;
    let grace = Duration::from_millis(200);
    tokio::task::spawn_blocking(move || server.shutdown(grace, 2 * PATIENCE)).await.expect("no panic");
    assert!((grace..PATIENCE).contains(&began.elapsed()), "{:?}", began.elapsed());
    drop((body, chat, talk));
}

#[tokio::test]
async fn dropping_it_stops_it() {
    let fixture = serve(options());
    drop(fixture.server);
    assert!(TcpStream::connect(fixture.address).await.is_err());
}
