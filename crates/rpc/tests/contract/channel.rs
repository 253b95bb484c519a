//! Channels: calls from many tasks over one connection that comes and goes.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use crate::common::{Fixture, PATIENCE, eventually, options, serve};
use api::Code;
use bytes::Bytes;
use rpc::client::{Channel, Options};
use rpc::{Metadata, Status};

fn channel(fixture: &Fixture) -> Channel {
    Channel::new(&fixture.address.to_string(), Options::default())
}

async fn unary(channel: &Channel, method: &str, message: &'static [u8]) -> Result<Bytes, Status> {
    let path = format!("/test.Echo/{method}");
    channel.unary(&path, &Metadata::default(), Bytes::from_static(message), Some(PATIENCE)).await
}

fn code<T>(outcome: Result<T, Status>) -> Code {
    outcome.err().map_or(Code::Ok, |status| status.code)
}

#[tokio::test]
async fn many_tasks_share_a_connection() {
    // Fewer streams than calls: the others wait for their turn.
    let fixture = serve(rpc::Options { concurrent_streams_max: 7, ..options() });
    let channel = channel(&fixture);
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let channel = channel.clone();
            tokio::spawn(async move {
                let method = if number % 2 == 0 { "/test.Echo/Now" } else { "/test.Echo/Later" };
                let message = Bytes::from(vec![number; 1 + usize::from(number) * 500]);
                let answer = channel.unary(method, &Metadata::default(), message.clone(), None).await;
                assert_eq!(answer, Ok(message));
            })
        })
        .collect();
    for call in calls {
        call.await.expect("the right answer");
    }
    let open: u64 = fixture.server.stats().connections_open();
    assert_eq!(open, 1);
}

#[tokio::test]
async fn errors_deadlines_and_limits_have_their_codes() {
    let fixture = serve(options());
    let channel = channel(&fixture);
    assert_eq!(unary(&channel, "Fail", b"").await, Err(Status::new(Code::DataLoss, "50% lost:\nschön")));
    assert_eq!(code(unary(&channel, "Nothing", b"").await), Code::Unimplemented);
    let (nothing, soon) = (Metadata::default(), Some(Duration::from_millis(50)));
    let never = channel.unary("/test.Echo/Never", &nothing, Bytes::new(), soon).await;
    assert_eq!(code(never), Code::DeadlineExceeded);
    let token: Metadata = [("token", "secret")].into_iter().collect();
    let said = channel.unary("/test.Echo/Token", &token, Bytes::new(), None).await;
    assert_eq!(said, Ok(Bytes::from_static(b"secret")));
    let small = Channel::new(&fixture.address.to_string(), Options { message_bytes_max: 1000, ..Options::default() });
    assert_eq!(unary(&small, "Whole", b"1000").await.map(|answer| answer.len()), Ok(1000));
    assert_eq!(code(unary(&small, "Whole", b"1001").await), Code::ResourceExhausted);
    assert_eq!(unary(&small, "Now", b"still there").await, Ok(Bytes::from_static(b"still there")));
}

#[tokio::test]
async fn streams_go_both_ways() {
    let fixture = serve(options());
    let channel = channel(&fixture);
    let mut chat = channel.stream("/test.Echo/Chat", &Metadata::default(), None).await.expect("connected");
    for number in 0..20_usize {
        let message = Bytes::from(vec![number as u8; number * 10_000]);
        chat.send(message.clone()).await.expect("sent");
        assert_eq!(chat.next().await, Ok(Some(message)));
    }
    chat.finish();
    assert_eq!(chat.next().await, Ok(None));
    assert_eq!(chat.next().await, Ok(None));
    assert!(chat.send(Bytes::new()).await.is_err());

    let mut sum = channel.stream("/test.Echo/Sum", &Metadata::default(), None).await.expect("connected");
    for number in ["1", "20", "300"] {
        sum.send(Bytes::from(number)).await.expect("sent");
    }
    sum.finish();
    assert_eq!(sum.next().await, Ok(Some(Bytes::from("321"))));
    assert_eq!(sum.next().await, Ok(None));

    let mut refused = channel.stream("/test.Echo/Refuse", &Metadata::default(), None).await.expect("connected");
    assert_eq!(code(refused.next().await), Code::PermissionDenied);
}

#[tokio::test]
async fn a_stream_that_is_not_read_is_held_to_its_window() {
    let fixture = serve(options());
    let windows = Options { stream_window_bytes: 50_000, ..Options::default() };
    let channel = Channel::new(&fixture.address.to_string(), windows);
    let minute = Some(Duration::from_secs(60));
    let mut count = channel.stream("/test.Echo/Count", &Metadata::default(), minute).await.expect("connected");
    count.send(Bytes::from_static(b"10000 1000")).await.expect("sent");
    count.finish();
    assert_eq!(count.next().await.map(|message| message.map(|message| message.len())), Ok(Some(1000)));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(fixture.seen.source_bytes.load(Ordering::SeqCst) < 5_000_000, "the server waits");
    // Others are not held up by it.
    assert_eq!(unary(&channel, "Now", b"x").await, Ok(Bytes::from_static(b"x")));
    let mut messages = 1;
    while let Some(message) = count.next().await.expect("a message") {
        assert_eq!(message.len(), 1000);
        messages += 1;
    }
    assert_eq!(messages, 10_000);
}

