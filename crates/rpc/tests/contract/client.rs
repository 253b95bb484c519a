//! The client's connection against our server, against the server of the `h2` crate, and against hostile servers.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::common::{Fixture, framed, messages, options, pattern, serve};
use api::Code;
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use rpc::client::{Calls, Connection, Link, Options, ReadBuffer, Refused, Release, RequestHead};
use rpc::frame::{self, Head, Settings, flag, kind, setting};
use rpc::hpack::{Encoder, Indexing};
use rpc::{Metadata, Status};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// What has come of each call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    bodies: Vec<Vec<u8>>,
    ended: Vec<Option<Status>>,
}

impl Seen {
    fn of(calls: usize) -> Seen {
        Seen { bodies: vec![Vec::new(); calls], ended: vec![None; calls] }
    }

    fn all_ended(&self) -> bool {
        self.ended.iter().all(Option::is_some)
    }

    fn code(&self, call: usize) -> Option<Code> {
        self.ended[call].as_ref().map(|status| status.code)
    }
}

impl Calls for Seen {
    fn data(&mut self, tag: usize, data: &[u8]) {
        assert!(self.ended[tag].is_none(), "nothing comes behind the end");
        self.bodies[tag].extend_from_slice(data);
    }

    fn end(&mut self, tag: usize, status: Status) {
        assert!(self.ended[tag].replace(status).is_none(), "a call ends once");
    }
}

async fn connect(fixture: &Fixture, options: Options) -> Link<TcpStream> {
    Link::new(TcpStream::connect(fixture.address).await.expect("the server listens"), options)
}

/// Turns until `done`, or until the connection is lost, whose calls are ended then.
async fn turn_until<S: AsyncRead + AsyncWrite + Unpin>(
    link: &mut Link<S>,
    seen: &mut Seen,
    done: impl Fn(&Link<S>, &Seen) -> bool,
) -> bool {
    let mut buffer = ReadBuffer::default();
    let turns = poll_fn(|cx| {
        if let Err(broken) = link.read(cx, &mut buffer, seen) {
            link.connection.abandon(&Status::from(&broken), seen);
            return Poll::Ready(false);
        }
        let _ = link.flush(cx);
        if done(link, seen) { Poll::Ready(true) } else { Poll::Pending }
    });
    let outcome = tokio::time::timeout(Duration::from_secs(20), turns).await;
    outcome.unwrap_or_else(|_| panic!("it does not come to an end: {:?}", seen.ended))
}

fn head(method: &str) -> RequestHead {
    RequestHead::new(&format!("/test.Echo/{method}"), "localhost")
}

#[tokio::test]
async fn unary_calls_come_back_whole() {
    let fixture = serve(options());
    let mut link = connect(&fixture, Options::default()).await;
    let mut seen = Seen::of(60);
    let (mut now, mut later) = (head("Now"), head("Later"));
    let large = vec![7; 300_000];
    for tag in 0..60 {
        let head = if tag % 2 == 0 { &mut now } else { &mut later };
        let message = if tag % 10 == 0 { &large[..] } else { &[tag as u8; 20] };
        link.connection.unary(head, None, tag, message).expect("a call");
    }
    assert!(turn_until(&mut link, &mut seen, |_, seen| seen.all_ended()).await);
    for tag in 0..60 {
        assert_eq!(seen.ended[tag], Some(Status::OK));
        let wanted = if tag % 10 == 0 { large.clone() } else { vec![tag as u8; 20] };
        assert_eq!(messages(Bytes::from(seen.bodies[tag].clone())), [wanted]);
    }
    assert_eq!(link.connection.open_calls(), 0);
}

#[tokio::test]
async fn long_answers_fit_through_small_windows() {
    let fixture = serve(options());
    let windows = Options { stream_window_bytes: 1000, connection_window_bytes: 0, ..Options::default() };
    let mut link = connect(&fixture, windows).await;
    let mut seen = Seen::of(3);
    for tag in 0..3 {
        link.connection.unary(&mut head("Parts"), None, tag, b"200000").expect("a call");
    }
    assert!(turn_until(&mut link, &mut seen, |_, seen| seen.all_ended()).await);
    let wanted: Vec<u8> = (0..200_000).map(pattern).collect();
    for body in &seen.bodies {
        assert!(messages(Bytes::from(body.clone())) == [wanted.clone()]);
    }
}

