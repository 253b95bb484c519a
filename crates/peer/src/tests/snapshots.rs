use super::test_support::{Memory, Recorder, Site, message, request};
use crate::{Export, Intake, OutgoingImage, Piece};
use api::Message as _;
use api::raftpb::{Message, MessageType, Snapshot, SnapshotMetadata};
use bytes::Bytes;
use contain::lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The bytes of a snapshot that a member has received, over several attempts.
type Disk = Arc<Mutex<Vec<Vec<u8>>>>;

struct OnDisk {
    disk: Disk,
    lengths: Vec<u64>,
    recorder: Arc<Recorder>,
}

impl Intake for OnDisk {
    fn needed(&self) -> Vec<Piece> {
        let disk = lock(&self.disk);
        let pieces = self.lengths.iter().enumerate().map(|(segment, length)| {
            let from = disk[segment].len() as u64;
            Piece { segment: segment as u32, from, length: length - from }
        });
        pieces.filter(|piece| piece.length > 0).collect()
    }

    fn write(&mut self, segment: u32, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let segment = &mut lock(&self.disk)[segment as usize];
        assert_eq!(segment.len() as u64, offset, "parts come in order");
        segment.extend_from_slice(bytes);
        Ok(())
    }

    fn install(self: Box<Self>, message: Message) -> Result<(), String> {
        lock(&self.recorder.seen).installed.push((message, lock(&self.disk).concat()));
        Ok(())
    }
}

pub(super) fn accepts(site: &Site, disk: &Disk) {
    let (disk, recorder) = (disk.clone(), site.recorder.clone());
    *lock(&site.recorder.opener) = Some(Box::new(move |checkpoint| {
        let lengths: Vec<u64> =
            checkpoint.chunks_exact(8).map(|word| u64::from_be_bytes(word.try_into().expect("eight bytes"))).collect();
        lock(&disk).resize(lengths.len(), Vec::new());
        Ok(Box::new(OnDisk { disk: disk.clone(), lengths, recorder: recorder.clone() }))
    }));
}

fn state() -> Memory {
    Memory((1..=3usize).map(|segment| (0..segment * 1_500_000).map(|at| (at * segment) as u8).collect()).collect())
}

fn snapshot(from: u64, to: u64) -> Message {
    let metadata = SnapshotMetadata { index: Some(77), term: Some(3), ..SnapshotMetadata::default() };
    let snapshot = Some(Snapshot { metadata: Some(metadata), data: None });
    Message { snapshot, ..message(MessageType::MsgSnap, from, to, 0) }
}

#[test]
fn a_snapshot_is_fetched_and_installed() {
    let (a, b) = (Site::new(1), Site::new(2));
    a.meet(&b);
    let disk = Disk::default();
    accepts(&b, &disk);
    // The receiver already has the first segment and half of the second.
    let all = state().0;
    *lock(&disk) = vec![all[0].clone(), all[1][..1_000_000].to_vec()];
    a.peers.send_snapshot(snapshot(1, 2), Arc::new(state()));
    a.recorder.wait("the end", |seen| seen.snapshots == [(2, true)]);
    assert!(lock(&b.recorder.seen).installed == [(snapshot(1, 2), all.concat())]);
}

/// An export whose reads fail again and again.
struct Breaks {
    state: Memory,
    left: AtomicUsize,
}

impl Export for Breaks {
    fn identity(&self) -> usize {
        self.state.identity()
    }

    fn checkpoint(&self) -> Result<Bytes, String> {
        self.state.checkpoint()
    }

    fn read(&self, segment: u32, offset: u64, length: usize) -> Result<Bytes, String> {
        // Every third read fails unless it is at offset 0, so that the transfer breaks off again and again.
        if self.left.fetch_add(1, Ordering::SeqCst) % 3 == 2 && offset > 0 {
            return Err("a bad sector".into());
        }
        self.state.read(segment, offset, length)
    }

    fn image(&self) -> Result<OutgoingImage, String> {
        Err("the peer is Cairn's".into())
    }
}

#[test]
fn a_transfer_that_breaks_off_goes_on_where_it_was() {
    let (a, b) = (Site::new(1), Site::new(2));
    a.meet(&b);
    let disk = Disk::default();
    accepts(&b, &disk);
    let export: Arc<dyn Export> = Arc::new(Breaks { state: state(), left: AtomicUsize::new(0) });
    for attempt in 1.. {
        a.peers.send_snapshot(snapshot(1, 2), export.clone());
        a.recorder.wait("an end", |seen| seen.snapshots.len() == attempt);
        if lock(&a.recorder.seen).snapshots.last() == Some(&(2, true)) {
            break;
        }
        assert!(attempt < 20, "it does not get on");
    }
    assert!(lock(&b.recorder.seen).installed == [(snapshot(1, 2), state().0.concat())]);
}

