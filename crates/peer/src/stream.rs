//! A connection between members: TCP and Unix sockets, and TLS over them (`encrypted`).

use socket2::Socket;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// A connection that carries bytes both ways.
pub(crate) trait Duplex: Read + Write + Send {
    /// The socket's descriptor, to wait for it.
    fn descriptor(&self) -> RawFd;
    /// How long a read may wait; `None` means forever.
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    /// How long a write may wait; `None` means forever.
    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    /// Sets whether reads and writes return at once.
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()>;
    /// Tells the other side that nothing more will be written.
    fn finish(&mut self) -> io::Result<()>;
    /// A handle that ends the connection from another thread.
    fn breaker(&self) -> io::Result<Breaker>;
}

/// Any kind of connection.
pub(crate) type Stream = Box<dyn Duplex>;

/// Whether the other side has closed the connection, even if unread bytes are left. To be called by the thread that
/// serves the connection and keeps it open.
pub(crate) fn is_closed(descriptor: RawFd) -> bool {
    let mut socket = libc::pollfd { fd: descriptor, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: the pointer is to one structure, which outlives the call.
    let ready = unsafe { libc::poll(&raw mut socket, 1, 0) };
    ready > 0
}

/// Ends a connection while another thread waits on it.
pub(crate) struct Breaker(Socket);

impl Breaker {
    /// A breaker of the connection over `socket`.
    pub(crate) fn of(socket: &Socket) -> io::Result<Breaker> {
        Ok(Breaker(socket.try_clone()?))
    }

    /// Ends the connection: reads and writes under way fail.
    pub(crate) fn end(&self) {
        // An error does not matter: the connection is already gone.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A TCP or Unix socket without encryption.
pub(crate) struct Plain(Socket);

impl Plain {
    pub(crate) fn new(socket: Socket) -> Plain {
        Plain(socket)
    }
}

impl Read for Plain {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Plain {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SIGPIPE is ignored by Rust's runtime: a peer that has gone is an error here.
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Duplex for Plain {
    fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(timeout)
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_write_timeout(timeout)
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.set_nonblocking(nonblocking)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }

    fn breaker(&self) -> io::Result<Breaker> {
        Breaker::of(&self.0)
    }
}
