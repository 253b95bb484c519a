use super::test_support::{PATIENCE, Site, alone, append, message, request};
use crate::peer::WAITING_BYTES_MAX;
use api::raftpb::MessageType;
use contain::lock;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Bytes that wait for the last of the streams that the peer has dialled; none without a stream.
fn waiting(site: &Site, peer: u64) -> Option<usize> {
    let mut waiting = None;
    site.peers.shared.peer(peer).expect("known").each_link(&site.peers.shared, |_, link| {
        waiting = Some(link.waiting());
        None
    });
    waiting
}

/// Waits until a stream of the peer is attached: it was answered before.
fn await_stream(site: &Site, peer: u64) {
    let deadline = Instant::now() + PATIENCE;
    while waiting(site, peer).is_none() {
        assert!(Instant::now() < deadline, "the stream is not attached");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A peer that dials a stream and never reads it costs limited memory, and delays no other peer.
#[test]
fn a_peer_that_does_not_read_is_given_up() {
    let _alone = alone();
    // Much more than it takes to send everything.
    let limit = Duration::from_secs(10);
    let (a, b) = (Site::with_limit(1, limit), Site::with_limit(3, limit));
    a.meet(&b);
    a.peers.set(2, vec!["http://127.0.0.1:1".into()]);
    let mut silent = a.dial();
    silent.write_all(request("GET /raft/stream/msgapp/2", "X-Raft-To: 1\r\n").as_bytes()).expect("written");
    let mut head = [0; 1];
    silent.read_exact(&mut head).expect("an answer");
    await_stream(&a, 2);
    let began = Instant::now();
    for index in 0..100 {
        a.peers.send(&[append(1, 2, index, 1 << 20), message(MessageType::MsgHeartbeat, 1, 3, index)]);
    }
    // Whatever waited for the silent peer would wait until that is given up.
    assert!(began.elapsed() < limit, "sending waited {:?}", began.elapsed());
    assert!(lock(&a.recorder.seen).unreachable.contains(&2), "nothing was dropped");
    let most = waiting(&a, 2).expect("still there");
    assert!(most > WAITING_BYTES_MAX / 2 && most < WAITING_BYTES_MAX + (2 << 20), "{most} bytes wait");
    b.recorder.wait("what the other peer was sent meanwhile", |seen| seen.messages.len() == 100);
    while waiting(&a, 2).is_some() {
        assert!(began.elapsed() < limit + PATIENCE, "the stream is kept");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A peer that reads slowly gets everything.
#[test]
fn a_slow_peer_is_waited_for() {
    let _alone = alone();
    let a = Site::with_limit(1, PATIENCE);
    a.peers.set(2, vec!["http://127.0.0.1:1".into()]);
    let mut slow = a.dial();
    slow.write_all(request("GET /raft/stream/msgapp/2", "X-Raft-To: 1\r\n").as_bytes()).expect("written");
    let mut received = vec![0; 1];
    slow.read_exact(&mut received).expect("an answer");
    await_stream(&a, 2);
    for index in 0..20 {
        a.peers.send(&[append(1, 2, index, 1 << 20)]);
    }
    let mut total = 0;
    let mut buffer = vec![0; 1 << 20];
    while total < 20 << 20 {
        std::thread::sleep(Duration::from_millis(20));
        let read = slow.read(&mut buffer).expect("more");
        assert!(read > 0, "closed after {total} bytes");
        total += read;
    }
    assert!(!lock(&a.recorder.seen).unreachable.contains(&2), "it was given up");
}

/// An idle stream carries heartbeats, so that its reader keeps it.
#[test]
fn idle_streams_stay_open() {
    // Heartbeats come three times as often, so each may be late by twice the time between them.
    let limit = Duration::from_secs(12);
    let (a, b) = (Site::with_limit(1, limit), Site::with_limit(2, limit));
    a.meet(&b);
    let since = b.peers.active_since(1).expect("active");
    let serials = || {
        let mut serials = Vec::new();
        a.peers.shared.peer(2).expect("known").each_link(&a.peers.shared, |_, link| {
            serials.push(link.serial);
            None
        });
        serials
    };
    let before = serials();
    std::thread::sleep(limit + Duration::from_secs(3));
    assert_eq!(serials(), before);
    assert_eq!(b.peers.active_since(1), Some(since));
}
