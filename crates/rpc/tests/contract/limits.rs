//! Every limit is counted, and ends what it should.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::wire::{block, driver, frame, frames, settings, window_update};
use crate::common::{Echo, Seen, framed, options, serve};
use rpc::frame::{Head, PREFACE, Reason, flag, kind, setting};
use rpc::hpack::{Encoder, Indexing};
use rpc::{Driver, Limit, Options, RateLimits, Server};

const SECOND: Duration = Duration::from_secs(1);
const END: u8 = flag::END_STREAM;

/// A connection whose settings have come.
fn greeted(options: Options) -> Driver {
    let mut driver = driver(options).0;
    driver.feed(&settings(&[]));
    driver
}

#[test]
fn rates_can_be_set() {
    let mut options = options();
    *options.rates.named("forced_resets").expect("a rate") = 3;
    let mut driver = greeted(options);
    for (stream, wanted) in [(1, None), (3, None), (5, None), (7, Some(Reason::ENHANCE_YOUR_CALM))] {
        let output = driver.feed(&[call("Chat", stream), window_update(stream, 0)].concat());
        assert_eq!(reason(&output, kind::GO_AWAY), wanted, "stream {stream}");
    }
}

/// HEADERS of a call that is not over.
fn call(method: &str, stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&mut Encoder::new(), method, &[]))
}

fn data(stream: u32, flags: u8, body: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flags, stream, body)
}

/// The only limit that was hit.
fn hit(driver: &Driver) -> Option<Limit> {
    let mut hits = Limit::ALL.iter().filter(|limit| driver.stats().limit_hits(**limit) > 0);
    let first = hits.next().copied();
    assert_eq!(hits.next(), None, "more than {first:?}");
    first
}

/// The reason of the first frame of this kind.
fn reason(output: &[u8], wanted: u8) -> Option<Reason> {
    let frames = frames(output);
    let (_, payload) = frames.iter().find(|(head, _)| head.kind == wanted)?;
    let at = if wanted == kind::GO_AWAY { 4 } else { 0 };
    payload[at..at + 4].try_into().ok().map(|bytes| Reason(u32::from_be_bytes(bytes)))
}

/// With rates that a busy machine reaches in a second, too.
fn calm() -> Options {
    let rates =
        RateLimits { idle_frames: 1_000, resets: 1_000, forced_resets: 1_000, tiny_data: 1_000, window_updates: 1_000 };
    Options { rates, ..options() }
}

/// Feeds `frames` again and again until the connection is told to go.
fn flood(frames: &[u8]) -> (Driver, Option<Reason>) {
    let mut driver = greeted(calm());
    driver.feed(&call("Chat", 1));
    let many = frames.repeat(1_000);
    for _ in 0..20 {
        let output = driver.feed(&many);
        if let Some(reason) = reason(&output, kind::GO_AWAY) {
            return (driver, Some(reason));
        }
    }
    (driver, None)
}

#[test]
fn floods_have_their_counters() {
    let cases: [(&str, Vec<u8>, Limit); 6] = [
        ("settings", settings(&[]), Limit::IdleFrames),
        ("priority", frame(kind::PRIORITY, 0, 3, &[0, 0, 0, 0, 1]), Limit::IdleFrames),
        ("empty data", data(1, 0, &[]), Limit::IdleFrames),
        ("unknown frames", frame(0xaa, 0, 0, b"?"), Limit::IdleFrames),
        ("window updates", window_update(0, 1), Limit::WindowUpdates),
        ("pings", frame(kind::PING, 0, 0, &[0; 8]), Limit::Pings),
    ];
    for (name, frames, limit) in cases {
        let (driver, reason) = flood(&frames);
        assert_eq!(reason, Some(Reason::ENHANCE_YOUR_CALM), "{name}");
        assert_eq!(hit(&driver), Some(limit), "{name}");
        assert_eq!(driver.stats().connection_errors(Reason::ENHANCE_YOUR_CALM), 1, "{name}");
    }
}

