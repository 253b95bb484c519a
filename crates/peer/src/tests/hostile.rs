use super::test_support::{MESSAGE_BYTES_MAX, PATIENCE, Site, alone, answer, append, request, resident_bytes};
use crate::places::NON_MEMBERS_MAX;
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const GROWTH_BYTES_MAX: usize = 128 << 20;

/// Checks that the member still serves its peers, and keeps nothing for others.
fn unharmed(a: &Site, before: usize) {
    let b = Site::new(2);
    a.meet(&b);
    a.peers.send(&[append(1, 2, 1, 10)]);
    b.recorder.wait("a message", |seen| !seen.messages.is_empty());
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_BYTES_MAX, "grown by {} MiB", grown >> 20);
    assert_eq!([true, false].map(|of| a.peers.shared.body_bytes(of).load(Ordering::SeqCst)), [0, 0]);
}

#[test]
fn garbage_is_answered_and_hung_up_on() {
    let _alone = alone();
    let (a, before) = (Site::new(1), resident_bytes());
    for garbage in
        [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..], &[0; 4096], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    {
        let answer = a.raw(garbage);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    unharmed(&a, before);
}

#[test]
fn ten_gigabytes_are_refused_when_they_are_announced() {
    let _alone = alone();
    let (a, before) = (Site::new(1), resident_bytes());
    for path in ["/raft", "/members"] {
        let text = request(&format!("POST {path}"), "Content-Length: 10737418240\r\n");
        let began = Instant::now();
        let answer = a.raw(text.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        assert!(began.elapsed() < PATIENCE);
    }
    unharmed(&a, before);
}

#[test]
fn endless_bodies_end() {
    let _alone = alone();
    let (a, before) = (Site::new(1), resident_bytes());
    for path in ["/raft", "/raft/snapshot", "/cairn/snapshot", "/members"] {
        let mut stream = a.dial();
        let head = request(&format!("POST {path}"), "Transfer-Encoding: chunked\r\nX-Cairn-Snapshot: 1\r\n");
        stream.write_all(head.as_bytes()).expect("written");
        let chunk = [b"100000\r\n".as_slice(), &[0xff; 1 << 20], b"\r\n"].concat();
        let mut sent = 0;
        while sent < 1 << 30 && stream.write_all(&chunk).is_ok() {
            sent += chunk.len();
        }
        assert!(sent < 300 << 20, "{path} took {} MiB", sent >> 20);
    }
    unharmed(&a, before);
}

#[test]
fn heads_without_end_and_without_haste() {
    let _alone = alone();
    let (a, before) = (Site::new(1), resident_bytes());
    let endless = format!("GET / HTTP/1.1\r\n{}", "x: y\r\n".repeat(100_000));
    let began = Instant::now();
    let answered = a.raw(endless.as_bytes());
    assert!(answered.is_empty() || answered.starts_with("HTTP/1.1 4"), "{answered}");
    assert!(began.elapsed() < PATIENCE);
    // Half a head, and one byte a second: the time limit is for the whole head.
    let mut half = a.dial();
    half.write_all(b"GET /raft/probing HT").expect("written");
    let mut slow = a.dial();
    let began = Instant::now();
    while slow.write_all(b"G").is_ok() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(500));
    }
    let answered = answer(&mut half);
    assert!(answered.starts_with("HTTP/1.1 408 "), "{answered}");
    let mut rest = Vec::new();
    // The connection is refused for one reason or the other.
    let _ = slow.read_to_end(&mut rest);
    assert!(began.elapsed() < PATIENCE);
    unharmed(&a, before);
}

fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A connection from 127.0.0.`host`.
fn dial_from(host: u8, a: &Site) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, host], 0)).into()).expect("all of 127/8 is this host");
    socket.connect(&a.address().parse::<SocketAddr>().expect("an address").into()).expect("listening");
    TcpStream::from(socket)
}

