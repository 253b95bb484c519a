//! Clients that break the rules, on raw sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{Client, Fixture, PATIENCE, at_rest, eventually, framed, options, serve};
use rpc::Options;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// A header block without indexing or Huffman coding.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            out.push(text.len() as u8);
            out.extend(text.as_bytes());
        }
    }
    out
}

fn call(method: &str) -> Vec<u8> {
    let path = format!("/test.Echo/{method}");
    block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", &path),
        (":authority", "x"),
        ("content-type", "application/grpc"),
    ])
}

/// A unary call: HEADERS with END_HEADERS, DATA with END_STREAM.
fn unary(stream: u32, method: &str, message: &[u8]) -> Vec<u8> {
    [frame(HEADERS, 4, stream, &call(method)), frame(DATA, 1, stream, &framed(message))].concat()
}

struct Raw(TcpStream);

impl Raw {
    /// Connects and sends preface and settings.
    fn connect(address: SocketAddr, settings: &[u8]) -> Raw {
        let socket = TcpStream::connect(address).expect("the server listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut raw = Raw(socket);
        raw.send(&[PREFACE, &frame(SETTINGS, 0, 0, settings)].concat());
        raw
    }

    fn send(&mut self, bytes: &[u8]) {
        // The server may have closed already, which the reading side shows.
        let _ = self.0.write_all(bytes);
    }

    /// The next frame: kind, flags, stream, payload. None when the server closes.
    fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.0.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some((head[3], head[4], stream, payload))
    }

    /// Reads on until a frame of `kind` comes.
    fn until(&mut self, kind: u8) -> Option<(u8, u32, Vec<u8>)> {
        loop {
            let (found, flags, stream, payload) = self.next()?;
            if found == kind {
                return Some((flags, stream, payload));
            }
        }
    }

    /// Reads to the end. The error code of the last GOAWAY and what it says.
    fn farewell(&mut self) -> Option<(u32, String)> {
        let mut last = None;
        while let Some((_, _, payload)) = self.until(GO_AWAY) {
            let code = u32::from_be_bytes([payload[4], payload[5], payload[6], payload[7]]);
            last = Some((code, String::from_utf8_lossy(&payload[8..]).into_owned()));
        }
        last
    }
}

async fn still_serves(fixture: &Fixture) {
    let mut client = Client::connect(fixture.address).await;
    assert_eq!(client.unary("Now", b"still here").await.messages(), [&b"still here"[..]]);
}

