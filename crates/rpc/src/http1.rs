//! HTTP/1.1 connections: health checks, metrics and the like. A task each; speed is not their point.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Sleep, Timer, Write};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use crate::responder::plain_response;
use crate::{HttpResponder, Options, Peer, Service};

/// Bytes moved by one read.
const READ_BYTES_MAX: usize = 8 * 1024;

/// Serves one connection to its end.
pub(crate) async fn serve(
    stream: Stream,
    peer: Peer,
    service: Arc<dyn Service>,
    options: Arc<Options>,
    mut stop: watch::Receiver<bool>,
) {
    let bytes_max = options.message_bytes_max;
    let answer = service_fn(move |request| answer(request, peer.clone(), service.clone(), bytes_max));
    let mut builder = Builder::new();
    builder.timer(Clock).header_read_timeout(options.handshake_timeout);
    let mut connection = pin!(builder.serve_connection(stream, answer));
    tokio::select! {
        // Errors are the client's: there is nobody to tell.
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn answer(
    request: Request<Incoming>,
    peer: Peer,
    service: Arc<dyn Service>,
    bytes_max: usize,
) -> Result<Response<Body>, hyper::Error> {
    let (mut head, incoming) = request.into_parts();
    let body = match gather(incoming, bytes_max).await? {
        Some(body) => body,
        None => return Ok(plain_response(StatusCode::PAYLOAD_TOO_LARGE).map(Body::new)),
    };
    head.extensions.insert(peer);
    let (sender, receiver) = oneshot::channel();
    service.http(Request::from_parts(head, body), HttpResponder::task(sender));
    let response = receiver.await.unwrap_or_else(|_| plain_response(StatusCode::SERVICE_UNAVAILABLE));
    Ok(response.map(Body::new))
}

/// The whole body; none if it is too long.
async fn gather(incoming: Incoming, bytes_max: usize) -> Result<Option<Bytes>, hyper::Error> {
    let mut incoming = pin!(incoming);
    let mut body = BytesMut::new();
    while let Some(frame) = std::future::poll_fn(|cx| incoming.as_mut().poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            body.extend_from_slice(&data);
        }
        if body.len() > bytes_max {
            return Ok(None);
        }
    }
    Ok(Some(body.freeze()))
}

/// A response body that is all there.
struct Body(Option<Bytes>);

impl Body {
    fn new(bytes: Bytes) -> Body {
        Body(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, Bytes::len) as u64)
    }
}

/// A socket of which the first bytes were read already.
pub(crate) struct Stream {
    stream: TcpStream,
    ahead: Bytes,
}

impl Stream {
    pub(crate) fn new(stream: TcpStream, ahead: Bytes) -> Stream {
        Stream { stream, ahead }
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.ahead.is_empty() {
            let count = this.ahead.len().min(to.remaining());
            to.put_slice(&this.ahead.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let mut room = [0; READ_BYTES_MAX];
        let len = room.len().min(to.remaining());
        let mut buf = ReadBuf::new(&mut room[..len]);
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buf))?;
        to.put_slice(buf.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
}

/// The runtime's clock, for hyper's timeouts.
#[derive(Clone, Debug)]
struct Clock;

struct Nap(Pin<Box<tokio::time::Sleep>>);

impl Timer for Clock {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Nap(Box::pin(tokio::time::sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Nap(Box::pin(tokio::time::sleep_until(deadline.into()))))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        *sleep = self.sleep_until(deadline);
    }
}

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl Sleep for Nap {}
