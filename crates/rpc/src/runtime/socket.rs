//! Sockets of connections and of listeners.

use std::io;
use std::net::{Shutdown, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::byte_stream::ByteStream;
use crate::Address;

/// What the kernel keeps for a client beyond what is on its way to it. Without a bound it is some megabytes for each that does not read,
/// and a few hundred of those use up what the whole machine has for TCP, the connections between members included.
const UNSENT_BYTES: u32 = 256 * 1024;

/// A socket that belongs to no thread yet.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Socket {
    /// Sets what is the same for all connections of a server.
    pub(crate) fn prepare(&self, write_timeout: Duration) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                let options = SockRef::from(stream);
                options.set_tcp_notsent_lowat(UNSENT_BYTES)?;
                options.set_tcp_user_timeout(Some(write_timeout))
            }
            Socket::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    /// The socket in the runtime of the calling thread.
    pub(crate) fn attach(self) -> io::Result<Live> {
        Ok(match self {
            Socket::Tcp(stream) => Live::Tcp(tokio::net::TcpStream::from_std(stream)?),
            Socket::Unix(stream) => Live::Unix(tokio::net::UnixStream::from_std(stream)?),
        })
    }
}

/// A socket in the runtime of a thread.
pub(crate) enum Live {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

impl Live {
    /// Takes the socket out of its runtime, for another thread.
    pub(crate) fn detach(self) -> io::Result<Socket> {
        Ok(match self {
            Live::Tcp(stream) => Socket::Tcp(stream.into_std()?),
            Live::Unix(stream) => Socket::Unix(stream.into_std()?),
        })
    }
}

macro_rules! inner {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Live::Tcp($stream) => $call,
            Live::Unix($stream) => $call,
        }
    };
}

impl ByteStream for Live {}

impl AsyncRead for Live {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Live {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        inner!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inner!(self, stream => Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

/// A socket at which connections are accepted.
#[derive(Debug)]
pub enum Acceptor {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl Acceptor {
    pub(crate) fn accept(&self) -> io::Result<(Socket, Address)> {
        match self {
            Acceptor::Tcp(listener) => listener.accept().map(|(stream, peer)| (Socket::Tcp(stream), peer.into())),
            Acceptor::Unix(listener) => listener.accept().map(|(stream, _)| (Socket::Unix(stream), Address::Unix)),
        }
    }

    pub(crate) fn set_blocking(&self) -> io::Result<()> {
        match self {
            Acceptor::Tcp(listener) => listener.set_nonblocking(false),
            Acceptor::Unix(listener) => listener.set_nonblocking(false),
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Acceptor> {
        match self {
            Acceptor::Tcp(listener) => listener.try_clone().map(Acceptor::Tcp),
            Acceptor::Unix(listener) => listener.try_clone().map(Acceptor::Unix),
        }
    }

    /// Makes an accept that is waiting return.
    pub(crate) fn shut(&self) -> io::Result<()> {
        let socket = match self {
            Acceptor::Tcp(listener) => listener.as_fd(),
            Acceptor::Unix(listener) => listener.as_fd(),
        };
        SockRef::from(&socket).shutdown(Shutdown::Both)
    }
}