#[test]
fn many_connections_are_bounded() {
    let _alone = alone();
    let (a, before) = (Site::new(1), resident_bytes());
    let mut first = dial_from(2, &a);
    await_that("a place", || a.peers.shared.places.taken().0 == 1);
    let open: Vec<_> = (0..400).map(|_| a.dial()).collect();
    await_that("more than there is room for", || a.peers.shared.places.lost() > 0);
    assert!(a.peers.shared.places.taken().0 <= NON_MEMBERS_MAX);
    // A connection from another host has kept its place, and a new one finds a place.
    let probe = request("GET /raft/probing", "");
    first.write_all(probe.as_bytes()).expect("written");
    for answered in [answer(&mut first), a.raw(probe.as_bytes())] {
        assert!(answered.starts_with("HTTP/1.1 200 "), "{answered}");
    }
    unharmed(&a, before);
    drop(open);
    let mut page = telemetry::metrics::Page::default();
    a.peers.render(&mut page);
    let lines = page.text();
    for wanted in ["cairn_peer_port_connections{of=\"non_members\"} ", "connections_dropped_total{why=\"refused\"} "] {
        assert!(lines.contains(wanted), "{wanted} is not in\n{lines}");
    }
}

/// Two hosts that keep and use all the connections they get, and dial again whenever one is closed, keep no member out,
/// neither as non-members nor in the name of that member.
#[test]
fn non_members_do_not_keep_members_out() {
    let _alone = alone();
    let named = request("GET /raft/probing", "").replace("Connection: close\r\n", "");
    for probe in [named.replace("X-Server-From: 2\r\n", ""), named] {
        let (a, before) = (Site::new(1), resident_bytes());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            for host in [2, 3] {
                let (a, probe, is_over, tell) = (&a, &probe, &is_over, tell.clone());
                scope.spawn(move || {
                    let dial = || {
                        let stream = dial_from(host, a);
                        stream.set_nonblocking(true).expect("a socket");
                        stream
                    };
                    let mut streams: Vec<_> = (0..160).map(|_| dial()).collect();
                    while !is_over.load(Ordering::SeqCst) {
                        for stream in &mut streams {
                            let _ = stream.write_all(probe.as_bytes());
                            let is_gone = match stream.read(&mut [0; 4096]) {
                                Ok(count) => count == 0,
                                Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
                            };
                            if is_gone {
                                *stream = dial();
                            }
                        }
                        let _ = tell.send(());
                        // Less than the time after which an idle connection is closed.
                        std::thread::sleep(Duration::from_millis(300));
                    }
                });
            }
            // Every one of the threads has started.
            told.iter().take(8).for_each(drop);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| unharmed(&a, before)));
            is_over.store(true, Ordering::SeqCst);
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }
}

/// A peer that answers every stream with the same bytes.
fn broken_peer(body: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let dials = Arc::new(AtomicUsize::new(0));
    let count = dials.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (body, count) = (body.clone(), count.clone());
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut head = [0; 4096];
                let _ = stream.read(&mut head);
                if !head.starts_with(b"GET /raft/stream/") {
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Server-Version: 3.7.3\r\n\r\n");
                let _ = stream.write_all(&body);
                for _ in 0..64 {
                    if stream.write_all(&[0; 1 << 20]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, dials)
}

#[test]
fn streams_of_nonsense_are_left_and_dialled_again() {
    let _alone = alone();
    let (a, before) = (Site::new(1), resident_bytes());
    let word = |length: u64| length.to_be_bytes().to_vec();
    let mut bodies = vec![vec![0xff; 100], word(10 << 30), vec![0; 100]];
    for tag in [1, 2] {
        bodies.push([vec![tag], word(10 << 30)].concat());
        bodies.push([vec![tag], word(MESSAGE_BYTES_MAX as u64)].concat());
    }
    let all: Vec<_> = bodies.into_iter().map(broken_peer).collect();
    for (place, (url, _)) in all.iter().enumerate() {
        a.peers.set(10 + place as u64, vec![url.clone()]);
    }
    let deadline = Instant::now() + 3 * PATIENCE;
    while all.iter().any(|(_, dials)| dials.load(Ordering::SeqCst) < 4) {
        assert!(Instant::now() < deadline, "a peer is not dialled again");
        std::thread::sleep(Duration::from_millis(20));
    }
    for place in 0..all.len() {
        a.peers.remove(10 + place as u64);
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(contain::lock(&a.recorder.seen).messages.is_empty());
    unharmed(&a, before);
}
