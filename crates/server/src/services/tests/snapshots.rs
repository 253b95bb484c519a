//! Snapshots whose clients take nothing.

use crate::test_support::Rig;
use api::etcdserverpb::{PutRequest, PutResponse, SnapshotRequest, SnapshotResponse};
use api::{Code, Error, Message, limits};
use rpc::{LocalStream, Status};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const SNAPSHOT: &str = "/etcdserverpb.Maintenance/Snapshot";

/// Takes one message of a snapshot.
fn take(rig: &Rig, stream: &mut LocalStream) -> Result<SnapshotResponse, Status> {
    let mut next = None;
    rig.wait_for("a message", || {
        match stream.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(message) => next = Some(message),
            Poll::Pending => {}
        }
        next.is_some()
    });
    let whole = next.expect("waited for")?.into_whole().expect("as long as it says");
    Ok(SnapshotResponse::decode(whole).expect("an answer of this kind"))
}

/// How a snapshot ends, and the bytes that came before.
fn take_all(rig: &Rig, stream: &mut LocalStream) -> (u64, Status) {
    let mut bytes = 0;
    loop {
        match take(rig, stream) {
            Ok(message) => bytes += message.blob.len() as u64,
            Err(status) => return (bytes, status),
        }
    }
}

#[test]
fn clients_that_take_nothing_lose_their_places() {
    let rig = Rig::start(&[]);
    let value = bytes::Bytes::from(vec![7; 1 << 20]);
    for key in 0..4 {
        let put = PutRequest { key: format!("{key}").into(), value: value.clone(), ..Default::default() };
        let _: PutResponse = rig.call("/etcdserverpb.KV/Put", None, &put).expect("put");
    }
    let begin = || rig.stream(SNAPSHOT, None, &SnapshotRequest::default());
    let mut silent: Vec<LocalStream> = (0..limits::SNAPSHOTS_MAX).map(|_| begin()).collect();
    for stream in &mut silent {
        // Of all of them there is more than a stream takes.
        assert!(take(&rig, stream).expect("the first").remaining_bytes > 3 << 20);
    }
    let refused = take(&rig, &mut begin()).expect_err("there is no place");
    assert_eq!(refused, Error::TooManyRequests.into());

    rig.node().snapshots.look(Instant::now() + Duration::from_secs(24 * 3_600));
    assert_eq!((rig.node().snapshots.count(), rig.node().snapshots.ended()), (0, 8));
    let (bytes, status) = take_all(&rig, &mut begin());
    assert!(status == Status::OK && bytes > 4 << 20, "{bytes} bytes, then {status:?}");
    assert_eq!(rig.node().snapshots.count(), 0);
    for stream in &mut silent {
        let (bytes, status) = take_all(&rig, stream);
        assert_eq!(status.code, Code::ResourceExhausted);
        assert!(status.message.starts_with("the client of the snapshot took nothing of it for "), "{}", status.message);
        assert!(bytes < 2 << 20, "what was queued and no more: {bytes}");
    }
}
