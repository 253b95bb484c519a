//! Our HPACK against that of the `h2` crate, over connections in memory.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue, Request};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rpc::hpack::{Decoder, Encoder, Indexing};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADER_TABLE_SIZE: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    name: String,
    value: Vec<u8>,
    is_secret: bool,
}

fn field() -> impl Strategy<Value = Sent> {
    let name = prop_oneof![
        "[a-c]",
        "x-[a-z0-9_-]{0,40}",
        prop::sample::select(vec!["user-agent", "accept-encoding", "grpc-timeout", "content-type", "cookie"])
            .prop_map(str::to_owned),
    ];
    let value = prop_oneof!["[a-c]{0,2}", "[!-~]{0,100}", Just("gzip, deflate".to_owned())]
        .prop_map(String::into_bytes)
        .boxed();
    let any_value = prop::collection::vec(0x80..=0xffu8, 0..50).boxed();
    (name, prop_oneof![4 => value, 1 => any_value], prop::bool::weighted(0.1))
        .prop_map(|(name, value, is_secret)| Sent { name, value, is_secret })
}

fn requests() -> impl Strategy<Value = Vec<Vec<Sent>>> {
    prop::collection::vec(prop::collection::vec(field(), 0..10), 1..30)
}

/// What comes in which order under one name; HTTP keeps no other order.
fn by_name(fields: impl IntoIterator<Item = (String, Vec<u8>)>) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut map = BTreeMap::<_, Vec<_>>::new();
    for (name, value) in fields {
        map.entry(name).or_default().push(value);
    }
    map
}

fn plain(fields: &[Sent]) -> BTreeMap<String, Vec<Vec<u8>>> {
    by_name(fields.iter().map(|field| (field.name.clone(), field.value.clone())))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

fn table_size(bytes: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, HEADER_TABLE_SIZE][..], &bytes.to_be_bytes()].concat())
}

async fn read_frame(io: &mut DuplexStream) -> (u8, u8, Vec<u8>) {
    let mut head = [0; 9];
    io.read_exact(&mut head).await.expect("a frame");
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    io.read_exact(&mut payload).await.expect("its payload");
    (head[3], head[4], payload)
}

/// Sends `requests` with the client of `h2` and decodes them.
async fn from_h2(requests: &[Vec<Sent>], table_bytes: u32) {
    let (near, mut far) = duplex(1 << 20);
    far.write_all(&table_size(table_bytes)).await.expect("room");
    let (client, connection) = h2::client::handshake(near).await.expect("in memory");
    let driver = tokio::spawn(connection);
    let mut preface = [0; 24];
    far.read_exact(&mut preface).await.expect("the preface");
    // The client knows of the table size when it has acknowledged it.
    loop {
        let (kind, flags, _) = read_frame(&mut far).await;
        if kind == SETTINGS && flags & ACK == 0 {
            far.write_all(&frame(SETTINGS, ACK, 0, &[])).await.expect("room");
        } else if kind == SETTINGS {
            break;
        }
    }
    let mut decoder = Decoder::new(table_bytes as usize);
    for fields in requests {
        let mut request = Request::post("http://host/path");
        let headers = request.headers_mut().expect("a good request");
        for field in fields {
            let mut value = HeaderValue::from_bytes(&field.value).expect("a good value");
            value.set_sensitive(field.is_secret);
            headers.append(HeaderName::from_bytes(field.name.as_bytes()).expect("a good name"), value);
        }
        let mut client = client.clone().ready().await.expect("open");
        let answer = client.send_request(request.body(()).expect("a good request"), true);
        let _answer = answer.expect("room for a stream");
        let mut block = Vec::new();
        loop {
            let (kind, flags, payload) = read_frame(&mut far).await;
            assert!([HEADERS, CONTINUATION, WINDOW_UPDATE, 3].contains(&kind), "{kind}");
            if kind == HEADERS || kind == CONTINUATION {
                block.extend(payload);
                if flags & END_HEADERS != 0 {
                    break;
                }
            }
        }
        let (mut got, mut pseudo) = (Vec::new(), Vec::new());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("a good name");
        let result = decoder.decode(&block, |field| {
            if field.name.starts_with(b":") {
                pseudo.push(text(field.name) + "=" + &text(field.value));
            } else {
                got.push((text(field.name), field.value.to_vec()));
            }
        });
        assert_eq!(result, Ok(()));
        pseudo.sort();
        assert_eq!(pseudo, [":authority=host", ":method=POST", ":path=/path", ":scheme=http"]);
        assert_eq!(by_name(got), plain(fields));
    }
    driver.abort();
}

/// Encodes `requests` and has the server of `h2` decode them.
async fn to_h2(requests: &[Vec<Sent>], table_bytes: [u32; 2]) {
    let (mut near, far) = duplex(1 << 20);
    near.write_all(PREFACE).await.expect("room");
    near.write_all(&frame(SETTINGS, 0, 0, &[])).await.expect("room");
    let mut builder = h2::server::Builder::new();
    builder.header_table_size(table_bytes[0]).max_header_list_size(1 << 20);
    let mut server = builder.handshake::<_, bytes::Bytes>(far).await.expect("in memory");
    near.write_all(&frame(SETTINGS, ACK, 0, &[])).await.expect("room");
    let mut encoder = Encoder::new();
    encoder.set_table_bytes_max(table_bytes[0] as usize);
    for (number, fields) in requests.iter().enumerate() {
        if number == 5 {
            // Down and up again between two blocks.
            encoder.set_table_bytes_max(table_bytes[1] as usize);
            encoder.set_table_bytes_max(table_bytes[0] as usize);
        }
        let mut block = Vec::new();
        for (name, value) in [(":method", "POST"), (":scheme", "http"), (":path", "/path"), (":authority", "host")] {
            encoder.encode(&mut block, name.as_bytes(), value.as_bytes(), Indexing::Index);
        }
        for (at, field) in fields.iter().enumerate() {
            let indexing = match at % 3 {
                _ if field.is_secret => Indexing::Never,
                0 | 1 => Indexing::Index,
                _ => Indexing::Without,
            };
            encoder.encode(&mut block, field.name.as_bytes(), &field.value, indexing);
        }
        let request = frame(HEADERS, END_STREAM | END_HEADERS, 2 * number as u32 + 1, &block);
        near.write_all(&request).await.expect("room");
        let (request, mut answer) = server.accept().await.expect("a request").expect("a good request");
        assert_eq!(request.uri(), "http://host/path");
        let pair = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), value.as_bytes().to_vec());
        assert_eq!(by_name(request.headers().iter().map(pair)), plain(fields));
        answer.send_reset(h2::Reason::CANCEL);
    }
}

fn check(name: &str, run: impl Fn(&tokio::runtime::Runtime, Vec<Vec<Sent>>, [u32; 2])) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let sizes = prop_oneof![Just([4096, 0]), [0..300u32, 0..300u32], [0..9000u32, 0..9000u32]];
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&(requests(), sizes), |(requests, sizes)| {
        run(&runtime, requests, sizes);
        Ok(())
    });
    assert!(result.is_ok(), "{name}: {}", result.expect_err("it failed"));
}

#[test]
fn we_decode_what_h2_encodes() {
    check("from h2", |runtime, requests, sizes| runtime.block_on(from_h2(&requests, sizes[0])));
}

#[test]
fn h2_decodes_what_we_encode() {
    check("to h2", |runtime, requests, sizes| runtime.block_on(to_h2(&requests, sizes)));
}