#[test]
fn streams_that_are_given_up_have_their_counters() {
    let (mut own, mut forced) = (greeted(calm()), greeted(calm()));
    let mut ends = (None, None);
    for stream in (1..20_000).step_by(2) {
        let reset = frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        ends.0 = ends.0.or(reason(&own.feed(&[call("Chat", stream), reset].concat()), kind::GO_AWAY));
        let output = forced.feed(&[call("Chat", stream), window_update(stream, 0)].concat());
        ends.1 = ends.1.or(reason(&output, kind::GO_AWAY));
        if ends == (Some(Reason::ENHANCE_YOUR_CALM), Some(Reason::ENHANCE_YOUR_CALM)) {
            break;
        }
    }
    assert_eq!((hit(&own), hit(&forced)), (Some(Limit::Resets), Some(Limit::ForcedResets)));
    assert_eq!(forced.stats().stream_errors(Reason::PROTOCOL_ERROR), 1_001);
}

#[test]
fn header_limits_have_their_counters() {
    // A table of more bytes than were offered.
    let mut driver = greeted(options());
    let output = driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, &[0x3f, 0xe2, 0x1f, 0x82]));
    assert_eq!(reason(&output, kind::GO_AWAY), Some(Reason::COMPRESSION_ERROR));
    assert_eq!(hit(&driver), Some(Limit::HeaderTable));
    assert_eq!(driver.stats().connection_errors(Reason::COMPRESSION_ERROR), 1);

    // A list that is too long, before and after the body.
    let long = "x".repeat(4_000);
    let mut encoder = Encoder::new();
    let mut longest = block(&mut encoder, "Chat", &[]);
    (0..20).for_each(|_| encoder.encode(&mut longest, b"a", long.as_bytes(), Indexing::Index));
    let mut driver = greeted(options());
    driver.feed(&frame(kind::HEADERS, flag::END_HEADERS | END, 1, &longest));
    assert_eq!(hit(&driver), Some(Limit::HeaderList));
    let headers = block(&mut encoder, "Chat", &[]);
    let mut trailers = Vec::new();
    (0..20).for_each(|_| encoder.encode(&mut trailers, b"a", long.as_bytes(), Indexing::Index));
    driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, 3, &headers));
    let output = driver.feed(&frame(kind::HEADERS, flag::END_HEADERS | END, 3, &trailers));
    assert_eq!(reason(&output, kind::RST_STREAM), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(driver.stats().limit_hits(Limit::HeaderList), 2);

    // A block in too many frames.
    let mut driver = greeted(options());
    driver.feed(&frame(kind::HEADERS, 0, 1, &[0x82]));
    let output = driver.feed(&frame(kind::CONTINUATION, 0, 1, &[]).repeat(40));
    assert_eq!(reason(&output, kind::GO_AWAY), Some(Reason::ENHANCE_YOUR_CALM));
    assert_eq!(hit(&driver), Some(Limit::HeaderBlock));

    // One stream too many.
    let mut driver = greeted(Options { concurrent_streams_max: 1, ..options() });
    let output = driver.feed(&[call("Chat", 1), call("Chat", 3)].concat());
    assert_eq!(reason(&output, kind::RST_STREAM), Some(Reason::REFUSED_STREAM));
    assert_eq!(hit(&driver), Some(Limit::ConcurrentStreams));
}