#[tokio::test]
async fn a_message_waits_until_there_is_room_for_it() {
    let fixture = serve(options());
    let windows = Options { stream_window_bytes: 10_000, ..Options::default() };
    let channel = Channel::new(&fixture.address.to_string(), windows);
    let mut count = channel.stream("/test.Echo/Count", &Metadata::default(), None).await.expect("connected");
    count.send(Bytes::from_static(b"3 100000")).await.expect("sent");
    count.finish();
    for _ in 0..3 {
        assert_eq!(count.next_len().await, Ok(Some(100_000)));
        assert_eq!(count.next_len().await, Ok(Some(100_000)), "it is still to come");
        assert_eq!(count.next().await.map(|message| message.map(|message| message.len())), Ok(Some(100_000)));
    }
    assert_eq!((count.next_len().await, count.next().await), (Ok(None), Ok(None)));
    let mut refused = channel.stream("/test.Echo/Refuse", &Metadata::default(), None).await.expect("connected");
    assert_eq!(refused.next_len().await.err().map(|status| status.code), Some(Code::PermissionDenied));
}

#[tokio::test]
async fn what_is_dropped_is_given_up() {
    let fixture = serve(options());
    let channel = channel(&fixture);
    let call = tokio::spawn({
        let channel = channel.clone();
        async move { unary(&channel, "Never", b"x").await }
    });
    eventually("the call has come", || fixture.seen.never.lock().expect("not poisoned").len() == 1).await;
    call.abort();
    eventually("the call is given up", || fixture.seen.never.lock().expect("not poisoned")[0].is_canceled()).await;
    let chat = channel.stream("/test.Echo/Chat", &Metadata::default(), None).await.expect("connected");
    eventually("the stream is open", || fixture.seen.handlers.load(Ordering::SeqCst) == 1).await;
    drop(chat);
    eventually("the stream is gone", || fixture.seen.handlers.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_lost_connection_ends_calls_and_is_made_anew() {
    let fixture = serve(options());
    let address = fixture.address;
    let channel = channel(&fixture);
    assert!(unary(&channel, "Now", b"x").await.is_ok());
    let pending = tokio::spawn({
        let channel = channel.clone();
        async move { unary(&channel, "Never", b"x").await }
    });
    eventually("the call has come", || fixture.seen.never.lock().expect("not poisoned").len() == 1).await;
    tokio::task::spawn_blocking(move || drop(fixture)).await.expect("stops");
    assert_eq!(code(pending.await.expect("ends")), Code::Unavailable);
    assert_eq!(code(unary(&channel, "Now", b"x").await), Code::Unavailable);
    let Ok(listener) = std::net::TcpListener::bind(address) else { return };
    let seen = std::sync::Arc::default();
    let _server = rpc::Server::start(vec![listener], std::sync::Arc::new(crate::common::Echo(seen)), options());
    assert_eq!(unary(&channel, "Now", b"back").await, Ok(Bytes::from_static(b"back")));
}

#[tokio::test]
async fn only_calls_that_were_not_begun_are_unsent() {
    let fixture = serve(rpc::Options { concurrent_streams_max: 1, ..options() });
    let channel = channel(&fixture);
    let begun = tokio::spawn({
        let channel = channel.clone();
        async move { unary(&channel, "Never", b"x").await }
    });
    eventually("the call has come", || fixture.seen.never.lock().expect("not poisoned").len() == 1).await;
    // There is a connection: polled once, the call is handed over to it.
    let mut queued = pin!(unary(&channel, "Now", b"x"));
    let has_ended = std::future::poll_fn(|cx| Poll::Ready(queued.as_mut().poll(cx).is_ready())).await;
    assert!(!has_ended, "it waits for its turn");
    tokio::task::spawn_blocking(move || drop(fixture)).await.expect("stops");
    let unsent = |outcome: Result<Bytes, Status>| {
        let status = outcome.expect_err("nobody is there");
        assert_eq!(status.code, Code::Unavailable, "{status:?}");
        status.is_unsent()
    };
    assert!(!unsent(begun.await.expect("ends")));
    assert!(unsent(queued.await));
    assert!(unsent(unary(&channel, "Now", b"x").await), "nobody can be connected to");
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let pulse = Options {
        keepalive_interval: Duration::from_millis(100),
        keepalive_timeout: Duration::from_millis(100),
        ..Options::default()
    };
    let silent = Channel::new(&address, pulse);
    let outcome = unary(&silent, "Now", b"x").await;
    assert_eq!(code(outcome.clone()), Code::Unavailable, "{outcome:?}");
    let patience = Options { connect_timeout: Duration::from_millis(100), ..Options::default() };
    let outcome = unary(&Channel::new(&address, patience), "Now", b"x").await;
    assert_eq!(code(outcome.clone()), Code::Unavailable, "{outcome:?}");
}

/// So it is with TLS 1.3 when the server does not take the certificate: it says so only after the handshake.
#[tokio::test]
async fn a_server_that_hangs_up_before_its_settings_was_never_connected() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let outcome = Channel::new(&address, Options::default()).connect().await;
    let status = outcome.expect_err("nobody is there");
    assert!(status.message.starts_with(&format!("cannot connect to `{address}`: ")), "{status:?}");
}
