//! Streaming calls: order, back-pressure, wake-ups, ends.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{Client, answer, at_rest, eventually, framed, grpc, next_messages, options, serve};
use bytes::Bytes;
use h2::Reason;

#[tokio::test]
async fn a_chat_goes_both_ways() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let (response, mut stream) = client.open(grpc("Chat", &[])).await;
    stream.send_data(framed(b"one"), false).expect("sent");
    let mut body = response.await.expect("headers come with the first message").into_body();
    assert_eq!(next_messages(&mut body, 1).await, [&b"one"[..]]);
    stream.send_data(Bytes::from([framed(b"two"), framed(b""), framed(b"three")].concat()), false).expect("sent");
    assert_eq!(next_messages(&mut body, 3).await, [&b"two"[..], b"", b"three"]);
    assert_eq!(fixture.seen.handlers.load(Ordering::SeqCst), 1);
    stream.send_data(Bytes::new(), true).expect("sent");
    let (rest, trailers) = crate::common::rest(body).await;
    assert!(rest.is_empty());
    assert_eq!(trailers.expect("trailers")["grpc-status"], "0");
    eventually("the handler is dropped", || fixture.seen.handlers.load(Ordering::SeqCst) == 0).await;
    let counts = fixture.server.stats().method(9);
    assert_eq!((counts.started, counts.handled[0], counts.messages_received, counts.messages_sent), (1, 1, 4, 4));
}

#[tokio::test]
async fn a_handler_can_be_woken_from_any_thread() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let (response, stream) = client.open(grpc("Chat", &[])).await;
    let wakers = &fixture.seen.wakers;
    eventually("the call arrives", || wakers.lock().expect("not poisoned").len() == 1).await;
    let waker = wakers.lock().expect("not poisoned")[0].clone();
    for _ in 0..1000 {
        waker.wake();
    }
    let mut body = response.await.expect("headers come with the first message").into_body();
    assert!(!next_messages(&mut body, 1).await.is_empty());
    // What was asked for before the first of these calls is done before the second one is answered: the server has one thread.
    for _ in 0..2 {
        assert_eq!(client.unary("Now", b"").await.code(), 0);
    }
    // 1000 wake-ups need not be 1000 calls, and the last one is never lost.
    let before = fixture.server.stats().method(9).messages_sent;
    assert!((1..=1000).contains(&before), "{before}");
    waker.wake();
    eventually("it is woken again", || fixture.server.stats().method(9).messages_sent == before + 1).await;
    drop((body, stream));
    eventually("the handler is dropped", || fixture.seen.handlers.load(Ordering::SeqCst) == 0).await;
    waker.wake();
    assert_eq!(fixture.server.stats().method(9).handled[1], 1);
}

#[tokio::test]
async fn the_server_may_end_first() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let (response, mut stream) = client.open(grpc("Chat", &[])).await;
    stream.send_data(Bytes::from([framed(b"hi"), framed(b"bye"), framed(b"late")].concat()), false).expect("sent");
    let answer = answer(response).await;
    assert_eq!(answer.messages(), [&b"hi"[..]]);
    assert_eq!(answer.status(), (10, "bye".to_string()));
    assert_eq!(fixture.seen.handlers.load(Ordering::SeqCst), 0);
    let refused = client.call(grpc("Refuse", &[]), framed(b"")).await;
    assert_eq!(refused.status(), (7, "not you".to_string()));
}

#[tokio::test]
async fn what_a_handler_holds_keeps_its_client_from_sending_more() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let (_response, mut stream) = client.open(grpc("Hold", &[])).await;
    let taken = || fixture.seen.source_bytes.load(Ordering::SeqCst);
    let sending = tokio::spawn(async move {
        let message = framed(&[7; 1000]);
        for _ in 0..4000 {
            let mut rest = message.clone();
            while !rest.is_empty() {
                stream.reserve_capacity(rest.len());
                let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await.expect("open").expect("open");
                let now = rest.split_to(room.min(rest.len()));
                stream.send_data(now, false).expect("sent");
            }
        }
        stream
    });
    eventually("messages arrive", || taken() > 10_000).await;
    let before = at_rest(taken).await;
    assert!(before < 3_000_000 && !sending.is_finished(), "{before} bytes are taken");
    let waker = fixture.seen.wakers.lock().expect("not poisoned")[0].clone();
    eventually("the rest arrives", || {
        waker.wake();
        taken() == 4_000_000
    })
    .await;
    drop(sending.await.expect("all is sent"));
}