#[test]
fn windows_and_messages_have_their_counters() {
    const TOO_FAR: u32 = (1 << 31) - 1;
    let mut driver = greeted(options());
    let output = driver.feed(&[call("Chat", 1), window_update(1, TOO_FAR)].concat());
    assert_eq!(reason(&output, kind::RST_STREAM), Some(Reason::FLOW_CONTROL_ERROR));
    assert_eq!(hit(&driver), Some(Limit::StreamWindow));

    let mut driver = greeted(options());
    let output = driver.feed(&window_update(0, TOO_FAR));
    assert_eq!(reason(&output, kind::GO_AWAY), Some(Reason::FLOW_CONTROL_ERROR));
    assert_eq!(hit(&driver), Some(Limit::ConnectionWindow));
    assert_eq!(driver.stats().connection_errors(Reason::FLOW_CONTROL_ERROR), 1);

    let mut driver = greeted(options());
    let opened = [call("Chat", 1), window_update(1, TOO_FAR - 65_535)].concat();
    assert_eq!(reason(&driver.feed(&opened), kind::RST_STREAM), None);
    let output = driver.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 65_536)]));
    assert_eq!(reason(&output, kind::GO_AWAY), Some(Reason::FLOW_CONTROL_ERROR));
    assert_eq!(hit(&driver), Some(Limit::ConnectionWindow));

    let mut driver = greeted(options());
    let output = driver.feed(&[call("Now", 1), data(1, END, &[0, 0xff, 0xff, 0xff, 0xff])].concat());
    assert!(frames(&output).iter().any(|(head, _)| head.kind == kind::HEADERS && head.has(END)), "it is answered");
    assert_eq!(hit(&driver), Some(Limit::MessageBytes));
}

#[test]
fn what_is_not_taken_has_its_counters() {
    let mut driver = driver(options()).0;
    driver.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    let (mut stream, mut encoder) = (1, Encoder::new());
    // Replies that nobody takes, until no more requests are begun.
    while driver.stats().limit_hits(Limit::HeldReplies) == 0 {
        assert!(stream < 100, "{} replies of 1 MB are held", stream / 2);
        let headers = frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&mut encoder, "Whole", &[]));
        driver.feed(&[headers, data(stream, END, &framed(b"1000000"))].concat());
        stream += 2;
    }
    assert_eq!(hit(&driver), Some(Limit::HeldReplies));
}

#[test]
fn connections_share_what_waits_for_their_clients() {
    let fixture = serve(Options { held_bytes_max: 1 << 20, ..options() });
    let connect = || {
        let mut socket = TcpStream::connect(fixture.address).expect("the server listens");
        let greeting = [&PREFACE[..], &settings(&[(setting::INITIAL_WINDOW_SIZE, 0)])].concat();
        socket.write_all(&greeting).expect("it reads");
        socket
    };
    let ask = |socket: &mut TcpStream, stream: u32, bytes: &[u8]| {
        socket.write_all(&[call("Whole", stream), data(stream, END, &framed(bytes))].concat()).expect("it reads");
    };
    let calls = || fixture.seen.unary_calls.load(Ordering::SeqCst);
    let wait_for = |what: &dyn Fn() -> bool| {
        while !what() {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let (mut greedy, mut other) = (connect(), connect());
    ask(&mut greedy, 1, b"600000");
    ask(&mut greedy, 3, b"600000");
    wait_for(&|| calls() == 2);
    // There is too much already, but everybody has a little.
    ask(&mut other, 1, b"100000");
    wait_for(&|| calls() == 3);
    ask(&mut other, 3, b"100000");
    wait_for(&|| fixture.server.stats().limit_hits(Limit::HeldReplies) == 1);
    assert_eq!(calls(), 3);
    drop(greedy);
    wait_for(&|| calls() == 4);
}

#[test]
fn connections_share_what_their_sockets_do_not_take() {
    const CONNECTIONS: usize = 32;
    const REPLIES: u32 = 300;
    const BYTES: usize = 10_000;
    /// What a Unix socket keeps, on most systems; of TCP it would depend on the system's mood.
    const SOCKET_BYTES: usize = 208 << 10;
    let path = std::env::temp_dir().join(format!("cairn-rpc-{}.socket", std::process::id()));
    let seen = Arc::new(Seen::default());
    let options = Options { held_bytes_max: 1 << 20, ..options() };
    let listener = UnixListener::bind(&path).expect("a free name");
    let server = Server::start(vec![listener], Arc::new(Echo(seen.clone())), options).expect("starts");

    let wide = settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 30)]);
    let mut requests = [&PREFACE[..], &wide, &window_update(0, 1 << 30)].concat();
    for stream in (0..REPLIES).map(|index| 2 * index + 1) {
        requests.extend_from_slice(&call("Whole", stream));
        requests.extend_from_slice(&data(stream, END, &framed(BYTES.to_string().as_bytes())));
    }
    let mut sockets: Vec<_> =
        (0..CONNECTIONS).map(|_| UnixStream::connect(&path).expect("the server listens")).collect();
    std::fs::remove_file(&path).expect("nobody else needs the name");
    for socket in &mut sockets {
        socket.write_all(&requests).expect("they fit into the socket");
    }
    let began = Instant::now();
    while server.held().bytes() <= 1 << 20 {
        assert!(began.elapsed() < 60 * SECOND, "{} bytes wait", server.held().bytes());
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut before = usize::MAX;
    let calls = || seen.unary_calls.load(Ordering::SeqCst);
    while std::mem::replace(&mut before, calls()) != before {
        std::thread::sleep(Duration::from_millis(300));
    }
    let (made, held) = (calls() * BYTES, server.held().bytes());
    assert!(held > 1 << 20, "{held} bytes wait");
    let most = CONNECTIONS * (SOCKET_BYTES + (64 << 10)) + (2 << 20);
    assert!(made < most, "{made} bytes of replies were made, {held} wait");

    // All goes on as it is taken.
    for socket in &mut sockets {
        socket.set_read_timeout(Some(30 * SECOND)).expect("a time");
        let (mut output, mut taken, mut room) = (Vec::new(), 0, [0; 64 << 10]);
        while taken < REPLIES as usize * (5 + BYTES) {
            let count = socket.read(&mut room).expect("more comes");
            output.extend_from_slice(&room[..count]);
            let whole = whole_frames(&output);
            let pieces = frames(&output[..whole]);
            taken += pieces.iter().filter(|(head, _)| head.kind == kind::DATA).map(|(head, _)| head.len).sum::<usize>();
            output.drain(..whole);
        }
    }
    assert_eq!(calls(), CONNECTIONS * REPLIES as usize);
}

