//! Message framing, compression and size limits.

use std::io::Write;
use std::time::Duration;

use crate::common::{Client, answer, flagged, framed, grpc, options, serve};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

const LIMIT: usize = 1 << 20;

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(data).expect("to memory");
    encoder.finish().expect("to memory")
}

#[tokio::test]
async fn a_message_may_come_in_any_pieces() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let body = framed(b"in pieces");
    for size in [1, 2, 4, 5, 6, 7] {
        let (response, mut stream) = client.open(grpc("Now", &[])).await;
        for piece in body.chunks(size) {
            stream.send_data(Bytes::copy_from_slice(piece), false).expect("sent");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The end comes by itself.
        stream.send_data(Bytes::new(), true).expect("sent");
        assert_eq!(answer(response).await.messages(), [&b"in pieces"[..]]);
    }
    let (response, mut stream) = client.open(grpc("Now", &[])).await;
    stream.send_data(framed(b"with trailers"), false).expect("sent");
    stream.send_trailers(http::HeaderMap::new()).expect("sent");
    assert_eq!(answer(response).await.messages(), [&b"with trailers"[..]]);
    // More than a receive window.
    let large = vec![9; LIMIT];
    assert_eq!(client.unary("Later", &large).await.messages(), [&large[..]]);
}

#[tokio::test]
async fn exactly_one_message_is_expected() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let none = "cardinality violation: received no request message from non-client-streaming RPC";
    let many = "cardinality violation: received multiple request messages for non-client-streaming RPC";
    for method in ["Now", "Count"] {
        for (body, text) in [
            (Bytes::new(), none),
            (Bytes::from([framed(b"1 1"), framed(b"1 1")].concat()), many),
            (framed(b"1 1").slice(..7), "unexpected EOF"),
            (Bytes::from([framed(b"1 1"), framed(b"2 2").slice(..3)].concat()), "unexpected EOF"),
        ] {
            for pieces in [body.len().max(1), 6] {
                let (response, mut stream) = client.open(grpc(method, &[])).await;
                for piece in body.chunks(pieces) {
                    // The server may have answered and reset the rest.
                    let _ = stream.send_data(Bytes::copy_from_slice(piece), false);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let _ = stream.send_data(Bytes::new(), true);
                assert_eq!(answer(response).await.status(), (13, text.to_string()), "{method} {body:?}");
            }
        }
    }
    // No body at all.
    let (response, _) = client.send.send_request(grpc("Now", &[]), true).expect("sent");
    assert_eq!(answer(response).await.status(), (13, none.to_string()));
}

#[tokio::test]
async fn oversized_messages_are_refused_by_their_prefix() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let text = format!("grpc: received message larger than max ({} vs. {LIMIT})", LIMIT + 1);
    for method in ["Now", "Chat"] {
        let (response, mut stream) = client.open(grpc(method, &[])).await;
        let claim = [&[0_u8][..], &(LIMIT as u32 + 1).to_be_bytes()].concat();
        stream.send_data(Bytes::from(claim), false).expect("sent");
        assert_eq!(answer(response).await.status(), (8, text.clone()));
    }
    let answer = client.unary("Now", &vec![0; LIMIT]).await;
    assert_eq!(answer.code(), 0);
}

#[tokio::test]
async fn gzip_is_understood() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let gzipped = |message: &[u8]| flagged(1, &gzip(message));
    let with = |encoding: &'static [u8]| grpc("Now", &[("grpc-encoding", encoding)]);
    let answer = client.call(with(b"gzip"), gzipped(b"compressed")).await;
    assert_eq!(answer.messages(), [&b"compressed"[..]]);
    let answer = client.call(with(b"gzip"), framed(b"not compressed")).await;
    assert_eq!(answer.messages(), [&b"not compressed"[..]]);
    let answer = client.call(with(b"identity"), framed(b"plain")).await;
    assert_eq!(answer.messages(), [&b"plain"[..]]);
    let answer = client.call(with(b"snappy"), framed(b"plain")).await;
    assert_eq!(answer.status(), (12, "grpc: Decompressor is not installed for grpc-encoding \"snappy\"".to_string()));
    assert_eq!(answer.headers["grpc-accept-encoding"], "identity,gzip");
    let answer = client.call(grpc("Now", &[]), gzipped(b"flag only")).await;
    assert_eq!(answer.status(), (13, "grpc: compressed flag set with identity or empty encoding".to_string()));
    let answer = client.call(with(b"gzip"), flagged(1, b"garbage")).await;
    assert_eq!(answer.code(), 13);
    let answer = client.call(with(b"gzip"), gzipped(&vec![0; 100 << 20])).await;
    assert_eq!(answer.status(), (8, format!("grpc: received message after decompression larger than max {LIMIT}")));
    let answer = client.call(with(b"gzip"), flagged(2, b"x")).await;
    assert_eq!(answer.status(), (13, "grpc: received unexpected payload format 2".to_string()));
}

#[tokio::test]
async fn incomplete_requests_are_bounded_per_connection() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let mut streams = Vec::new();
    // 80 times nearly 1 MiB; the server holds at most 64 MiB of it.
    for _ in 0..80 {
        let (response, mut stream) = client.open(grpc("Now", &[])).await;
        let body = framed(&vec![0; LIMIT]);
        let mut rest = body.slice(..body.len() - 1);
        while !rest.is_empty() {
            stream.reserve_capacity(rest.len());
            match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(Ok(room)) => stream.send_data(rest.split_to(room.min(rest.len())), false).expect("sent"),
                _ => break,
            }
        }
        streams.push((response, stream));
    }
    let mut refused = 0;
    for (response, mut stream) in streams {
        let _ = stream.send_data(Bytes::from_static(&[0]), true);
        let answer = answer(response).await;
        match answer.code() {
            0 => {}
            8 => refused += 1,
            other => panic!("{other}: {}", answer.status().1),
        }
    }
    assert!((10..=20).contains(&refused), "{refused} refused");
}
