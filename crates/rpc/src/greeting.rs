//! The first bytes of a connection, which tell what it speaks.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use crate::Peer;

/// What an HTTP/2 client begins with, RFC 9113 section 3.4.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection that has not shown yet what it speaks.
pub(crate) struct Greeting {
    /// None once the protocol is known.
    stream: Option<TcpStream>,
    seen: [u8; PREFACE.len()],
    len: usize,
    pub(crate) peer: Peer,
    pub(crate) since: Instant,
}

/// What a connection speaks. The bytes seen so far are still to be read by whoever serves it.
pub(crate) enum Protocol {
    Http1(TcpStream, Bytes),
    Http2(TcpStream, Bytes),
}

impl Greeting {
    pub(crate) fn new(stream: TcpStream, peer: Peer, since: Instant) -> Greeting {
        Greeting { stream: Some(stream), seen: [0; PREFACE.len()], len: 0, peer, since }
    }

    /// Reads until the protocol is known. Errors when the peer closes before.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Protocol>> {
        loop {
            let Some(mut stream) = self.stream.take() else {
                return Poll::Ready(Err(io::Error::other("the protocol is known already")));
            };
            let seen = &self.seen[..self.len];
            if self.len == PREFACE.len() || !PREFACE.starts_with(seen) {
                let seen = Bytes::copy_from_slice(seen);
                let is_http2 = &seen[..] == PREFACE;
                let protocol = if is_http2 { Protocol::Http2(stream, seen) } else { Protocol::Http1(stream, seen) };
                return Poll::Ready(Ok(protocol));
            }
            let mut buf = ReadBuf::new(&mut self.seen[self.len..]);
            let read = Pin::new(&mut stream).poll_read(cx, &mut buf);
            let count = buf.filled().len();
            self.stream = Some(stream);
            ready!(read)?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.len += count;
        }
    }
}