/// How many bytes of `output` are whole frames.
fn whole_frames(output: &[u8]) -> usize {
    let mut at = 0;
    while let Some(head) = Head::parse(&output[at..])
        && at + 9 + head.len <= output.len()
    {
        at += 9 + head.len;
    }
    at
}

#[test]
fn a_message_must_go_on() {
    let body = framed(&[b'x'; 10_000]);
    let code = |output: &[u8]| {
        let ends = frames(output).iter().any(|(head, _)| head.kind == kind::HEADERS && head.has(END));
        ends.then(|| reason(output, kind::RST_STREAM))
    };
    let options = Options { body_timeout: 20 * SECOND, ..options() };

    // Begun and never ended; a trickle is the same.
    for method in ["Now", "Chat", "Count"] {
        let mut driver = greeted(options.clone());
        driver.feed(&[call(method, 1), data(1, 0, &body[..100])].concat());
        assert_eq!(code(&driver.tick(Duration::ZERO)), None);
        driver.feed(&data(1, 0, &body[100..1_000]));
        assert_eq!(code(&driver.tick(19 * SECOND)), None, "{method}");
        let output = driver.tick(20 * SECOND);
        assert_eq!(code(&output), Some(Some(Reason::NO_ERROR)), "{method}");
        assert_eq!(hit(&driver), Some(Limit::BodyTime));
        assert_eq!(driver.streams(), 0);
    }

    // Slow, but it moves; and what comes whole in the end is served.
    let mut driver = greeted(options.clone());
    driver.feed(&call("Now", 1));
    for (count, piece) in body.chunks(1_100).enumerate() {
        assert_eq!(code(&driver.tick(15 * count as u32 * SECOND)), None);
        driver.feed(&data(1, 0, piece));
    }
    let output = driver.feed(&data(1, END, &[]));
    assert_eq!(code(&output), Some(None));
    assert_eq!(hit(&driver), None);

    // The one message of a call is waited for from its headers on: a client that never sends it holds nothing for ever.
    for sent in [&[][..], &data(1, 0, &body)] {
        let mut driver = greeted(options.clone());
        driver.feed(&[&call("Count", 1), sent].concat());
        driver.tick(Duration::ZERO);
        assert_eq!(code(&driver.tick(19 * SECOND)), None);
        let output = driver.tick(20 * SECOND);
        assert_eq!(code(&output), Some(Some(Reason::NO_ERROR)), "{} bytes sent", sent.len());
        assert_eq!((hit(&driver), driver.streams()), (Some(Limit::BodyTime), 0));
    }

    // Between messages a stream may be silent for ever, and its messages may be small.
    let mut driver = greeted(options);
    driver.feed(&[call("Chat", 1), call("Chat", 3)].concat());
    for count in 0..10 {
        driver.feed(&data(1, 0, &framed(b"small")[..7]));
        driver.tick((count * 100) * SECOND);
        driver.feed(&data(1, 0, &framed(b"small")[7..]));
        driver.tick((count * 100 + 50) * SECOND);
    }
    assert_eq!((hit(&driver), driver.streams()), (None, 2));
}

