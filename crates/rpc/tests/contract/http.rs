//! HTTP beside gRPC on the same port.

use std::time::Duration;

use crate::common::{Client, eventually, options, serve};
use bytes::Bytes;
use http::Request;
use rpc::Limit;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends `request` in `pieces` and reads until the server closes.
async fn talk(address: std::net::SocketAddr, pieces: &[&[u8]]) -> String {
    let mut socket = TcpStream::connect(address).await.expect("the server listens");
    for piece in pieces {
        socket.write_all(piece).await.expect("sent");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut text = Vec::new();
    socket.read_to_end(&mut text).await.expect("a response");
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn http1_is_served() {
    let fixture = serve(options());
    let text = talk(fixture.address, &[b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"]).await;
    assert!(text.starts_with("HTTP/1.1 418 "), "{text}");
    assert!(text.ends_with("\r\n\r\nGET /health 0 true"), "{text}");
    // In pieces, beginning like the HTTP/2 preface; with a body; two requests on one connection.
    let text = talk(
        fixture.address,
        &[
            b"P",
            b"RI",
            b" /x HTTP/1.1\r\nhost: x\r\n\r\n",
            b"POST /later HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhe",
            b"llo",
        ],
    )
    .await;
    assert!(text.contains("PRI /x 0 true") && text.ends_with("POST /later 5 true"), "{text}");
    let text = talk(fixture.address, &[b"GET /drop HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"]).await;
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    let text = talk(fixture.address, &[b"nonsense\r\n\r\n"]).await;
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    let text = talk(
        fixture.address,
        &[b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2000000\r\n\r\n", &[0; 1_100_000]],
    )
    .await;
    assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
}

#[tokio::test]
async fn a_long_head_is_refused_before_it_is_whole() {
    let fixture = serve(options());
    let begin = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx: ";
    let whole = [&begin[..], &[b'a'; 60 << 10], b"\r\n\r\n"].concat();
    let text = talk(fixture.address, &[&whole]).await;
    assert!(text.starts_with("HTTP/1.1 418 "), "{text}");
    // All of it is read, so that the connection is closed without a reset.
    let mut endless = begin.to_vec();
    endless.resize(api::limits::HEADER_LIST_BYTES_MAX as usize, b'a');
    let text = talk(fixture.address, &[&endless]).await;
    assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    eventually("it is counted", || fixture.server.stats().limit_hits(Limit::HeaderList) == 1).await;
}

#[tokio::test]
async fn http2_without_grpc_is_served() {
    let fixture = serve(options());
    let mut client = Client::connect(fixture.address).await;
    let request = |method: &str, path: &str| {
        Request::builder().method(method).uri(format!("http://localhost{path}")).body(()).expect("a request")
    };
    let answer = client.call(request("GET", "/version"), Bytes::new()).await;
    assert_eq!((answer.http_status, &answer.body[..]), (418, &b"GET /version 0 true"[..]));
    assert!(answer.trailers.is_none());
    let answer = client.call(request("POST", "/later"), Bytes::from_static(b"{}")).await;
    assert_eq!((answer.http_status, &answer.body[..]), (200, &b"POST /later 2 true"[..]));
    for path in ["/version", "/large"] {
        let answer = client.call(request("HEAD", path), Bytes::new()).await;
        assert_eq!(answer.body.len(), 0, "HEAD {path}");
    }
    let answer = client.call(request("GET", "/drop"), Bytes::new()).await;
    assert_eq!(answer.http_status, 503);
    let answer = client.call(request("GET", "/large"), Bytes::new()).await;
    assert_eq!((answer.http_status, answer.body.len()), (200, 3_000_000));
    let answer = client.call(request("POST", "/x"), Bytes::from(vec![0; 1_100_000])).await;
    assert_eq!(answer.http_status, 413);
    // A content type that only looks like gRPC's.
    let mut odd = request("POST", "/test.Echo/Now");
    odd.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc-web"));
    let answer = client.call(odd, Bytes::new()).await;
    assert_eq!(answer.http_status, 418);
}
