//! The bodies of HTTP messages: complete, or in pieces.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};

use super::pipe::{BodyReceiver, Gone};

/// The body of a response.
pub(crate) enum Body {
    /// All of it.
    Whole(Bytes),
    /// What comes out of a pipe.
    Piped(BodyReceiver),
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Gone;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Gone>>> {
        match &mut *self {
            Body::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Body::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Body::Piped(receiver) => receiver.poll_next(cx).map(|next| next.map(|chunk| chunk.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Piped(_) => SizeHint::default(),
        }
    }
}

/// The body of a request as it comes. What is not read holds the client back.
pub struct RequestBody {
    from: From,
}

enum From {
    Http1(Incoming),
    Http2(BodyReceiver),
}

impl RequestBody {
    pub(crate) fn http1(incoming: Incoming) -> RequestBody {
        RequestBody { from: From::Http1(incoming) }
    }

    pub(crate) fn http2(receiver: BodyReceiver) -> RequestBody {
        RequestBody { from: From::Http2(receiver) }
    }

    /// The next piece; none at the end, an error if the client broke off. May be dropped without losing one.
    pub async fn next(&mut self) -> Option<Result<Bytes, Gone>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Gone>>> {
        match &mut self.from {
            From::Http2(receiver) => receiver.poll_next(cx),
            From::Http1(incoming) => loop {
                match ready!(Pin::new(&mut *incoming).poll_frame(cx)) {
                    None => return Poll::Ready(None),
                    Some(Err(_)) => return Poll::Ready(Some(Err(Gone))),
                    // A frame without data is a trailer, which is ignored.
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            return Poll::Ready(Some(Ok(data)));
                        }
                    }
                }
            },
        }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").finish_non_exhaustive()
    }
}