#[tokio::test]
async fn one_side_streams() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let answer = client.unary("Count", b"3 2").await;
    assert_eq!(answer.messages(), [&[2, 2][..], &[1, 1], &[0, 0]]);
    assert_eq!(answer.code(), 0);
    let body = Bytes::from((1..=100).flat_map(|n: i32| framed(n.to_string().as_bytes())).collect::<Vec<u8>>());
    assert_eq!(client.call(grpc("Sum", &[]), body).await.messages(), [&b"5050"[..]]);
    assert_eq!(client.call(grpc("Sum", &[]), Bytes::new()).await.messages(), [&b"0"[..]]);
}

#[tokio::test]
async fn a_producer_waits_for_a_slow_reader() {
    let fixture = serve(options());
    let mut client = Client::with_windows(fixture.address, 65_535, 1 << 20).await;
    let (count, size) = (2_000_usize, 10_000_usize);
    let (response, mut stream) = client.open(grpc("Count", &[])).await;
    stream.send_data(framed(format!("{count} {size}").as_bytes()), true).expect("sent");
    let body = response.await.expect("a response").into_body();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let made = fixture.seen.source_bytes.load(Ordering::SeqCst);
    // What the windows take, and as much to follow once they open.
    assert!(made <= 65_535 + api::limits::STREAM_AHEAD_BYTES_MAX + 2 * size, "{made} bytes made for nobody");
    let (body, trailers) = crate::common::rest(body).await;
    assert_eq!(trailers.expect("trailers")["grpc-status"], "0");
    let messages = crate::common::messages(body);
    assert_eq!(messages.len(), count);
    for (index, message) in messages.iter().enumerate() {
        assert_eq!(message, &vec![(count - 1 - index) as u8; size]);
    }
}

#[tokio::test]
async fn a_chatterbox_is_held_back() {
    let fixture = serve(options());
    // It never reads, so the echoes pile up and the server stops reading.
    let mut client = Client::with_windows(fixture.address, 1_000, 1 << 20).await;
    let (response, mut stream) = client.open(grpc("Chat", &[])).await;
    let message = framed(&[1; 10_000]);
    let sent = Cell::new(0);
    let mut rest = Bytes::new();
    let flood = async {
        loop {
            if rest.is_empty() {
                rest = message.clone();
            }
            stream.reserve_capacity(rest.len());
            let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await.expect("open").expect("open");
            let piece = rest.split_to(room.min(rest.len()));
            sent.set(sent.get() + piece.len());
            // The output bound, the receive window, and what the client had under way.
            assert!(sent.get() < 4 << 20, "{} bytes were accepted", sent.get());
            stream.send_data(piece, false).expect("sent");
        }
    };
    let held_back = async {
        eventually("much is accepted", || sent.get() > 1 << 19).await;
        at_rest(|| sent.get()).await
    };
    tokio::select! {
        () = flood => panic!("it has no end"),
        _ = held_back => {}
    }
    stream.send_reset(Reason::CANCEL);
    drop(response);
    eventually("the handler is dropped", || fixture.seen.handlers.load(Ordering::SeqCst) == 0).await;
    assert_eq!(client.unary("Now", b"").await.code(), 0);
}

#[tokio::test]
async fn deadlines_and_resets_drop_the_handler() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let (response, _stream) = client.open(grpc("Chat", &[("grpc-timeout", b"50m")])).await;
    assert_eq!(answer(response).await.status(), (4, "context deadline exceeded".to_string()));
    assert_eq!(fixture.seen.handlers.load(Ordering::SeqCst), 0);
    // After the client has half-closed, too.
    let (_response, mut stream) = client.open(grpc("Count", &[])).await;
    stream.send_data(framed(b"1000 100000"), true).expect("sent");
    eventually("the call arrives", || fixture.seen.handlers.load(Ordering::SeqCst) == 1).await;
    stream.send_reset(Reason::CANCEL);
    eventually("the handler is dropped", || fixture.seen.handlers.load(Ordering::SeqCst) == 0).await;
}
