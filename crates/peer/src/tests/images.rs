//! Database images of leaders that are etcd.

use super::test_support::{Memory, Recorder, Site, answer, message, request};
use crate::{Image, Known};
use api::Message as _;
use api::raftpb::{Message, MessageType, Snapshot, SnapshotMetadata};
use contain::lock;
use std::io::Write as _;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

/// An image in memory.
struct InMemory {
    bytes: Vec<u8>,
    bytes_max: usize,
    takes: Duration,
    recorder: Arc<Recorder>,
}

impl Image for InMemory {
    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > self.bytes_max { Err("no space left".into()) } else { Ok(()) }
    }

    fn install(self: Box<Self>, message: Message) -> Result<(), String> {
        std::thread::sleep(self.takes);
        lock(&self.recorder.seen).installed.push((message, self.bytes));
        Ok(())
    }
}

/// A member with a peer 2 that is etcd, and takes images of so many bytes.
fn site(bytes_max: usize) -> Site {
    site_that_takes(bytes_max, Duration::ZERO)
}

/// The same, which takes so long to install one.
fn site_that_takes(bytes_max: usize, takes: Duration) -> Site {
    let site = Site::new(1);
    site.peers.set(2, vec!["http://127.0.0.1:1".into()]);
    let recorder = site.recorder.clone();
    let open = move || {
        let recorder = recorder.clone();
        let image: Box<dyn Image> = Box::new(InMemory { bytes: Vec::new(), bytes_max, takes, recorder });
        Ok(image)
    };
    *lock(&site.recorder.image_opener) = Some(Box::new(open));
    site
}

fn snapshot(kind: MessageType, from: u64, to: u64) -> Message {
    let metadata = SnapshotMetadata { index: Some(9), term: Some(3), ..SnapshotMetadata::default() };
    let snapshot = Snapshot { metadata: Some(metadata), data: Some(vec![1; 1000].into()) };
    Message { snapshot: Some(snapshot), ..message(kind, from, to, 0) }
}

/// What etcd sends: the message's length, the message, the image.
fn body(message: &Message, image: &[u8]) -> Vec<u8> {
    let message = message.encode_to_vec();
    [&(message.len() as u64).to_be_bytes()[..], &message, image].concat()
}