#[tokio::test]
async fn errors_have_their_code_and_text() {
    let fixture = serve(options());
    let mut link = connect(&fixture, Options::default()).await;
    let mut seen = Seen::of(5);
    let secret: Metadata = [("token", "abc")].into_iter().collect();
    link.connection.unary(&mut head("Fail"), None, 0, b"").expect("a call");
    link.connection.unary(&mut head("Nothing"), None, 1, b"").expect("a call");
    link.connection.unary(&mut head("Never"), Some(Duration::from_millis(50)), 2, b"").expect("a call");
    link.connection.unary(&mut head("Token").with_metadata(secret), None, 3, b"").expect("a call");
    link.connection.open(&mut head("Refuse"), None, 4, Release::AtOnce).expect("a call");
    assert!(turn_until(&mut link, &mut seen, |_, seen| seen.all_ended()).await);
    assert_eq!(seen.ended[0], Some(Status::new(Code::DataLoss, "50% lost:\nschön")));
    let codes: Vec<_> = (1..5).map(|call| seen.code(call)).collect();
    let wanted = [Code::Unimplemented, Code::DeadlineExceeded, Code::Ok, Code::PermissionDenied].map(Some);
    assert_eq!(codes, wanted);
    assert_eq!(messages(Bytes::from(seen.bodies[3].clone())), ["abc"]);
}

#[tokio::test]
async fn streams_speak_both_ways_and_wait_for_their_reader() {
    let fixture = serve(options());
    let windows = Options { stream_window_bytes: 20_000, ..Options::default() };
    let mut link = connect(&fixture, windows).await;
    let mut seen = Seen::of(2);
    let chat = link.connection.open(&mut head("Chat"), None, 0, Release::AtOnce).expect("a call");
    let count = link.connection.open(&mut head("Count"), None, 1, Release::ByCaller).expect("a call");
    link.connection.send(count, b"100 1000", true);
    for round in 1..=5 {
        link.connection.send(chat, b"hello", false);
        assert!(turn_until(&mut link, &mut seen, |_, seen| seen.bodies[0].len() == 10 * round).await);
    }
    // The other stream gets no further than its window for as long as nothing is released.
    assert!(turn_until(&mut link, &mut seen, |_, seen| seen.bodies[1].len() == 20_000).await);
    link.connection.send(chat, b"bye", false);
    assert!(turn_until(&mut link, &mut seen, |_, seen| seen.ended[0].is_some()).await);
    assert_eq!((seen.code(0), seen.bodies[1].len()), (Some(Code::Aborted), 20_000));
    while seen.ended[1].is_none() {
        let held = seen.bodies[1].len();
        link.connection.release(count, 20_000);
        turn_until(&mut link, &mut seen, |_, seen| seen.bodies[1].len() > held || seen.all_ended()).await;
    }
    assert_eq!((seen.code(1), seen.bodies[1].len()), (Some(Code::Ok), 100 * 1005));
}

#[tokio::test]
async fn calls_given_up_leave_no_trace() {
    let fixture = serve(options());
    let mut link = connect(&fixture, Options::default()).await;
    let mut seen = Seen::of(101);
    for tag in 0..100 {
        let key = link.connection.unary(&mut head("Never"), None, tag, b"x").expect("a call");
        link.connection.cancel(key);
        link.connection.cancel(key);
        link.connection.send(key, b"late", true);
    }
    assert_eq!(link.connection.open_calls(), 0);
    link.connection.unary(&mut head("Now"), None, 100, b"x").expect("a call");
    assert!(turn_until(&mut link, &mut seen, |_, seen| seen.ended[100].is_some()).await);
    assert_eq!(seen.code(100), Some(Code::Ok));
    assert!(seen.ended[..100].iter().all(Option::is_none));
}

