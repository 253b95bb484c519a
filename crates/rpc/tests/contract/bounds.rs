//! Bounds of what one connection can make the server hold, and take from others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::wire::{block, driver, frame, frames, settings, window_update};
use crate::common::{Seen, framed, options, serve};
use rpc::frame::{Head, PREFACE, flag, kind, setting};
use rpc::hpack::{Encoder, Indexing};
use rpc::{Driver, Limit, Options};

/// Headers that are a few bytes on the wire and 60 KB in memory, the same ones again and again.
#[test]
fn headers_that_come_again_count_each_time() {
    let (mut driver, _) = driver(options());
    driver.feed(&settings(&[]));
    let mut encoder = Encoder::new();
    let long = "x".repeat(3_900);
    let many: Vec<_> = (0..15).map(|_| ("a", long.as_str())).collect();
    let mut stream = 1;
    while driver.stats().limit_hits(Limit::GatheredBytes) == 0 {
        assert!(stream < 20_000, "10,000 requests with 60 KB of headers each are held");
        let headers = block(&mut encoder, "Now", &many);
        driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, stream, &headers));
        stream += 2;
    }
    assert!(driver.streams() > 100, "{} streams fit", driver.streams());
}

/// A client that asks and keeps its windows shut.
fn ask(method: &str, bytes: &[u8]) -> (Driver, Arc<Seen>) {
    let (mut driver, seen) = driver(options());
    driver.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    let headers = block(&mut Encoder::new(), method, &[]);
    driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, &headers));
    driver.feed(&frame(kind::DATA, flag::END_STREAM, 1, &framed(bytes)));
    assert_eq!(driver.streams(), 1);
    (driver, seen)
}

/// A client whose window stays shut keeps its connection for as long as nobody else needs the memory.
#[test]
fn answers_that_nothing_is_taken_of_end_once_others_wait_for_memory() {
    let write_timeout = options().write_timeout;
    for (method, bytes, is_much) in [("Whole", "100000", true), ("Parts", "100000", true), ("Whole", "60000", false)] {
        let (mut driver, seen) = ask(method, bytes.as_bytes());
        driver.tick(Duration::ZERO);
        driver.tick(2 * write_timeout);
        assert!(!driver.is_closed(), "nobody waits");
        // A little is taken: the time begins anew.
        driver.feed(&window_update(1, 2_000));
        seen.is_short_of_memory.store(true, Ordering::SeqCst);
        driver.tick(2 * write_timeout);
        driver.tick(2 * write_timeout + write_timeout / 2);
        assert!(!driver.is_closed(), "something was taken");
        driver.tick(3 * write_timeout + write_timeout / 2);
        assert_eq!(driver.is_closed(), is_much, "{method} of {bytes} bytes");
        assert_eq!(driver.stats().limit_hits(Limit::WriteProgress), u64::from(is_much));
    }
}

/// As much waits for it as before each time that it is looked at, since a message comes for each that it takes.
#[test]
fn a_slow_client_that_takes_one_message_after_the_other_keeps_its_connection() {
    let (mut driver, seen) = ask("Count", b"1000 100000");
    seen.is_short_of_memory.store(true, Ordering::SeqCst);
    let step = options().write_timeout / 2;
    let message = framed(&[0; 100_000]).len();
    for at in 0..8 {
        driver.tick(at * step);
        assert!(!driver.is_closed(), "it has taken {at} messages");
        driver.feed(&window_update(0, message as u32));
        let output = driver.feed(&window_update(1, message as u32));
        let taken = frames(&output)
            .iter()
            .filter(|(head, _)| head.kind == kind::DATA)
            .map(|(_, data)| data.len())
            .sum::<usize>();
        assert_eq!(taken, message);
    }
    // Now it takes no more.
    driver.tick(8 * step);
    driver.tick(9 * step);
    assert!(!driver.is_closed());
    driver.tick(10 * step);
    assert!(driver.is_closed());
}

/// Time in which nothing waited for it is not held against a client.
#[test]
fn a_stream_that_was_silent_for_long_has_all_the_time_for_its_next_message() {
    let (mut driver, seen) = driver(options());
    driver.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&mut Encoder::new(), "Chat", &[])));
    seen.is_short_of_memory.store(true, Ordering::SeqCst);
    let write_timeout = options().write_timeout;
    driver.tick(Duration::ZERO);
    driver.tick(3 * write_timeout);
    for _ in 0..10 {
        driver.feed(&frame(kind::DATA, 0, 1, &framed(&[7; 10_000])));
    }
    driver.tick(3 * write_timeout);
    driver.tick(3 * write_timeout + write_timeout / 2);
    assert!(!driver.is_closed());
    driver.tick(4 * write_timeout);
    assert!(driver.is_closed());
}