fn chunked(body: &[u8]) -> Vec<u8> {
    let mut bytes = request("POST /raft/snapshot", "Transfer-Encoding: chunked\r\n").into_bytes();
    for chunk in body.chunks(100_000) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

#[test]
fn a_members_image_is_installed() {
    let a = site(usize::MAX);
    let image: Vec<u8> = (0..3_000_000_u32).map(|number| (number / 7) as u8).collect();
    let body = body(&snapshot(MessageType::MsgSnap, 2, 1), &image);
    let answer = a.raw(&chunked(&body));
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    let more = format!("Content-Length: {}\r\n", body.len());
    let answer = a.raw(&[request("POST /raft/snapshot", &more).as_bytes(), &body].concat());
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    let installed = std::mem::take(&mut lock(&a.recorder.seen).installed);
    assert_eq!(installed.len(), 2);
    for (message, bytes) in installed {
        assert!(bytes == image, "{} bytes", bytes.len());
        let snapshot = message.snapshot.expect("kept");
        assert_eq!((snapshot.metadata.expect("kept").index(), snapshot.data), (9, None));
    }
}

/// A sender of Cairn's is told that the work goes on, so that it waits for as long as that takes; one of etcd's is not.
#[test]
fn only_members_of_cairn_are_told_of_progress() {
    let a = site_that_takes(usize::MAX, Duration::from_millis(2500));
    let body = body(&snapshot(MessageType::MsgSnap, 2, 1), &[7; 1000]);
    // One comes each second; on a busy machine one more or less.
    for (header, interim) in [("", 0..=0), ("X-Cairn-Peer: 1\r\n", 1..=3)] {
        let more = format!("Content-Length: {}\r\n{header}", body.len());
        let answer = a.raw(&[request("POST /raft/snapshot", &more).as_bytes(), &body].concat());
        assert!(interim.contains(&answer.matches("HTTP/1.1 102 ").count()), "{answer}");
        assert!(answer.contains("HTTP/1.1 204 "), "{answer}");
    }
}

#[test]
fn other_images_are_refused() {
    let a = site(1 << 20);
    let good = snapshot(MessageType::MsgSnap, 2, 1);
    for (bytes, status, text) in [
        (body(&snapshot(MessageType::MsgApp, 2, 1), b"x"), 400, "wrong raft message type"),
        (body(&message(MessageType::MsgSnap, 2, 1, 0), b"x"), 400, "wrong raft message type"),
        (body(&snapshot(MessageType::MsgSnap, 3, 1), b"x"), 400, "another member than its sender"),
        (body(&snapshot(MessageType::MsgSnap, 2, 9), b"x"), 412, "mismatch member"),
        (vec![0xff; 100], 400, "its length is impossible"),
        ([&(2_u64 << 20).to_be_bytes()[..], &[0; 100]].concat(), 400, "its length is impossible"),
        ([&[0, 0, 0, 0, 0, 0, 0, 9][..], &[0xff; 9]].concat(), 400, "failed to decode raft message"),
        (vec![0; 3], 400, "its length is impossible"),
        (body(&good, b"")[..50].to_vec(), 400, "its length is impossible"),
        (body(&good, &vec![0; 3 << 20]), 500, "no space left"),
    ] {
        let answer = a.raw(&chunked(&bytes));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(text), "{text}: {answer}");
    }
    // The connection ends too early.
    let whole = chunked(&body(&good, &[7; 200_000]));
    let mut stream = a.dial();
    stream.write_all(&whole[..whole.len() - 5]).expect("written");
    stream.shutdown(Shutdown::Write).expect("half closed");
    let answer = answer(&mut stream);
    assert!(!answer.contains("204"), "{answer}");
    lock(&a.recorder.known).insert(2, Known::Removed);
    let answer = a.raw(&chunked(&body(&good, b"x")));
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(lock(&a.recorder.seen).installed.is_empty());
    // A transfer that failed does not keep the next one out.
    lock(&a.recorder.known).clear();
    assert!(a.raw(&chunked(&body(&good, b"x"))).starts_with("HTTP/1.1 204 "));
}

#[test]
fn a_peer_that_may_be_etcd_is_sent_an_image() {
    let (a, b) = (Site::new(2), site(usize::MAX));
    // It cannot dial this member, and so never says that it is Cairn's.
    a.peers.set(1, vec![b.url.clone()]);
    let segments = vec![vec![5; 300_000], vec![6; 200_000]];
    let export = Arc::new(Memory(segments.clone()));
    a.peers.send_snapshot(snapshot(MessageType::MsgSnap, 2, 1), export);
    a.recorder.wait("the report", |seen| seen.snapshots == [(1, true)]);
    let installed = std::mem::take(&mut lock(&b.recorder.seen).installed);
    let [(message, bytes)] = &installed[..] else { panic!("{} were installed", installed.len()) };
    assert!(*bytes == segments.concat(), "{} bytes", bytes.len());
    assert_eq!(
        message.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref()).map(|data| data.index()),
        Some(9)
    );
    // One that is not in the configuration any more, or has a later term than the message, is not sent anything.
    for (id, term) in [(3, 3), (1, 2)] {
        a.peers.set(id, vec![b.url.clone()]);
        let message = Message { to: Some(id), term: Some(term), ..snapshot(MessageType::MsgSnap, 2, 1) };
        a.peers.send_snapshot(message, Arc::new(Memory(segments.clone())));
        a.recorder.wait("the refusal", |seen| seen.snapshots.last() == Some(&(id, false)));
        lock(&a.recorder.seen).snapshots.truncate(1);
    }
    // One that has no space is tried again later.
    *lock(&b.recorder.image_opener) = None;
    a.peers.send_snapshot(snapshot(MessageType::MsgSnap, 2, 1), Arc::new(Memory(segments)));
    a.recorder.wait("the report", |seen| seen.snapshots == [(1, true), (1, false)]);
}

#[test]
fn images_of_non_members_are_refused_before_they_come() {
    let a = Site::new(1);
    let answer = a.raw(request("POST /raft/snapshot", "Transfer-Encoding: chunked\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("unknown member"), "{answer}");
}