#[tokio::test]
async fn the_servers_limit_of_streams_is_kept() {
    let fixture = serve(rpc::Options { concurrent_streams_max: 3, ..options() });
    let mut link = connect(&fixture, Options::default()).await;
    let mut seen = Seen::of(20);
    assert!(turn_until(&mut link, &mut seen, |link, _| link.connection.is_greeted()).await);
    assert_eq!(link.connection.free_calls(), 3);
    let mut sent = 0;
    while sent < 20 {
        while link.connection.unary(&mut head("Later"), None, sent, b"x").is_ok() {
            sent += 1;
            if sent == 20 {
                break;
            }
        }
        assert!(link.connection.open_calls() <= 3);
        let ended = seen.ended.iter().flatten().count();
        let more = |_: &Link<_>, seen: &Seen| seen.ended.iter().flatten().count() > ended;
        assert!(turn_until(&mut link, &mut seen, more).await);
    }
    assert!(turn_until(&mut link, &mut seen, |_, seen| seen.all_ended()).await);
    assert!(seen.ended.iter().flatten().all(|status| *status == Status::OK));
}

#[tokio::test]
async fn pings_are_answered() {
    let fixture = serve(options());
    let mut link = connect(&fixture, Options::default()).await;
    link.connection.ping();
    assert!(turn_until(&mut link, &mut Seen::of(0), |link, _| link.connection.pongs() == 1).await);
}

#[tokio::test]
async fn a_server_that_goes_away_ends_its_calls() {
    let fixture = serve(options());
    let mut link = connect(&fixture, Options::default()).await;
    let mut seen = Seen::of(2);
    link.connection.unary(&mut head("Now"), None, 0, b"x").expect("a call");
    assert!(turn_until(&mut link, &mut seen, |_, seen| seen.ended[0].is_some()).await);
    link.connection.unary(&mut head("Never"), None, 1, b"x").expect("a call");
    let stopping = std::thread::spawn(move || drop(fixture));
    assert!(!turn_until(&mut link, &mut seen, |_, _| false).await);
    stopping.join().expect("stops");
    assert_eq!(seen.code(1), Some(Code::Unavailable));
    assert!(link.connection.is_closing());
    assert_eq!(link.connection.unary(&mut head("Now"), None, 0, b"x").err(), Some(Refused::Closing));
}

#[tokio::test]
async fn the_server_of_another_implementation_is_understood() {
    let (near, far) = tokio::io::duplex(1000);
    tokio::spawn(async move {
        let mut builder = h2::server::Builder::new();
        builder.initial_window_size(5_000).max_concurrent_streams(50).header_table_size(0);
        let mut server = builder.handshake::<_, Bytes>(far).await.expect("a client");
        while let Some(call) = server.accept().await {
            let (request, mut answer) = call.expect("a request");
            tokio::spawn(async move {
                let refused = request.uri().path() == "/refuse";
                let (whole, _) = crate::common::rest(request.into_body()).await;
                let head = http::Response::builder().header("content-type", "application/grpc");
                if refused {
                    let head = head.header("grpc-status", "7").header("grpc-message", "no");
                    answer.send_response(head.body(()).expect("a head"), true).expect("sent");
                    return;
                }
                let mut body = answer.send_response(head.body(()).expect("a head"), false).expect("sent");
                body.send_data(whole, false).expect("sent");
                let mut trailers = http::HeaderMap::new();
                trailers.insert("grpc-status", "0".parse().expect("a value"));
                body.send_trailers(trailers).expect("sent");
            });
        }
    });
    let mut link = Link::new(near, Options { stream_window_bytes: 3_000, ..Options::default() });
    let mut seen = Seen::of(40);
    // What is sent before the server's settings have come may be more than its windows take then; `h2` does not get over that.
    assert!(turn_until(&mut link, &mut seen, |link, _| link.connection.is_greeted()).await);
    let (mut echo, mut refuse) = (RequestHead::new("/echo", "x"), RequestHead::new("/refuse", "x"));
    for tag in 0..40 {
        let head = if tag % 8 == 7 { &mut refuse } else { &mut echo };
        link.connection.unary(head, None, tag, &vec![tag as u8; tag * 1000]).expect("a call");
    }
    assert!(turn_until(&mut link, &mut seen, |_, seen| seen.all_ended()).await);
    for tag in 0..40 {
        if tag % 8 == 7 {
            assert_eq!(seen.ended[tag], Some(Status::new(Code::PermissionDenied, "no")));
        } else {
            assert_eq!(seen.ended[tag], Some(Status::OK));
            assert!(seen.bodies[tag] == framed(&vec![tag as u8; tag * 1000]), "call {tag}");
        }
    }
}

