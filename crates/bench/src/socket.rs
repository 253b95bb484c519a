//! What a connection runs over.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A socket, with or without TLS.
pub enum Socket {
    /// TCP alone.
    Tcp(TcpStream),
    /// A socket with a path.
    Unix(UnixStream),
    /// TLS over TCP.
    TcpTls(Box<TlsStream<TcpStream>>),
    /// TLS over a socket with a path.
    UnixTls(Box<TlsStream<UnixStream>>),
}

/// Does the same with whichever it is.
macro_rules! with {
    ($socket:expr, $inner:ident => $work:expr) => {
        match $socket.get_mut() {
            Socket::Tcp($inner) => $work,
            Socket::Unix($inner) => $work,
            Socket::TcpTls($inner) => $work,
            Socket::UnixTls($inner) => $work,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        with!(self, inner => Pin::new(inner).poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        with!(self, inner => Pin::new(inner).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with!(self, inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with!(self, inner => Pin::new(inner).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        with!(self, inner => Pin::new(inner).poll_write_vectored(cx, bufs))
    }
}
