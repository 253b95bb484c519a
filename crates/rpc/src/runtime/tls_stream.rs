//! TLS over a socket, as one more stream of bytes.

use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::byte_stream::ByteStream;

/// Encrypted bytes that may wait for the socket: what one write is cut to.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// The server's side of a TLS connection over `S`.
pub(crate) struct TlsStream<S> {
    socket: S,
    session: Box<ServerConnection>,
    /// Bytes of the last write, as long as they wait for the socket, encrypted.
    unsent_bytes: usize,
    /// We have said that nothing more will be written.
    closing: bool,
}

/// The socket with the waker of the task that uses it: what the session reads from and writes to.
struct Pipe<'a, 'b, S> {
    socket: &'a mut S,
    cx: &'a mut Context<'b>,
}

impl<S: ByteStream> TlsStream<S> {
    pub(crate) fn new(socket: S, mut session: Box<ServerConnection>) -> TlsStream<S> {
        session.set_buffer_limit(Some(BUFFER_BYTES_MAX));
        TlsStream { socket, session, unsent_bytes: 0, closing: false }
    }

    pub(crate) fn session(&mut self) -> &mut ServerConnection {
        &mut self.session
    }

    pub(crate) fn into_parts(self) -> (S, Box<ServerConnection>) {
        (self.socket, self.session)
    }

    /// Goes on with the handshake until it is done. The error that ends it is told to the client.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_push(cx))?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_pull(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Writes the encrypted bytes that wait.
    fn poll_push(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut pipe = Pipe { socket: &mut self.socket, cx };
            match self.session.write_tls(&mut pipe) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.unsent_bytes = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads encrypted bytes and decrypts them; how many there were.
    fn poll_pull(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut pipe = Pipe { socket: &mut self.socket, cx };
        let count = match self.session.read_tls(&mut pipe) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if let Err(error) = self.session.process_new_packets() {
            // As far as the socket takes it at once: the alert that says why.
            let _ = self.poll_push(cx);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(count))
    }

    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut ServerConnection) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        // What waits goes first: the buffer is bounded, and while it cannot be emptied nothing is added to it.
        ready!(self.poll_push(cx))?;
        let count = write(&mut self.session)?;
        self.unsent_bytes = count;
        match self.poll_push(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // The rest follows with the next write or flush.
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(count)),
        }
    }
}

impl<S: ByteStream> ByteStream for TlsStream<S> {
    fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }
}

impl<S: ByteStream> AsyncRead for TlsStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match this.session.reader().read(buf.initialize_unfilled()) {
                Ok(count) => {
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Closed without a word. What the protocol above has not finished it knows itself.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
            }
            // Answers of the session itself, as to a change of keys.
            if this.session.wants_write()
                && let Poll::Ready(Err(error)) = this.poll_push(cx)
            {
                return Poll::Ready(Err(error));
            }
            ready!(this.poll_pull(cx))?;
        }
    }
}

impl<S: ByteStream> AsyncWrite for TlsStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |session| session.writer().write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |session| session.writer().write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_push(cx))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.closing, true) {
            self.session.send_close_notify();
        }
        ready!(self.poll_push(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl<S: ByteStream> Read for Pipe<'_, '_, S> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(room);
        match Pin::new(&mut *self.socket).poll_read(self.cx, &mut buf) {
            Poll::Ready(Ok(())) => Ok(buf.filled().len()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl<S: ByteStream> Write for Pipe<'_, '_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match Pin::new(&mut *self.socket).poll_write(self.cx, bytes) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match Pin::new(&mut *self.socket).poll_write_vectored(self.cx, slices) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