/// Frames as a server sends them.
#[derive(Default)]
struct Script {
    out: BytesMut,
    encoder: Encoder,
}

impl Script {
    fn greeting() -> Script {
        let mut script = Script::default();
        Settings::put(&[(setting::MAX_CONCURRENT_STREAMS, 10)], &mut script.out);
        script
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> &mut Script {
        Head { len: payload.len(), kind, flags, stream }.put(&mut self.out);
        self.out.extend_from_slice(payload);
        self
    }

    fn headers(&mut self, stream: u32, fields: &[(&str, &str)], end: bool) -> &mut Script {
        let mut block = Vec::new();
        for (name, value) in fields {
            self.encoder.encode(&mut block, name.as_bytes(), value.as_bytes(), Indexing::Index);
        }
        let flags = flag::END_HEADERS | if end { flag::END_STREAM } else { 0 };
        self.frame(kind::HEADERS, flags, stream, &block)
    }

    fn begin(&mut self, stream: u32) -> &mut Script {
        self.headers(stream, &[(":status", "200"), ("content-type", "application/grpc")], false)
    }

    fn end(&mut self, stream: u32) -> &mut Script {
        self.headers(stream, &[("grpc-status", "0")], true)
    }
}

/// A connection with three calls, which a server answers with `input`, cut into pieces of `step`.
fn play(input: &[u8], step: usize) -> (Seen, Result<(), frame::Reason>, usize) {
    let mut connection = Connection::new(Options::default());
    for tag in 0..3 {
        connection.unary(&mut head("Now"), None, tag, b"x").expect("a call");
    }
    let mut seen = Seen::of(3);
    let mut held = Vec::new();
    for piece in input.chunks(step.max(1)) {
        held.extend_from_slice(piece);
        match connection.receive(&held, &mut seen) {
            Ok(handled) => drop(held.drain(..handled)),
            Err(reason) => return (seen, Err(reason), connection.open_calls()),
        }
    }
    (seen, Ok(()), connection.open_calls())
}

#[test]
fn answers_survive_any_cut() {
    let mut script = Script::greeting();
    script.begin(1).begin(3).frame(kind::DATA, 0, 3, &framed(b"three")).frame(kind::DATA, 0, 1, &framed(b"one")[..4]);
    script.headers(5, &[(":status", "103")], false).frame(kind::PING, 0, 0, b"12345678").begin(5);
    script.frame(kind::DATA, flag::PADDED, 1, &[&[3][..], &framed(b"one")[4..], &[0; 3]].concat());
    script.end(1).headers(3, &[("grpc-status", "5"), ("grpc-message", "gone")], true);
    script.frame(200, 0, 77, b"unknown").frame(kind::RST_STREAM, 0, 5, &7_u32.to_be_bytes());
    let whole = play(&script.out, usize::MAX);
    assert_eq!((whole.1, whole.2), (Ok(()), 0));
    assert_eq!(whole.0.bodies[..2], [framed(b"one").to_vec(), framed(b"three").to_vec()]);
    assert_eq!(whole.0.ended[1], Some(Status::new(Code::NotFound, "gone")));
    assert_eq!(whole.0.code(2), Some(Code::Unavailable));
    for step in 1..script.out.len() {
        assert_eq!(play(&script.out, step), whole, "in pieces of {step}");
    }
}

/// What a server sends after its greeting.
type Make<'a> = &'a dyn Fn(&mut Script);

#[test]
fn servers_that_break_the_rules_end_the_connection_or_the_call() {
    use frame::Reason;
    let broken = |make: Make<'_>| {
        let mut script = Script::greeting();
        make(&mut script);
        play(&script.out, usize::MAX)
    };
    let connection: &[(Make<'_>, Reason)] = &[
        (
            &|s| {
                s.frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, b"\0\0\0\x02");
            },
            Reason::PROTOCOL_ERROR,
        ),
        (
            &|s| {
                s.begin(2);
            },
            Reason::PROTOCOL_ERROR,
        ),
        (
            &|s| {
                s.begin(7);
            },
            Reason::PROTOCOL_ERROR,
        ),
        (
            &|s| {
                s.frame(kind::DATA, 0, 9, b"x");
            },
            Reason::PROTOCOL_ERROR,
        ),
        (
            &|s| {
                s.frame(kind::HEADERS, flag::END_HEADERS, 1, b"\xff\xff");
            },
            Reason::COMPRESSION_ERROR,
        ),
        (
            &|s| {
                s.frame(kind::HEADERS, 0, 1, b"\x88").begin(1);
            },
            Reason::PROTOCOL_ERROR,
        ),
        (
            &|s| {
                s.frame(kind::CONTINUATION, 0, 1, b"\x88");
            },
            Reason::PROTOCOL_ERROR,
        ),
        (&|s| s.out.extend_from_slice(&[0xff; 9]), Reason::FRAME_SIZE_ERROR),
        (&|s| Settings::put(&[(setting::ENABLE_PUSH, 1)], &mut s.out), Reason::PROTOCOL_ERROR),
        (
            &|s| {
                s.frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]);
            },
            Reason::FLOW_CONTROL_ERROR,
        ),
        (
            &|s| {
                s.frame(kind::HEADERS, 0, 1, b"\x88");
                for _ in 0..100 {
                    s.frame(kind::CONTINUATION, 0, 1, b"");
                }
            },
            Reason::ENHANCE_YOUR_CALM,
        ),
        (
            &|s| {
                s.begin(1);
                for _ in 0..300 {
                    s.frame(kind::DATA, 0, 1, &[0; 16_384]);
                }
            },
            // The stream is over after a window; what goes on coming is counted, but no longer held.
            Reason::NO_ERROR,
        ),
    ];
    for (number, (make, reason)) in connection.iter().enumerate() {
        let (_, outcome, _) = broken(make);
        assert_eq!(outcome.err().unwrap_or(Reason::NO_ERROR), *reason, "case {number}");
    }
    let call: &[Make<'_>] = &[
        &|s| {
            s.frame(kind::DATA, 0, 1, b"early");
        },
        &|s| {
            s.begin(1).begin(1);
        },
        &|s| {
            s.headers(1, &[("content-type", "application/grpc")], false);
        },
        &|s| {
            s.begin(1).frame(kind::WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]);
        },
        &|s| {
            s.begin(1).frame(kind::WINDOW_UPDATE, 0, 1, &[0; 4]);
        },
    ];
    for (number, make) in call.iter().enumerate() {
        let (seen, outcome, open) = broken(make);
        assert_eq!((outcome, open, seen.code(0)), (Ok(()), 2, Some(Code::Internal)), "case {number}");
    }
    let (_, outcome, _) = play(&{ Script::default().begin(1).out.split() }, usize::MAX);
    assert_eq!(outcome, Err(Reason::PROTOCOL_ERROR), "settings come first");
}