/// Streams keep their headers for as long as they like: those that are open go on whatever others hold.
#[test]
fn headers_of_streams_end_no_stream() {
    let (mut driver, _) = driver(options());
    driver.feed(&settings(&[]));
    let mut encoder = Encoder::new();
    driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&mut encoder, "Chat", &[])));
    let long = "x".repeat(3_900);
    let many: Vec<_> = (0..15).map(|_| ("a", long.as_str())).collect();
    let mut stream = 3;
    while driver.stats().limit_hits(Limit::GatheredBytes) == 0 {
        assert!(stream < 20_000, "10,000 streams with 60 KB of headers each are open");
        let headers = block(&mut encoder, "Chat", &many);
        driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, stream, &headers));
        stream += 2;
    }
    // And what is left of the room.
    while driver.stats().limit_hits(Limit::GatheredBytes) == 1 {
        let headers = block(&mut encoder, "Chat", &many[..1]);
        driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, stream, &headers));
        stream += 2;
    }
    let open = driver.streams();
    assert!(open > 100, "{open} streams fit");
    let output = driver.feed(&frame(kind::DATA, 0, 1, &framed(&[b'x'; 10_000])));
    assert!(frames(&output).iter().any(|(head, _)| head.kind == kind::DATA && head.stream == 1), "the first goes on");
    assert_eq!((driver.streams(), driver.stats().limit_hits(Limit::GatheredBytes)), (open, 2));
    // Requests whose bodies are on their way are another matter.
    driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&mut encoder, "Now", &[])));
    assert_eq!((driver.streams(), driver.stats().limit_hits(Limit::GatheredBytes)), (open + 1, 2));
}

#[test]
fn the_room_of_streams_that_are_over_is_given_back() {
    let (mut driver, _) = driver(options());
    let mut encoder = Encoder::new();
    driver.feed(&settings(&[]));
    let ids = (0..900).map(|index| 2 * index + 1);
    for id in ids.clone() {
        driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, id, &block(&mut encoder, "Chat", &[])));
    }
    assert!(driver.streams() == 900 && driver.stream_room() >= 900, "{}", driver.streams());
    // All but some of the last end.
    for id in ids.clone().take(890) {
        driver.feed(&frame(kind::DATA, flag::END_STREAM, id, &framed(b"hello")));
    }
    driver.tick(Duration::from_secs(1));
    assert!(driver.streams() == 10 && driver.stream_room() < 100, "{}", driver.stream_room());
    for id in ids.skip(890) {
        let output = driver.feed(&frame(kind::DATA, flag::END_STREAM, id, &framed(b"hello")));
        assert!(frames(&output).iter().any(|(head, _)| head.kind == kind::DATA && head.stream == id), "stream {id}");
    }
    assert_eq!(driver.streams(), 0);
}

#[test]
fn handlers_together_hold_no_more_than_the_connection_may() {
    const STREAMS: u32 = 80;
    let (mut driver, seen) = driver(options());
    driver.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    let mut encoder = Encoder::new();
    for index in 0..STREAMS {
        let headers = block(&mut encoder, "Count", &[]);
        let id = 2 * index + 1;
        driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, id, &headers));
        driver.feed(&frame(kind::DATA, flag::END_STREAM, id, &framed(b"4 1000000")));
    }
    let held = seen.source_bytes.load(Ordering::SeqCst);
    assert!((64_000_000..70_000_000).contains(&held), "{held} bytes are held");
    // Once the client reads, all of them come to their end.
    let mut output = driver.feed(&window_update(0, 1 << 30));
    output.extend(driver.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 30)])));
    let ended = frames(&output).iter().filter(|(head, _)| head.kind == kind::HEADERS && head.has(1)).count();
    assert_eq!((ended, seen.source_bytes.load(Ordering::SeqCst)), (STREAMS as usize, 320_000_000));
}

