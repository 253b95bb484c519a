//! Unary calls: replies, statuses, metadata, deadlines, cancellation.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{Client, answer, eventually, framed, grpc, options, pattern, serve};
use h2::Reason;

#[tokio::test]
async fn replies_now_and_later() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    for method in ["Now", "Later"] {
        for message in [&b""[..], b"hello", &[7; 100_000]] {
            let answer = client.unary(method, message).await;
            assert_eq!((answer.http_status, answer.status()), (200, (0, String::new())), "{method}");
            assert_eq!(answer.headers["content-type"], "application/grpc");
            assert_eq!(answer.messages(), [message]);
        }
    }
}

#[tokio::test]
async fn calls_are_resumed_by_the_thread_of_their_connection() {
    let fixture = serve(rpc::Options { threads: 2, ..options() });
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::connect(fixture.address).await);
    }
    for client in &mut clients {
        for method in ["Resume", "ResumeNow", "Resume"] {
            let answer = client.unary(method, b"hello").await;
            assert_eq!(answer.status(), (0, String::new()), "{method}");
            assert_eq!(answer.messages(), [&b"hello"[..]]);
        }
    }
}

#[tokio::test]
async fn calls_that_have_ended_are_not_resumed() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let (response, mut stream) = client.open(grpc("Never", &[])).await;
    stream.send_data(framed(b"hello"), true).expect("sent");
    let waiting = || fixture.seen.never.lock().expect("not poisoned");
    eventually("the service has it", || !waiting().is_empty()).await;
    stream.send_reset(h2::Reason::CANCEL);
    drop(response);
    eventually("it has ended", || waiting().iter().all(rpc::Responder::is_canceled)).await;
    let responder = waiting().pop().expect("the one call");
    let (resumed, seen) = std::sync::mpsc::channel();
    responder.resume(move |_| resumed.send(()).expect("the test waits"));
    assert!(seen.recv().is_err(), "a reply that nobody waits for was made");
}

#[tokio::test]
async fn many_calls_at_once_on_two_threads() {
    let fixture = serve(rpc::Options { threads: 2, ..options() });
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::connect(fixture.address).await);
    }
    let mut calls = tokio::task::JoinSet::new();
    for round in 0..200_usize {
        for client in &mut clients {
            let method = if round % 2 == 0 { "Now" } else { "Later" };
            let message = round.to_string().into_bytes();
            let (response, mut stream) = client.open(grpc(method, &[])).await;
            stream.send_data(framed(&message), true).expect("sent");
            calls.spawn(async move {
                let answer = answer(response).await;
                assert_eq!(answer.code(), 0);
                assert_eq!(answer.messages(), [message]);
            });
        }
    }
    while let Some(done) = calls.join_next().await {
        done.expect("the call is answered");
    }
    let stats = fixture.server.stats();
    assert_eq!((stats.connections_accepted(), stats.connections_open()), (4, 4));
    for method in [0, 1] {
        let counts = stats.method(method);
        assert_eq!((counts.started, counts.handled[0]), (400, 400));
        assert_eq!((counts.messages_received, counts.messages_sent), (400, 400));
    }
    assert_eq!(stats.bytes_received(), stats.bytes_sent());
    drop(clients);
    eventually("connections are closed", || stats.connections_open() == 0).await;
}

#[tokio::test]
async fn statuses_are_trailers_only_and_encoded() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let failed = client.unary("Fail", b"").await;
    assert!(failed.trailers.is_none() && failed.body.is_empty());
    assert_eq!(failed.status(), (15, "50%25 lost:%0Asch%C3%B6n".to_string()));
    let dropped = client.unary("Drop", b"").await;
    assert_eq!(dropped.status(), (14, "etcdserver: server stopped".to_string()));
}

#[tokio::test]
async fn unknown_paths_are_unimplemented() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    for (path, text) in [
        ("/test.Echo/Missing", "unknown method Missing for service test.Echo"),
        ("/test.Other/Now", "unknown service test.Other"),
        ("/nothing", "malformed method name: \"/nothing\""),
    ] {
        let mut request = grpc("Now", &[]);
        *request.uri_mut() = format!("http://localhost{path}").parse().expect("a uri");
        let answer = client.call(request, framed(b"x")).await;
        assert_eq!(answer.status(), (12, text.to_string()));
        assert_eq!(answer.headers["content-type"], "application/grpc");
    }
    let mut request = grpc("Now", &[]);
    *request.method_mut() = http::Method::GET;
    let answer = client.call(request, framed(b"x")).await;
    let text = "Received a HEADERS frame with :method \"GET\" which should be POST".to_string();
    assert_eq!((answer.http_status, answer.status()), (405, (13, text)));
}

#[tokio::test]
async fn metadata_reaches_the_service() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    for (headers, seen) in [
        (&[][..], &b"none"[..]),
        (&[("token", &b"secret"[..])][..], b"secret"),
        (&[("token", &b"\xff\xfe"[..])][..], b"not utf-8"),
        (&[("trace-bin", &b"AAECAw"[..]), ("token", b"t")][..], b"t"),
    ] {
        let answer = client.call(grpc("Token", headers), framed(b"")).await;
        assert_eq!(answer.messages(), [seen]);
    }
    let answer = client.call(grpc("Token", &[("trace-bin", b"*")]), framed(b"")).await;
    assert_eq!((answer.http_status, answer.code()), (400, 13));
    assert!(answer.status().1.starts_with("malformed binary metadata \"*\" in header \"trace-bin\""));
    for (content_type, echoed) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc+proto"),
        ("application/grpc;charset=utf-8", "application/grpc"),
    ] {
        let request = grpc("Now", &[("content-type", content_type.as_bytes())]);
        assert_eq!(client.call(request, framed(b"")).await.headers["content-type"], echoed);
    }
}

