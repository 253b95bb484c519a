//! The first bytes of a connection, by which its protocol is recognized.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::byte_stream::ByteStream;
use crate::{Peer, Serves};

/// What an HTTP/2 client begins with, RFC 9113 section 3.4.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection that has not shown yet what it speaks.
pub(crate) struct Greeting {
    /// None once the protocol is known.
    stream: Option<Box<dyn ByteStream>>,
    seen: [u8; PREFACE.len()],
    len: usize,
    pub(crate) peer: Peer,
    pub(crate) serves: Serves,
    pub(crate) since: Instant,
}

/// The protocol of a connection. Its server must still read the bytes seen so far.
pub(crate) enum Protocol {
    Http1(Box<dyn ByteStream>, Bytes),
    Http2(Box<dyn ByteStream>, Bytes),
}

impl Greeting {
    /// `ahead` was read of `stream` already.
    pub(crate) fn new(
        stream: Box<dyn ByteStream>,
        ahead: Option<u8>,
        peer: Peer,
        serves: Serves,
        since: Instant,
    ) -> Greeting {
        let mut seen = [0; PREFACE.len()];
        seen[0] = ahead.unwrap_or_default();
        Greeting { stream: Some(stream), seen, len: usize::from(ahead.is_some()), peer, serves, since }
    }

    /// Reads until the protocol is known. Errors when the peer closes before.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Protocol>> {
        loop {
            let Some(mut stream) = self.stream.take() else {
                return Poll::Ready(Err(io::Error::other("the protocol is known already")));
            };
            let seen = self.seen.get(..self.len).unwrap_or_default();
            if self.len == PREFACE.len() || !PREFACE.starts_with(seen) {
                let seen = Bytes::copy_from_slice(seen);
                let is_http2 = &seen[..] == PREFACE;
                let protocol = if is_http2 { Protocol::Http2(stream, seen) } else { Protocol::Http1(stream, seen) };
                return Poll::Ready(Ok(protocol));
            }
            let mut buf = ReadBuf::new(self.seen.get_mut(self.len..).unwrap_or_default());
            let read = Pin::new(&mut *stream).poll_read(cx, &mut buf);
            let count = buf.filled().len();
            self.stream = Some(stream);
            ready!(read)?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.len = self.len.saturating_add(count);
        }
    }
}