/// While all connections hold so much that each has only the least, a stream of which nothing waits is still answered: else a lease would
/// end because others do not read.
#[test]
fn a_stream_of_which_nothing_waits_is_heard_in_any_crowd() {
    let (mut driver, _) = driver(Options { held_bytes_max: 1 << 10, ..options() });
    driver.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    let mut encoder = Encoder::new();
    for id in [1, 3] {
        let headers = block(&mut encoder, "Chat", &[]);
        driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, id, &headers));
    }
    for _ in 0..10 {
        driver.feed(&frame(kind::DATA, 0, 1, &framed(&[7; 10_000])));
    }
    for count in 1..4 {
        let mut output = driver.feed(&frame(kind::DATA, 0, 3, &framed(b"hello")));
        output.extend(driver.feed(&window_update(3, 100)));
        let answers = frames(&output).iter().filter(|(head, _)| head.kind == kind::DATA && head.stream == 3).count();
        assert_eq!(answers, 1, "message {count}");
    }
    // Several in one frame.
    driver.feed(&window_update(3, 1_000));
    let output =
        driver.feed(&frame(kind::DATA, 0, 3, &[framed(b"hello"), framed(b"hello"), framed(b"hello")].concat()));
    let answered: usize = frames(&output).iter().filter(|(head, _)| head.stream == 3).map(|(head, _)| head.len).sum();
    assert_eq!(answered, 3 * framed(b"hello").len());
}

/// Then streams that hold little each, and let nothing through, cost their connection together.
#[test]
fn little_answers_of_which_nothing_is_taken_end_in_a_crowd() {
    for (held_bytes_max, ends) in [(30 << 10, true), (1 << 30, false)] {
        let options = Options { held_bytes_max, ..options() };
        let write_timeout = options.write_timeout;
        let (mut driver, _) = driver(options);
        driver.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
        let mut encoder = Encoder::new();
        for id in (0..4).map(|index| 2 * index + 1) {
            driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, id, &block(&mut encoder, "Whole", &[])));
            driver.feed(&frame(kind::DATA, flag::END_STREAM, id, &framed(b"25000")));
        }
        driver.tick(Duration::ZERO);
        driver.tick(write_timeout / 2);
        assert!(!driver.is_closed());
        driver.tick(write_timeout);
        assert_eq!(driver.is_closed(), ends, "of {held_bytes_max} bytes");
    }
}

#[test]
fn trailers_are_bounded_like_headers() {
    let (mut driver, _) = driver(options());
    driver.feed(&settings(&[]));
    let mut encoder = Encoder::new();
    let long = "x".repeat(4_000);
    let headers = block(&mut encoder, "Chat", &[("a", &long)]);
    driver.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, &headers));
    let mut trailers = Vec::new();
    (0..100).for_each(|_| encoder.encode(&mut trailers, b"a", long.as_bytes(), Indexing::Index));
    assert!(trailers.len() < 300, "they are references");
    let output = driver.feed(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &trailers));
    let reset = frames(&output).into_iter().find(|(head, _)| head.kind == kind::RST_STREAM);
    assert_eq!(reset.map(|(_, payload)| payload), Some(&[0, 0, 0, 1][..]));
}

/// A client with endless windows must still be heard while it is sent a list.
#[test]
fn a_ping_is_answered_while_a_large_reply_moves() {
    let fixture = serve(options());
    let mut socket = TcpStream::connect(fixture.address).expect("the server listens");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    let widest = settings(&[(setting::INITIAL_WINDOW_SIZE, (1 << 31) - 1)]);
    let headers = frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&mut Encoder::new(), "Parts", &[]));
    let request = frame(kind::DATA, flag::END_STREAM, 1, &framed(b"1000000000"));
    let begin = [&PREFACE[..], &widest, &window_update(0, (1 << 31) - 65_536), &headers, &request].concat();
    socket.write_all(&begin).expect("sent");
    let (mut input, mut room, mut read) = (Vec::new(), vec![0; 64 * 1024], 0);
    let mut pinged_at = None;
    loop {
        let count = socket.read(&mut room).expect("more of the list");
        assert!(count > 0, "the server closed");
        read += count;
        input.extend_from_slice(&room[..count]);
        let whole: usize = frames_len(&input);
        let is_pong = frames(&input[..whole]).iter().any(|(head, _)| head.kind == kind::PING && head.has(flag::ACK));
        input.drain(..whole);
        match pinged_at {
            None if read > 1 << 20 => {
                socket.write_all(&frame(kind::PING, 0, 0, &[1; 8])).expect("sent");
                pinged_at = Some(read);
            }
            Some(at) if is_pong => {
                // What the sockets held when the ping was sent comes before it.
                assert!(read - at < 32 << 20, "{} bytes came before the answer", read - at);
                return;
            }
            Some(at) => assert!(read - at < 200 << 20, "no answer to the ping"),
            None => {}
        }
    }
}

/// Bytes of the whole frames at the beginning of `input`.
fn frames_len(input: &[u8]) -> usize {
    let mut at = 0;
    while let Some(head) = Head::parse(&input[at..]) {
        if input.len() < at + 9 + head.len {
            break;
        }
        at += 9 + head.len;
    }
    at
}
