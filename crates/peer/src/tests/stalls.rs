use super::test_support::{Site, alone, append, message, request};
use crate::peer::WAITING_BYTES_MAX;
use api::raftpb::MessageType;
use contain::lock;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// A peer that dials a stream and never reads it costs limited memory, and delays no other peer.
#[test]
fn a_peer_that_does_not_read_is_given_up() {
    let _alone = alone();
    let (a, b) = (Site::new(1), Site::new(3));
    a.meet(&b);
    a.peers.set(2, vec!["http://127.0.0.1:1".into()]);
    let mut silent = a.dial();
    silent.write_all(request("GET /raft/stream/msgapp/2", "X-Raft-To: 1\r\n").as_bytes()).expect("written");
    let mut head = [0; 1];
    silent.read_exact(&mut head).expect("an answer");
    let deadline = Instant::now() + Duration::from_secs(5);
    let peer = a.peers.shared.peer(2).expect("known");
    let waiting = || {
        let mut waiting = None;
        peer.each_link(&a.peers.shared, |_, link| {
            waiting = Some(link.waiting());
            None
        });
        waiting
    };
    while waiting().is_none() {
        assert!(Instant::now() < deadline, "the stream is not attached");
        std::thread::sleep(Duration::from_millis(5));
    }
    let began = Instant::now();
    for index in 0..100 {
        a.peers.send(&[append(1, 2, index, 1 << 20), message(MessageType::MsgHeartbeat, 1, 3, index)]);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "sending waited {:?}", began.elapsed());
    assert!(lock(&a.recorder.seen).unreachable.contains(&2), "nothing was dropped");
    let most = waiting().expect("still there");
    assert!(most > WAITING_BYTES_MAX / 2 && most < WAITING_BYTES_MAX + (2 << 20), "{most} bytes wait");
    b.recorder.wait("what the other peer was sent meanwhile", |seen| seen.messages.len() == 100);
    while waiting().is_some() {
        assert!(began.elapsed() < Duration::from_secs(10), "the stream is kept");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A peer that reads slowly gets everything.
#[test]
fn a_slow_peer_is_waited_for() {
    let _alone = alone();
    let a = Site::new(1);
    a.peers.set(2, vec!["http://127.0.0.1:1".into()]);
    let mut slow = a.dial();
    slow.write_all(request("GET /raft/stream/msgapp/2", "X-Raft-To: 1\r\n").as_bytes()).expect("written");
    let mut received = vec![0; 1];
    slow.read_exact(&mut received).expect("an answer");
    std::thread::sleep(Duration::from_millis(100));
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
    let (a, b) = (Site::new(1), Site::new(2));
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
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(serials(), before);
    assert_eq!(b.peers.active_since(1), Some(since));
}