/// A frame, of whatever kind, is no place to rest in: its bytes are held.
#[test]
fn a_frame_must_go_on() {
    let whole = frame(0x77, 0, 1, &[0; 16_000]);
    let options = Options { body_timeout: 20 * SECOND, ..options() };
    for begun in [1, 9, 10, 15_000] {
        let mut driver = greeted(options.clone());
        driver.feed(&whole[..begun]);
        driver.tick(Duration::ZERO);
        driver.tick(19 * SECOND);
        assert!(!driver.is_closed(), "{begun} bytes");
        driver.tick(20 * SECOND);
        assert_eq!((driver.is_closed(), hit(&driver)), (true, Some(Limit::BodyTime)), "{begun} bytes");
    }
    // It moves.
    let mut driver = greeted(options.clone());
    for (count, piece) in whole.chunks(1_100).enumerate() {
        driver.tick(15 * count as u32 * SECOND);
        driver.feed(piece);
    }
    assert_eq!((driver.is_closed(), hit(&driver)), (false, None));
    // Another one has begun each time.
    let mut driver = greeted(options);
    driver.feed(&whole[..100]);
    for count in 1..10 {
        driver.feed(&whole[100..]);
        driver.feed(&whole[..100]);
        driver.tick(15 * count * SECOND);
    }
    assert_eq!((driver.is_closed(), hit(&driver)), (false, None));
}

#[test]
fn what_takes_too_long_has_its_counter() {
    let mut silent = driver(options()).0;
    silent.tick(19 * SECOND);
    assert_eq!((hit(&silent), silent.is_closed()), (None, false));
    silent.tick(20 * SECOND);
    assert_eq!((hit(&silent), silent.is_closed()), (Some(Limit::Handshake), true));

    let mut slow = greeted(Options { header_timeout: 5 * SECOND, ..options() });
    slow.feed(&frame(kind::HEADERS, 0, 1, &[0x82]));
    slow.tick(5 * SECOND);
    assert_eq!((hit(&slow), slow.is_closed()), (Some(Limit::HeaderTime), true));

    let mut dead = greeted(Options { keepalive_interval: 10 * SECOND, keepalive_timeout: 5 * SECOND, ..options() });
    assert!(frames(&dead.tick(10 * SECOND)).iter().any(|(head, _)| head.kind == kind::PING));
    dead.tick(16 * SECOND);
    assert_eq!((hit(&dead), dead.is_closed()), (Some(Limit::KeepAlive), true));
}

#[test]
fn connections_beyond_the_bound_are_closed() {
    let fixture = serve(Options { connections_max: 2, ..options() });
    let connect = || TcpStream::connect(fixture.address).expect("the server listens");
    let is_open = |mut socket: &TcpStream| {
        let wait = Duration::from_millis(300);
        socket.set_read_timeout(Some(wait)).expect("a socket");
        socket.read(&mut [0]).is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    };
    let (first, second) = (connect(), connect());
    assert!(is_open(&first) && is_open(&second));
    let mut third = connect();
    third.set_read_timeout(Some(60 * SECOND)).expect("a socket");
    let ended = third.read(&mut [0]);
    assert!(
        ended.as_ref().is_ok_and(|count| *count == 0)
            || ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
        "{ended:?}"
    );
    assert_eq!(fixture.server.stats().limit_hits(Limit::Connections), 1);
    drop(first);
    while fixture.server.stats().connections_open() == 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(is_open(&connect()));
    assert_eq!(fixture.server.stats().limit_hits(Limit::Connections), 1);
}