#[tokio::test]
async fn broken_frames_end_the_connection() {
    let fixture = serve(options());
    let oversized = [&[0xff, 0xff, 0xff, DATA, 0][..], &1_u32.to_be_bytes(), &[0; 100]].concat();
    let cases: [(&str, Vec<u8>); 9] = [
        ("data on stream 0", frame(DATA, 0, 0, b"x")),
        ("data on an idle stream", frame(DATA, 0, 1, b"x")),
        ("headers on an even stream", frame(HEADERS, 5, 2, &call("Now"))),
        ("a frame that is too large", oversized),
        ("a ping of seven bytes", frame(PING, 0, 0, &[0; 7])),
        ("settings of five bytes", frame(SETTINGS, 0, 0, &[0; 5])),
        ("a window update of zero", frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("a broken header block", frame(HEADERS, 5, 1, &[0xff; 50])),
        ("a continuation of nothing", frame(CONTINUATION, 4, 1, b"")),
    ];
    for (what, bytes) in cases {
        let mut raw = Raw::connect(fixture.address, &[]);
        raw.send(&bytes);
        assert!(raw.farewell().is_some(), "{what}");
    }
    still_serves(&fixture).await;
    eventually("all is closed", || fixture.server.stats().connections_open() == 0).await;
}

#[tokio::test]
async fn too_many_pings_are_answered_with_a_farewell() {
    let fixture = serve(options());
    let mut raw = Raw::connect(fixture.address, &[]);
    let mut answered = 0;
    let farewell = loop {
        raw.send(&frame(PING, 0, 0, &[1; 8]));
        match raw.next() {
            Some((PING, 1, _, payload)) => {
                assert_eq!(payload, [1; 8]);
                answered += 1;
            }
            Some((GO_AWAY, _, _, payload)) => break payload,
            // Settings and what belongs to them.
            Some(_) => {}
            None => panic!("closed without a word after {answered} pings"),
        }
    };
    assert_eq!(&farewell[4..], [&11_u32.to_be_bytes()[..], b"too_many_pings"].concat());
    assert!((2..10).contains(&answered), "{answered}");
    // Pings between calls are as many as the client likes.
    let mut raw = Raw::connect(fixture.address, &[]);
    for round in 0..20_u32 {
        raw.send(&unary(2 * round + 1, "Now", b""));
        assert_eq!(raw.until(DATA).expect("a reply").2, [0; 5]);
        raw.send(&frame(PING, 0, 0, &[1; 8]));
        raw.until(PING).expect("an answer");
    }
}

#[tokio::test]
async fn floods_are_cut_off() {
    let fixture = serve(options());
    // Streams opened and reset at once.
    let mut raw = Raw::connect(fixture.address, &[]);
    let mut bytes = Vec::new();
    for stream in (1..200_001_u32).step_by(2) {
        bytes.extend(frame(HEADERS, 4, stream, &call("Never")));
        bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    raw.send(&bytes);
    assert_eq!(raw.farewell().map(|(code, _)| code), Some(11), "resets");
    // Settings, which all want an answer, from a client that does read.
    let mut raw = Raw::connect(fixture.address, &[]);
    let mut reader = Raw(raw.0.try_clone().expect("a socket"));
    let reading = std::thread::spawn(move || reader.farewell());
    raw.send(&frame(SETTINGS, 0, 0, &[]).repeat(50_000));
    assert_eq!(reading.join().expect("no panic").map(|(code, _)| code), Some(11), "settings");
    // Empty data.
    let mut raw = Raw::connect(fixture.address, &[]);
    raw.send(&frame(HEADERS, 4, 1, &call("Chat")));
    raw.send(&frame(DATA, 0, 1, &[]).repeat(50_000));
    assert_eq!(raw.farewell().map(|(code, _)| code), Some(11), "empty data");
    // A header list without an end.
    let mut raw = Raw::connect(fixture.address, &[]);
    raw.send(&frame(HEADERS, 0, 1, &call("Now")));
    for _ in 0..1_000 {
        raw.send(&frame(CONTINUATION, 0, 1, &block(&[("x", &"y".repeat(100))]).repeat(100)));
    }
    assert!(raw.farewell().is_some(), "continuation");
    still_serves(&fixture).await;
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    let fixture = serve(Options { concurrent_streams_max: 10, ..options() });
    let mut raw = Raw::connect(fixture.address, &[]);
    for stream in (1..25_u32).step_by(2) {
        raw.send(&unary(stream, "Never", b""));
    }
    for stream in [21, 23] {
        let (_, refused, payload) = raw.until(RST_STREAM).expect("a reset");
        assert_eq!((refused, payload), (stream, 7_u32.to_be_bytes().to_vec()));
    }
    assert_eq!(fixture.seen.never.lock().expect("not poisoned").len(), 10);
}

#[tokio::test]
async fn a_large_header_list_is_refused() {
    let fixture = serve(Options { header_list_bytes_max: 4096, ..options() });
    let mut raw = Raw::connect(fixture.address, &[]);
    let many = block(&[("some-name", &"v".repeat(100))]).repeat(50);
    raw.send(&[frame(HEADERS, 4, 1, &[call("Now"), many].concat()), frame(DATA, 1, 1, &framed(b""))].concat());
    let found = loop {
        match raw.next() {
            Some((HEADERS | RST_STREAM | GO_AWAY, _, _, payload)) => break payload,
            Some(_) => {}
            None => break Vec::new(),
        }
    };
    assert!(!found.is_empty());
    assert_eq!(fixture.seen.unary_calls.load(Ordering::SeqCst), 0);
    still_serves(&fixture).await;
}

#[tokio::test]
async fn silent_clients_are_dropped() {
    let fixture = serve(Options { handshake_timeout: Duration::from_millis(100), ..options() });
    for begin in [&b""[..], b"PRI * HTTP/2.0", b"GET / HTTP/1.1\r\nhost: x\r\n"] {
        let mut socket = TcpStream::connect(fixture.address).expect("the server listens");
        socket.write_all(begin).expect("sent");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut end = Vec::new();
        // Closed, or reset because the server had not read all.
        let _ = socket.read_to_end(&mut end);
    }
    eventually("all is closed", || fixture.server.stats().connections_open() == 0).await;
}

#[tokio::test]
async fn a_peer_that_answers_no_ping_is_dropped() {
    let (second, patience) = (Duration::from_secs(1), Duration::from_secs(10));
    let fixture = serve(Options { keepalive_interval: second, keepalive_timeout: second, ..options() });
    let began = Instant::now();
    let mut raw = Raw::connect(fixture.address, &[]);
    let mut pings = 0;
    while let Some((kind, flags, _, _)) = raw.next() {
        pings += usize::from(kind == PING && flags == 0);
    }
    assert_eq!(pings, 1);
    assert!(began.elapsed() < PATIENCE);
    // One that answers stays for longer than one that does not, even if it needs some time for it.
    let fixture = serve(Options { keepalive_interval: second, keepalive_timeout: patience, ..options() });
    let began = Instant::now();
    let mut raw = Raw::connect(fixture.address, &[]);
    while began.elapsed() < patience + 3 * second {
        let (flags, _, ping) = raw.until(PING).expect("it is pinged again");
        assert_eq!(flags, 0);
        raw.send(&frame(PING, 1, 0, &ping));
    }
    raw.send(&unary(1, "Now", b""));
    assert_eq!(raw.until(DATA).expect("a reply").2, [0; 5]);
}

/// SETTINGS_INITIAL_WINDOW_SIZE and a connection window of 2^31-1: flow control never stops the server.
fn open_windows(address: SocketAddr) -> Raw {
    let mut raw = Raw::connect(address, &[&[0, 4][..], &0x7fff_ffff_u32.to_be_bytes()].concat());
    raw.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    raw
}

/// Sends calls of `Whole` from a thread of its own.
fn flood(raw: &Raw, calls: u32, reply_bytes: usize) -> std::thread::JoinHandle<()> {
    let mut writer = Raw(raw.0.try_clone().expect("a socket"));
    let message = reply_bytes.to_string().into_bytes();
    std::thread::spawn(move || {
        (0..calls).for_each(|index| writer.send(&unary(2 * index + 1, "Whole", &message)));
    })
}

/// Reads `calls` whole replies. The sum of their bytes.
fn read_replies(raw: &mut Raw, calls: u32) -> usize {
    let (mut bytes, mut ends) = (0, 0);
    while ends < calls {
        match raw.next().expect("more") {
            (DATA, _, _, payload) => bytes += payload.len(),
            // Trailers.
            (HEADERS, flags, _, _) => ends += u32::from(flags & 1),
            _ => {}
        }
    }
    bytes
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_served_on() {
    let fixture = serve(Options { write_timeout: Duration::from_secs(2), ..options() });
    let mut raw = open_windows(fixture.address);
    let writing = flood(&raw, 10_000, 8_000);
    let served = || fixture.seen.unary_calls.load(Ordering::SeqCst);
    eventually("calls are served", || served() >= 100).await;
    at_rest(served).await;
    still_serves(&fixture).await;
    eventually("it is given up", || fixture.server.stats().connections_open() == 0).await;
    // What the sockets hold is the kernel's (up to 10 MB here); all replies would be 80 MB.
    let served = served();
    assert!(served < 2_500, "{served} calls served for nobody");
    writing.join().expect("no panic");
    while raw.next().is_some() {}
}

#[tokio::test]
async fn a_client_that_reads_late_gets_everything() {
    let fixture = serve(options());
    let mut raw = open_windows(fixture.address);
    let calls = 4_000;
    let writing = flood(&raw, calls, 8_000);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let bytes = tokio::task::spawn_blocking(move || read_replies(&mut raw, calls)).await.expect("no panic");
    assert_eq!(bytes, calls as usize * 8_005);
    writing.join().expect("no panic");
}

#[tokio::test]
async fn a_shut_window_holds_requests_back() {
    let fixture = serve(options());
    // No stream may send anything.
    let mut raw = Raw::connect(fixture.address, &[&[0, 4][..], &0_u32.to_be_bytes()].concat());
    let calls = 300;
    flood(&raw, calls, 100_000).join().expect("no panic");
    // Once this is answered, all requests are read, and those are begun that may be.
    raw.send(&frame(PING, 0, 0, b"all read"));
    let raw = tokio::task::spawn_blocking(move || raw.until(PING).map(|_| raw)).await.expect("no panic");
    let mut raw = raw.expect("an answer");
    let served = fixture.seen.unary_calls.load(Ordering::SeqCst);
    // 8 MiB of replies, then no more requests are begun.
    assert!((80..=90).contains(&served), "{served} replies are held");
    // The windows open, and everything comes.
    raw.send(&frame(SETTINGS, 0, 0, &[&[0, 4][..], &0x7fff_ffff_u32.to_be_bytes()].concat()));
    raw.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    let bytes = tokio::task::spawn_blocking(move || read_replies(&mut raw, calls)).await.expect("no panic");
    assert_eq!(bytes, calls as usize * 100_005);
}

#[tokio::test]
async fn random_bytes_never_stop_the_server() {
    let fixture = serve(options());
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..400 {
        let mut bytes = Vec::new();
        for stream in (1..20_u32).step_by(2) {
            let method = ["Now", "Later", "Chat", "Count", "Missing"][random() as usize % 5];
            bytes.extend(unary(stream, method, b"1 10"));
            bytes.extend(frame(random() as u8 % 12, random() as u8, stream, &random().to_be_bytes()));
        }
        // Half of the rounds are whole frames in any order, half have bytes flipped.
        if round % 2 == 0 {
            for _ in 0..random() % 8 {
                let at = random() as usize % bytes.len();
                bytes[at] ^= 1 << (random() % 8);
            }
        }
        let mut raw = Raw::connect(fixture.address, &[]);
        raw.send(&bytes);
        raw.0.shutdown(std::net::Shutdown::Write).expect("a socket");
        while raw.next().is_some() {}
    }
    still_serves(&fixture).await;
    eventually("all is closed", || fixture.server.stats().connections_open() == 0).await;
    eventually("all handlers are gone", || fixture.seen.handlers.load(Ordering::SeqCst) == 0).await;
}
