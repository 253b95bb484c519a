//! A pipe through which the kernel moves bytes from socket to socket without a copy in this process.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

/// What a pipe holds unless the system gives it less.
pub(crate) const PIPE_BYTES: usize = 64 * 1024;

/// A pipe and how much is in it.
#[derive(Debug)]
pub(crate) struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    held: usize,
}

impl Pipe {
    /// An empty one.
    pub(crate) fn new() -> io::Result<Pipe> {
        let mut ends = [-1; 2];
        // SAFETY: the pointer is valid for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let [reader, writer] = ends;
        // SAFETY: both were opened above and belong to nobody else.
        let (reader, writer) = unsafe { (OwnedFd::from_raw_fd(reader), OwnedFd::from_raw_fd(writer)) };
        Ok(Pipe { reader, writer, held: 0 })
    }

    /// Bytes in the pipe.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Takes from a socket what it has. Only to be called while the pipe is empty, so that `WouldBlock` is the socket's. Returns how
    /// much it was; 0 at the end.
    pub(crate) fn fill(&mut self, socket: &impl AsRawFd) -> io::Result<usize> {
        let moved = splice(socket.as_raw_fd(), self.writer.as_raw_fd(), PIPE_BYTES)?;
        self.held = self.held.saturating_add(moved);
        Ok(moved)
    }

    /// Gives a socket what it takes. Only to be called while the pipe holds something.
    pub(crate) fn drain(&mut self, socket: &impl AsRawFd) -> io::Result<()> {
        match splice(self.reader.as_raw_fd(), socket.as_raw_fd(), self.held)? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            moved => {
                self.held = self.held.saturating_sub(moved);
                Ok(())
            }
        }
    }
}

fn splice(from: i32, to: i32, bytes: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: both descriptors are open while their owners are borrowed, and null says that there are no offsets.
    let moved = unsafe { libc::splice(from, null_mut(), to, null_mut(), bytes, flags) };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}
