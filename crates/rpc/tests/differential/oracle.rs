//! The same service behind the server of the `h2` crate, in memory.

use std::future::Future;
use std::task::Poll;

use bytes::{BufMut, Bytes, BytesMut};
use http::{Request, Response};
use rpc::frame::PREFACE;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::{Builder, Runtime};

use crate::echo::ECHO;

const WINDOW_BYTES: u32 = 1 << 20;
/// Room for a whole script, and for what it is answered with.
const PIPE_BYTES: usize = 4 << 20;
/// Turns without anything new after which nothing more is to be expected: everything that can go on does so in each.
const QUIET_TURNS: usize = 4;

pub struct Oracle {
    runtime: Runtime,
    near: DuplexStream,
}

impl Oracle {
    /// A connection whose preface has come.
    pub fn new() -> Oracle {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let (near, far) = duplex(PIPE_BYTES);
        runtime.spawn(serve(far));
        let mut oracle = Oracle { runtime, near };
        oracle.feed(&PREFACE[..]);
        oracle
    }

    /// Has the server read `input` and do all that there is to do. Returns what it wrote.
    pub fn feed(&mut self, input: &[u8]) -> Vec<u8> {
        let Oracle { runtime, near } = self;
        let mut output = Vec::new();
        runtime.block_on(async {
            // The server may have closed already.
            let _ = near.write_all(input).await;
            let mut quiet_turns = 0;
            while quiet_turns < QUIET_TURNS {
                tokio::task::yield_now().await;
                let before = output.len();
                let mut reading = std::pin::pin!(near.read_buf(&mut output));
                let read = std::future::poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await;
                quiet_turns = if output.len() > before && read.is_ready() { 0 } else { quiet_turns + 1 };
            }
        });
        output
    }
}

async fn serve(io: tokio::io::DuplexStream) {
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    builder.max_header_list_size(64 << 10);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(io).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(reply(request, respond));
    }
    // An error is said to the client before the connection is dropped.
    let _ = std::future::poll_fn(|cx| connection.poll_closed(cx)).await;
}

/// Answers as the server under test does, as far as that is compared.
async fn reply(request: Request<h2::RecvStream>, mut respond: h2::server::SendResponse<Bytes>) -> Option<()> {
    let is_grpc = request.headers().get("content-type").is_some_and(|value| value == "application/grpc");
    let is_echo = is_grpc && request.method() == "POST" && request.uri().path() == ECHO;
    let response = |status: u16| {
        let mut response = Response::new(());
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
        response
    };
    if is_grpc && !is_echo {
        respond.send_response(response(404), true).ok()?;
        return None;
    }
    let mut body = request.into_body();
    let mut message = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        body.flow_control().release_capacity(data.len()).ok()?;
        message.put(data);
    }
    body.trailers().await.ok()?;
    let is_whole = message.len() >= 5
        && message[0] == 0
        && u32::from_be_bytes([message[1], message[2], message[3], message[4]]) as usize == message.len() - 5;
    if is_grpc && !is_whole {
        respond.send_response(response(400), true).ok()?;
        return None;
    }
    if !is_echo {
        let mut out = respond.send_response(response(418), message.is_empty()).ok()?;
        return if message.is_empty() { None } else { out.send_data(message.freeze(), true).ok() };
    }
    let mut out = respond.send_response(response(200), false).ok()?;
    out.send_data(message.freeze(), false).ok()?;
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    out.send_trailers(trailers).ok()
}