#[test]
fn a_snapshot_that_is_refused_is_not_sent() {
    let (a, b) = (Site::new(1), Site::new(2));
    a.meet(&b);
    a.peers.send_snapshot(snapshot(1, 2), Arc::new(state()));
    a.recorder.wait("the end", |seen| seen.snapshots == [(2, false)]);
    a.peers.send_snapshot(snapshot(1, 9), Arc::new(state()));
    a.recorder.wait("the end", |seen| seen.snapshots == [(2, false), (9, false)]);
}

#[test]
fn bad_announcements_are_refused() {
    let a = Site::new(1);
    let framed = |message: &Message| {
        let message = message.encode_to_vec();
        [&(message.len() as u64).to_be_bytes()[..], &message, &[0; 8]].concat()
    };
    for (body, status) in [
        (vec![], "400"),
        (vec![0; 7], "400"),
        ((10u64 << 30).to_be_bytes().to_vec(), "400"),
        ([&3u64.to_be_bytes()[..], &[0xff; 11]].concat(), "400"),
        (framed(&message(MessageType::MsgApp, 2, 1, 1)), "400"),
        (framed(&message(MessageType::MsgSnap, 2, 1, 1)), "400"),
        (framed(&snapshot(2, 9)), "412"),
        (framed(&snapshot(2, 1)), "500"),
    ] {
        let lines = format!("Content-Length: {}\r\nX-Cairn-Snapshot: 1\r\n", body.len());
        let answer = a.raw(&[request("POST /cairn/snapshot", &lines).as_bytes(), &body].concat());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    let answer = a.raw(request("GET /cairn/snapshot/1/segment/1?from=0&length=5", "").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

/// The body of an announcement with this message and a checkpoint without segments.
fn announcement(message: &Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    [&(message.len() as u64).to_be_bytes()[..], &message, &[0; 8]].concat()
}

#[test]
fn invented_senders_are_not_counted_one_by_one() {
    let a = Site::new(1);
    for from in 1_000..1_100 {
        let body = announcement(&snapshot(from, 1));
        let lines = format!("Content-Length: {}\r\nX-Cairn-Snapshot: 1\r\n", body.len());
        let answer = a.raw(&[request("POST /cairn/snapshot", &lines).as_bytes(), &body].concat());
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    }
    let mut page = telemetry::metrics::Page::default();
    a.peers.render(&mut page);
    let text = page.text();
    assert!(!text.contains(&format!("{:x}", 1_050)), "{text}");
}

#[test]
fn an_offer_of_a_non_member_ends_no_transfer() {
    let (a, b) = (Site::new(1), Site::new(2));
    a.meet(&b);
    let disk = Disk::default();
    accepts(&b, &disk);
    let (begun, begins) = std::sync::mpsc::channel();
    let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
    let export = Waits { state: state(), begun, goes_on: Mutex::new(goes_on) };
    a.peers.send_snapshot(snapshot(1, 2), Arc::new(export));
    begins.recv().expect("the transfer begins");
    let body = announcement(&snapshot(77, 2));
    let lines = format!("Content-Length: {}\r\nX-Cairn-Snapshot: 1\r\n", body.len());
    let answer = b.raw(&[request("POST /cairn/snapshot", &lines).as_bytes(), &body].concat());
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    drop(go_on);
    a.recorder.wait("the end", |seen| seen.snapshots == [(2, true)]);
    assert!(lock(&b.recorder.seen).installed == [(snapshot(1, 2), state().0.concat())]);
}

/// An export that waits at the first read.
struct Waits {
    state: Memory,
    begun: std::sync::mpsc::Sender<()>,
    goes_on: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Export for Waits {
    fn identity(&self) -> usize {
        self.state.identity()
    }

    fn checkpoint(&self) -> Result<Bytes, String> {
        self.state.checkpoint()
    }

    fn read(&self, segment: u32, offset: u64, length: usize) -> Result<Bytes, String> {
        // The test uses only the first.
        let _ = self.begun.send(());
        // Returns once the sender is dropped.
        let _ = lock(&self.goes_on).recv();
        self.state.read(segment, offset, length)
    }

    fn image(&self) -> Result<OutgoingImage, String> {
        Err("the peer is Cairn's".into())
    }
}