#[tokio::test]
async fn deadlines_end_calls() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let began = Instant::now();
    let late = client.call(grpc("Never", &[("grpc-timeout", b"50m")]), framed(b"")).await;
    assert_eq!(late.status(), (4, "context deadline exceeded".to_string()));
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert!(fixture.seen.never.lock().expect("not poisoned")[0].is_canceled());
    let at_once = client.call(grpc("Now", &[("grpc-timeout", b"0n")]), framed(b"")).await;
    assert_eq!(at_once.code(), 4);
    let in_time = client.call(grpc("Later", &[("grpc-timeout", b"10S")]), framed(b"ok")).await;
    assert_eq!(in_time.messages(), [&b"ok"[..]]);
    let malformed = client.call(grpc("Now", &[("grpc-timeout", b"soox")]), framed(b"")).await;
    let text = "malformed grpc-timeout: transport: timeout unit is not recognized: \"soox\"".to_string();
    assert_eq!((malformed.http_status, malformed.status()), (400, (13, text)));
    // A client that never finishes its request runs into its deadline too.
    let (response, _stream) = client.open(grpc("Now", &[("grpc-timeout", b"50m")])).await;
    assert_eq!(answer(response).await.code(), 4);
    // An answer after the deadline goes nowhere.
    let responder = fixture.seen.never.lock().expect("not poisoned").remove(0);
    responder.send(Ok(rpc::Reply::Whole(bytes::Bytes::new())));
    assert_eq!(client.unary("Now", b"still here").await.code(), 0);
    assert_eq!(fixture.server.stats().method(2).handled[4], 1);
}

#[tokio::test]
async fn a_reset_cancels_the_call() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let (_response, mut stream) = client.open(grpc("Never", &[])).await;
    stream.send_data(framed(b""), true).expect("sent");
    let never = &fixture.seen.never;
    eventually("the call arrives", || never.lock().expect("not poisoned").len() == 1).await;
    assert!(!never.lock().expect("not poisoned")[0].is_canceled());
    stream.send_reset(Reason::CANCEL);
    eventually("it is canceled", || never.lock().expect("not poisoned")[0].is_canceled()).await;
    let stats = fixture.server.stats();
    eventually("it is counted", || stats.method(2).handled[1] == 1).await;
    // The same when the connection goes.
    let mut other = Client::connect(fixture.address).await;
    let (response, mut stream) = other.open(grpc("Never", &[])).await;
    stream.send_data(framed(b""), true).expect("sent");
    eventually("the call arrives", || never.lock().expect("not poisoned").len() == 2).await;
    drop((response, stream, other));
    eventually("it is canceled", || never.lock().expect("not poisoned")[1].is_canceled()).await;
    eventually("it is counted", || stats.method(2).handled[1] == 2).await;
}

#[tokio::test]
async fn parts_are_made_as_the_window_opens() {
    let fixture = serve(options());
    let len = 3_000_000_usize;
    let mut client = Client::with_windows(fixture.address, 100_000, 1 << 20).await;
    let (response, mut stream) = client.open(grpc("Parts", &[])).await;
    stream.send_data(framed(len.to_string().as_bytes()), true).expect("sent");
    let body = response.await.expect("a response").into_body();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let made = fixture.seen.source_bytes.load(Ordering::SeqCst);
    assert!(made <= 100_000, "{made} bytes made for a window of 100000");
    let (body, trailers) = crate::common::rest(body).await;
    assert_eq!(trailers.expect("trailers")["grpc-status"], "0");
    let message = &crate::common::messages(body)[0];
    assert_eq!(message.len(), len);
    assert!(message.iter().enumerate().all(|(at, byte)| *byte == pattern(at)));
    // A reset lets go of the source.
    let (response, mut stream) = client.open(grpc("Parts", &[])).await;
    stream.send_data(framed(len.to_string().as_bytes()), true).expect("sent");
    let body = response.await.expect("a response").into_body();
    assert_eq!(fixture.seen.sources.load(Ordering::SeqCst), 1);
    drop((body, stream));
    eventually("the source is dropped", || fixture.seen.sources.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn whole_replies_wait_for_the_window() {
    let fixture = serve(options());
    // Less than the prefix of a message.
    let mut client = Client::with_windows(fixture.address, 3, 1 << 20).await;
    for message in [&b""[..], b"x", &[7; 500]] {
        let answer = client.unary("Now", message).await;
        assert_eq!((answer.code(), answer.messages()), (0, vec![bytes::Bytes::copy_from_slice(message)]));
    }
    let (response, mut stream) = client.open(grpc("Now", &[])).await;
    stream.send_data(framed(&[1; 1000]), true).expect("sent");
    let mut body = response.await.expect("headers need no window").into_body();
    assert_eq!(body.data().await.expect("data").expect("a body").len(), 3);
    assert!(tokio::time::timeout(Duration::from_millis(50), body.data()).await.is_err());
}
