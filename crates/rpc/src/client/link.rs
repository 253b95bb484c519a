//! A connection over a byte stream, driven in turns.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::FRAME_BYTES_MAX;
use super::{Calls, Connection, Options};
use crate::Status;
use crate::http2::frame::{HEAD_BYTES, Reason};

/// What one turn reads before others have theirs.
const READS_MAX: usize = 16;
/// What one call of the socket reads.
const READ_BYTES: usize = 64 * 1024;

/// A buffer to read into, which the connections of a thread share.
pub struct ReadBuffer(Box<[u8]>);

impl Default for ReadBuffer {
    fn default() -> ReadBuffer {
        ReadBuffer(vec![0; READ_BYTES + HEAD_BYTES + FRAME_BYTES_MAX].into_boxed_slice())
    }
}

/// Why a connection is lost.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The server has closed it.
    #[error("the server has closed it")]
    Closed,
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server does not keep to the protocol.
    #[error("the server broke the protocol (HTTP/2 error {})", .0.0)]
    Protocol(Reason),
}

impl Broken {
    /// The kept input does not fit into the buffer. That is a bug here: less than a frame is kept, and the buffer holds a frame more than one read.
    fn slip() -> Broken {
        Broken::Io(io::Error::other("internal error: more input is kept than there is room for"))
    }
}

impl From<&Broken> for Status {
    /// What the calls in flight end with.
    fn from(broken: &Broken) -> Status {
        Connection::lost(&broken.to_string())
    }
}

/// A [`Connection`] and what it runs over: a socket, or TLS over a socket.
pub struct Link<S> {
    /// The protocol.
    pub connection: Connection,
    socket: S,
    /// The beginning of a frame of which more is to come.
    input: Vec<u8>,
    /// Reading has stopped because so much waits to be written.
    cut_short: bool,
    /// Anything was read since this was asked last.
    heard: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Link<S> {
    /// Begins HTTP/2 on `socket`; what there is to say first is written in the first turn.
    pub fn new(socket: S, options: Options) -> Link<S> {
        Link { connection: Connection::new(options), socket, input: Vec::new(), cut_short: false, heard: false }
    }

    /// Reads what is there and tells `calls` of it. Returns when nothing more is there, or enough has come for one turn; the task
    /// is woken for the rest. After an error the link cannot be used: [`Connection::abandon`] ends its calls.
    pub fn read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuffer,
        calls: &mut impl Calls,
    ) -> Result<(), Broken> {
        let buffer = &mut buffer.0;
        for _ in 0..READS_MAX {
            if self.connection.is_full() {
                self.cut_short = true;
                return Ok(());
            }
            let len = self.input.len();
            let (kept, free) = buffer.split_at_mut_checked(len).ok_or_else(Broken::slip)?;
            kept.copy_from_slice(&self.input);
            let mut buf = ReadBuf::new(free.get_mut(..READ_BYTES).ok_or_else(Broken::slip)?);
            match Pin::new(&mut self.socket).poll_read(cx, &mut buf) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => return Err(Broken::Io(error)),
                Poll::Ready(Ok(())) if buf.filled().is_empty() => return Err(Broken::Closed),
                Poll::Ready(Ok(())) => {}
            }
            self.heard = true;
            let end = len.saturating_add(buf.filled().len());
            let input = buffer.get(..end).ok_or_else(Broken::slip)?;
            let handled = match self.connection.receive(input, calls) {
                Ok(handled) => handled,
                Err(reason) => {
                    // The server is told, if it takes anything.
                    let _ = self.connection.output().flush(&mut self.socket, cx);
                    return Err(Broken::Protocol(reason));
                }
            };
            self.input.clear();
            self.input.extend_from_slice(input.get(handled..).ok_or_else(Broken::slip)?);
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Writes what there is. Pending if the socket does not take all of it; the task is woken then to go on.
    pub fn flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.connection.output().flush(&mut self.socket, cx) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
            self.connection.pump();
            if self.connection.output().len() == 0 {
                if std::mem::take(&mut self.cut_short) {
                    cx.waker().wake_by_ref();
                }
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Whether anything was read since this was asked last.
    pub(super) fn take_heard(&mut self) -> bool {
        std::mem::take(&mut self.heard)
    }
}
