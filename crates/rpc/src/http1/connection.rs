//! HTTP/1.1 connections: health checks, metrics, JSON and the like. One task each; not built for speed.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use contain::outside;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Sleep, Timer, Write};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use tokio::io::ReadBuf;
use tokio::sync::{oneshot, watch};

use crate::grpc::body::Body;
use crate::grpc::responder::plain_response;
use crate::runtime::byte_stream::ByteStream;
use crate::runtime::gathering::Account;
use crate::runtime::shared::Http1Guard;
use crate::{HttpResponder, Limit, Options, Peer, RequestBody, Service, Upgrade};

/// Bytes moved by one read.
const READ_BYTES_MAX: usize = 8 * 1024;

/// The least that the HTTP library takes as a bound of its buffers.
const BUFFER_BYTES_MIN: usize = 8 * 1024;

/// What the requests of one connection have in common.
pub(crate) struct Serving {
    pub(crate) peer: Peer,
    pub(crate) service: Arc<dyn Service>,
    pub(crate) options: Arc<Options>,
    /// What its incomplete requests count towards.
    pub(crate) account: Account,
    /// Says that the connection is open, also when it is no HTTP any more.
    pub(crate) guard: Arc<Http1Guard>,
}

/// Serves one connection to its end.
pub(crate) async fn serve(stream: Stream, context: Serving, mut stop: watch::Receiver<bool>) {
    let mut builder = Builder::new();
    builder.timer(Clock).header_read_timeout(context.options.header_timeout);
    // A head is gathered whole before anything is known of it, and counts for nobody. It gets as many bytes as the headers of a request
    // may have, which is what each connection may always hold (`gathering::SHARE_BYTES`).
    let head_bytes_max = usize::try_from(context.options.header_list_bytes_max).unwrap_or(usize::MAX);
    builder.max_buf_size(head_bytes_max.max(BUFFER_BYTES_MIN));
    let context = Arc::new(context);
    let guard = context.guard.clone();
    let answer = service_fn(move |request| answer(request, context.clone()));
    let mut connection = pin!(builder.serve_connection(stream, answer).with_upgrades());
    let ended = tokio::select! {
        served = connection.as_mut() => Some(served),
        _ = stop.wait_for(|stop| *stop) => None,
    };
    let served = match ended {
        Some(served) => served,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    match served {
        Err(error) if error.is_timeout() => guard.stats.hit(Limit::HeaderTime),
        Err(error) if error.is_parse_too_large() => guard.stats.hit(Limit::HeaderList),
        // Other errors are the client's, and are not reported.
        _ => {}
    }
}

async fn answer(mut request: Request<Incoming>, context: Arc<Serving>) -> Result<Response<Body>, Infallible> {
    if request.headers().contains_key(header::UPGRADE) {
        let upgrade = Upgrade::new(hyper::upgrade::on(&mut request), context.guard.clone());
        request.extensions_mut().insert(upgrade);
    }
    let (mut head, incoming) = request.into_parts();
    head.extensions.insert(context.peer.clone());
    let (sender, receiver) = oneshot::channel();
    let responder = HttpResponder::task(sender);
    if context.service.takes_pieces(&head) {
        let request = Request::from_parts(head, RequestBody::http1(incoming));
        outside(|| context.service.http_in_pieces(request, responder));
    } else {
        let gathering = gather(RequestBody::http1(incoming), &context);
        let gathered = tokio::time::timeout(context.options.http_body_timeout, gathering).await;
        match gathered.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT)) {
            Ok(body) => outside(|| context.service.http(Request::from_parts(head, body), responder)),
            Err(status) => {
                match status {
                    StatusCode::PAYLOAD_TOO_LARGE => context.guard.stats.hit(Limit::MessageBytes),
                    StatusCode::SERVICE_UNAVAILABLE => context.guard.stats.hit(Limit::GatheredBytes),
                    StatusCode::REQUEST_TIMEOUT => context.guard.stats.hit(Limit::BodyTime),
                    _ => {}
                }
                let mut refusal = plain_response(status);
                // What is unread of the body would be taken for the next request.
                refusal.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                return Ok(refusal.map(Body::Whole));
            }
        }
    }
    Ok(receiver.await.unwrap_or_else(|_| plain_response(StatusCode::SERVICE_UNAVAILABLE).map(Body::Whole)))
}

/// The whole body, or why it was not taken.
async fn gather(mut incoming: RequestBody, context: &Serving) -> Result<Bytes, StatusCode> {
    let mut body = BytesMut::new();
    let mut share = context.account.incomplete();
    while let Some(piece) = incoming.next().await {
        let piece = piece.map_err(|_| StatusCode::BAD_REQUEST)?;
        if body.len().saturating_add(piece.len()) > context.options.body_bytes_max {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        if piece.len() > share.room() {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        share.change(0, piece.len());
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// A socket of which the first bytes were read already.
pub(crate) struct Stream {
    stream: Box<dyn ByteStream>,
    ahead: Bytes,
    /// How long the peer may take nothing.
    write_timeout: Duration,
    /// When that time is over, while it takes nothing.
    stuck: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Stream {
    pub(crate) fn new(stream: Box<dyn ByteStream>, ahead: Bytes, write_timeout: Duration) -> Stream {
        Stream { stream, ahead, write_timeout, stuck: None }
    }

    /// Fails what the peer has kept waiting for too long.
    fn in_time<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let timeout = self.write_timeout;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        stuck.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
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
        let mut buf = ReadBuf::new(room.get_mut(..len).unwrap_or_default());
        ready!(Pin::new(&mut *this.stream).poll_read(cx, &mut buf))?;
        #[cfg(feature = "planted-panics")]
        crate::planted::panic_over(buf.filled());
        to.put_slice(buf.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream).poll_write(cx, bytes);
        self.in_time(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut *self.stream).poll_flush(cx);
        self.in_time(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream).poll_write_vectored(cx, slices);
        self.in_time(cx, written)
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
