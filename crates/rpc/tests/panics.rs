//! A panic over what one connection has sent ends that connection, and no other.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::wire::{frame, settings};
use common::{Client, eventually, framed, grpc, options, serve};
use contain::contained_total;
use rpc::frame::{PREFACE, Reason, kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What counts panics is the process's.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// What the server sends before it ends the connection.
async fn rest(mut socket: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    // A connection that is closed over unread input is reset.
    let _ = tokio::time::timeout(Duration::from_secs(60), socket.read_to_end(&mut all)).await.expect("an end");
    all
}

#[tokio::test]
async fn the_others_are_served() {
    let _alone = ALONE.lock().await;
    let fixture = serve(options());
    let mut other = Client::connect(fixture.address).await;
    let (chat, mut talk) = other.open(grpc("Chat", &[])).await;
    talk.send_data(framed(b"hello"), false).expect("sent");
    let mut chat = chat.await.expect("a response").into_body();
    let open = || fixture.server.stats().connections_open();
    eventually("it is open", || open() == 1).await;
    let before = contained_total();

    // HTTP/2, with a handler and a call of its own that are under way.
    let mut socket = TcpStream::connect(fixture.address).await.expect("the server listens");
    let mut encoder = rpc::hpack::Encoder::new();
    let mut call = |method, stream| {
        let block = common::wire::block(&mut encoder, method, &[]);
        frame(kind::HEADERS, rpc::frame::flag::END_HEADERS, stream, &block)
    };
    let (chat_head, never_head) = (call("Chat", 1), call("Never", 3));
    let body = frame(kind::DATA, rpc::frame::flag::END_STREAM, 3, &framed(b""));
    let begun = [&PREFACE[..], &settings(&[]), &chat_head, &never_head, &body].concat();
    socket.write_all(&begun).await.expect("sent");
    eventually("both calls are under way", || {
        let handlers = fixture.seen.handlers.load(std::sync::atomic::Ordering::SeqCst);
        handlers == 2 && fixture.seen.never.lock().expect("not poisoned").len() == 1
    })
    .await;
    socket.write_all(&frame(kind::PING, 0, 0, b"planted!")).await.expect("sent");
    rest(socket).await;
    eventually("it is counted as closed", || open() == 1).await;
    assert_eq!(contained_total(), before + 1);
    let handlers = || fixture.seen.handlers.load(std::sync::atomic::Ordering::SeqCst);
    eventually("its handler is dropped", || handlers() == 1).await;
    let never = fixture.seen.never.lock().expect("not poisoned").pop().expect("a call");
    assert!(never.is_canceled(), "nobody waits for it");
    // In the place of that connection there may be another one, which has nothing to do with the answer.
    let mut next = Client::connect(fixture.address).await;
    never.send(Ok(rpc::Reply::Whole(Bytes::from_static(b"of another"))));
    assert_eq!(next.unary("Now", b"its own").await.messages(), [&b"its own"[..]]);

    // HTTP/1.1.
    let mut socket = TcpStream::connect(fixture.address).await.expect("the server listens");
    socket.write_all(b"GET /x HTTP/1.1\r\nhost: x\r\nx-y: planted!\r\n\r\n").await.expect("sent");
    assert!(!rest(socket).await.starts_with(b"HTTP/1.1 2"));
    eventually("it is counted as closed", || open() == 2).await;
    assert_eq!(contained_total(), before + 2);

    talk.send_data(framed(b"again"), true).expect("sent");
    let heard = common::next_messages(&mut chat, 2).await;
    assert_eq!(heard, [&b"hello"[..], b"again"]);
}

/// Of a service, which has contained it itself: the client is told, then the connection ends.
#[tokio::test]
async fn a_slip_of_the_service_ends_the_connection() {
    let _alone = ALONE.lock().await;
    let fixture = serve(options());
    let mut other = Client::connect(fixture.address).await;
    assert_eq!(other.unary("Slip", b"").await.code(), 0);
    let mut client = Client::connect(fixture.address).await;
    let answer = client.unary("Slip", b"x").await;
    assert_eq!(answer.status(), (13, "internal error: a panic, which is in the log".to_string()));
    let ended = std::future::poll_fn(|cx| client.send.poll_ready(cx));
    eventually("the connection ends", || {
        fixture.server.stats().connection_errors(Reason::INTERNAL_ERROR) == 1
            && fixture.server.stats().connections_open() == 1
    })
    .await;
    assert!(ended.await.is_err(), "nothing more is begun on it");
    assert_eq!(other.unary("Now", b"x").await.code(), 0);
}