#[test]
fn what_was_not_looked_at_ends_with_goodbye() {
    let mut script = Script::greeting();
    script.frame(kind::GO_AWAY, 0, 0, b"\0\0\0\x01\0\0\0\0bye").begin(1).end(1);
    let (seen, outcome, open) = play(&script.out, usize::MAX);
    assert_eq!((outcome, open), (Ok(()), 0));
    assert_eq!(
        (0..3).map(|call| seen.code(call)).collect::<Vec<_>>(),
        [Code::Ok, Code::Unavailable, Code::Unavailable].map(Some)
    );
}

proptest! {
    /// Whatever a server sends: an error at most, never a panic, and the same in any pieces.
    #[test]
    fn nothing_a_server_sends_is_too_much(
        frames in prop::collection::vec((0..12_u8, any::<u8>(), 0..8_u32, prop::collection::vec(any::<u8>(), 0..40)), 0..30),
        begun in any::<bool>(),
        step in 1..50_usize,
    ) {
        let mut script = Script::greeting();
        if begun {
            script.begin(1).begin(3);
        }
        for (kind, flags, stream, payload) in frames {
            script.frame(kind, flags, stream, &payload);
        }
        let whole = play(&script.out, usize::MAX);
        prop_assert_eq!(play(&script.out, step), whole);
    }
}