/// RFC 9113 section 5.1.1.
#[test]
fn numbers_that_were_passed_over_are_not_those_of_streams_that_are_over() {
    let ask = |method: &str, stream| [call(method, stream), data(stream, END, &framed(b"x"))].concat();
    for (again, wanted) in [(5, Reason::PROTOCOL_ERROR), (7, Reason::STREAM_CLOSED), (9, Reason::STREAM_CLOSED)] {
        let mut driver = greeted(options());
        driver.feed(&[ask("Now", 7), ask("Now", 9)].concat());
        let output = driver.feed(&call("Now", again));
        assert_eq!(reason(&output, kind::GO_AWAY), Some(wanted), "stream {again}");
        assert_eq!(driver.stats().connection_errors(wanted), 1);
    }
}

/// DATA frames of `output`, by their lengths.
fn lengths(output: &[u8]) -> Vec<usize> {
    frames(output).iter().filter(|(head, _)| head.kind == kind::DATA).map(|(head, _)| head.len).collect()
}

#[test]
fn windows_that_open_byte_by_byte_are_sent_no_slivers() {
    // The window is used up, and opens again by one byte at a time: the stream's, then the connection's.
    for narrow in [1, 0] {
        let mut driver = greeted(options());
        driver.feed(&window_update(1 - narrow, 1 << 20).repeat(usize::from(narrow == 1)));
        let mut output = driver.feed(&[call("Whole", 1), data(1, END, &framed(b"100000"))].concat());
        output.extend(driver.feed(&window_update(1 - narrow, 1 << 20).repeat(usize::from(narrow == 0))));
        assert_eq!(lengths(&output).iter().sum::<usize>(), 65_535);
        let mut output = Vec::new();
        for _ in 0..5_000 {
            output.extend(driver.feed(&window_update(narrow, 1)));
        }
        let lengths = lengths(&output);
        assert!(lengths.len() == 4 && lengths.iter().all(|len| *len == 1024), "{narrow}: {lengths:?}");
        // A peer that opens it only when it is used up is waited for no longer than a moment.
        assert_eq!(self::lengths(&driver.tick(Duration::ZERO)), [5_000 - 4 * 1024], "{narrow}");
        assert_eq!(self::lengths(&driver.tick(Duration::ZERO)), [0; 0], "{narrow}");
        // What ends the message is worth it, however little.
        let left = 100_005 - 65_535 - 5_000;
        let output = driver.feed(&window_update(narrow, left - 10));
        assert_eq!(self::lengths(&output).iter().sum::<usize>(), left as usize - 10);
        let mut output = driver.feed(&window_update(narrow, 10));
        if narrow == 0 {
            // Streams that wait for the connection's window wait together.
            output = driver.tick(Duration::ZERO);
        }
        assert_eq!(self::lengths(&output), [10], "{narrow}");
        assert_eq!(driver.streams(), 0);
    }
}

#[test]
fn windows_that_were_never_wide_are_used_as_they_are() {
    for whole in [1, 3, 8] {
        let mut driver = driver(options()).0;
        driver.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, whole)]));
        let output = driver.feed(&[call("Whole", 1), data(1, END, &framed(b"100"))].concat());
        let mut sent = lengths(&output).iter().sum::<usize>();
        assert_eq!(sent, whole as usize);
        while sent < 105 {
            let more = lengths(&driver.feed(&window_update(1, whole))).iter().sum::<usize>();
            assert_eq!(more, (whole as usize).min(105 - sent));
            sent += more;
        }
    }
    // Updates that come together are used together.
    let mut driver = driver(options()).0;
    driver.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    driver.feed(&[call("Whole", 1), data(1, END, &framed(b"100"))].concat());
    assert_eq!(lengths(&driver.feed(&window_update(1, 1).repeat(50))), [50]);
}
