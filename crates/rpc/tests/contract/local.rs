//! Calls without a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{Echo, METHODS, Seen};
use api::Code;
use api::limits::STREAM_SEND_BYTES_MAX;
use bytes::Bytes;
use rpc::{Address, LocalCall, LocalStream, Metadata, Peer, Reply, Service, Status};

fn call(path: &str) -> LocalCall {
    let method = METHODS.iter().position(|method| method.path.ends_with(path)).expect("a method of the table");
    let metadata = Metadata::from_iter([("token", "secret")]);
    LocalCall { method, metadata, deadline: None, peer: Peer::unknown(Address::Unix) }
}

fn within(test: impl AsyncFnOnce(&dyn Service, &Seen)) {
    let seen = Arc::new(Seen::default());
    let echo = Echo(seen.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(test(&echo, &seen));
    assert_eq!(seen.handlers.load(Ordering::SeqCst), 0, "handlers are dropped with their calls");
}

async fn unary(echo: &dyn Service, call: LocalCall, message: &'static str) -> Result<Bytes, Status> {
    match call.unary(echo, message.into()).await? {
        Reply::Whole(reply) => Ok(reply),
        Reply::Parts { .. } => panic!("a reply in parts"),
    }
}

/// The next message of a stream, whole.
async fn next(stream: &mut LocalStream) -> Result<Bytes, Status> {
    stream.next().await.map(|reply| reply.into_whole().expect("as long as it says"))
}

#[test]
fn unary_calls_are_answered() {
    within(async |echo, _| {
        assert_eq!(unary(echo, call("Now"), "x").await, Ok("x".into()));
        assert_eq!(unary(echo, call("Later"), "y").await, Ok("y".into()));
        assert_eq!(unary(echo, call("Token"), "").await, Ok("secret".into()));
        assert_eq!(unary(echo, call("Drop"), "").await, Err(api::Error::Stopped.into()));
        assert_eq!(unary(echo, call("Fail"), "").await.map_err(|status| status.code), Err(Code::DataLoss));
    });
}

#[test]
fn unary_calls_are_given_up() {
    within(async |echo, seen| {
        let in_time = LocalCall { deadline: Some(Instant::now() + Duration::from_millis(20)), ..call("Never") };
        assert_eq!(unary(echo, in_time, "").await.map_err(|status| status.code), Err(Code::DeadlineExceeded));
        let dropped = tokio::time::timeout(Duration::from_millis(20), unary(echo, call("Never"), "")).await;
        assert!(dropped.is_err());
        let never = seen.never.lock().expect("not poisoned");
        assert_eq!(never.iter().filter(|responder| responder.is_canceled()).count(), 2);
    });
}

#[test]
fn a_handler_hears_of_its_waker_before_all_is_taken() {
    within(async |echo, seen| {
        let mut chat = call("Chat").stream(echo).expect("a stream");
        chat.send("a".into());
        chat.send("b".into());
        seen.wakers.lock().expect("not poisoned")[0].wake();
        assert_eq!(next(&mut chat).await, Ok("a".into()));
        chat.send("c".into());
        assert_eq!(next(&mut chat).await, Ok("b".into()));
        assert_eq!((next(&mut chat).await, next(&mut chat).await), (Ok("ready".into()), Ok("c".into())));
    });
}

#[test]
fn streams_carry_messages_both_ways() {
    within(async |echo, seen| {
        let mut chat = call("Chat").stream(echo).expect("a stream");
        assert!(chat.has_room());
        chat.send("a".into());
        chat.send("b".into());
        assert_eq!((next(&mut chat).await, next(&mut chat).await), (Ok("a".into()), Ok("b".into())));
        let waker = seen.wakers.lock().expect("not poisoned")[0].clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        assert_eq!(next(&mut chat).await, Ok("ready".into()));
        chat.half_close();
        assert_eq!(next(&mut chat).await, Err(Status::OK));
        assert!(!chat.has_room());
        assert!(call("Refuse").stream(echo).is_err_and(|status| status.code == Code::PermissionDenied));
    });
}

#[test]
fn a_stream_makes_no_more_than_is_taken() {
    within(async |echo, seen| {
        let mut count = call("Count").stream(echo).expect("a stream");
        count.send("40 100000".into());
        count.half_close();
        assert!(seen.source_bytes.load(Ordering::SeqCst) <= STREAM_SEND_BYTES_MAX + 100_000);
        for _ in 0..40 {
            assert_eq!(next(&mut count).await.expect("a reply").len(), 100_000);
        }
        assert_eq!(next(&mut count).await, Err(Status::OK));
        let mut none = call("Count").stream(echo).expect("a stream");
        none.half_close();
        assert_eq!(next(&mut none).await.map_err(|status| status.code), Err(Code::Internal));
        let mut late = LocalCall { deadline: Some(Instant::now()), ..call("Chat") }.stream(echo).expect("a stream");
        assert_eq!(next(&mut late).await.map_err(|status| status.code), Err(Code::DeadlineExceeded));
    });
}
