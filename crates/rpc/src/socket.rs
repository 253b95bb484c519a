//! The socket under an HTTP/2 connection: gathers what is written, bounds what is read in one turn, and looks at the frames.
//!
//! The HTTP/2 engine owns a [`Wire`] and writes after nearly every frame; the connection owns the [`Socket`] behind it and writes
//! once per turn. Both live on one thread, the lock is never contended.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::frames::FrameScan;

/// Output gathered before it is written.
const GATHER_BYTES_MAX: usize = 64 * 1024;
/// Output that is written from where it lies instead of being gathered.
const DIRECT_BYTES_MIN: usize = 8 * 1024;
/// Memory kept for output between turns.
const IDLE_BYTES_MAX: usize = 4 * 1024;
/// Slices of one write.
const SLICES_MAX: usize = 8;

pub(crate) struct Socket {
    stream: TcpStream,
    /// Input that was read before the engine existed.
    ahead: Bytes,
    out: BytesMut,
    /// Bytes that may still be read in this turn.
    allowance: usize,
    /// Nothing more to read in this turn, and the waker is registered for when there is.
    drained: bool,
    /// The peer took less than there was, and the waker is registered for when it takes more.
    blocked: bool,
    /// Bytes read from the peer, taken from the engine, and written to the peer so far.
    pub(crate) bytes_read: u64,
    pub(crate) bytes_taken: u64,
    pub(crate) bytes_written: u64,
    pub(crate) frames: FrameScan,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, ahead: Bytes) -> Socket {
        Socket {
            stream,
            ahead,
            out: BytesMut::new(),
            allowance: 0,
            drained: false,
            blocked: false,
            bytes_read: 0,
            bytes_taken: 0,
            bytes_written: 0,
            frames: FrameScan::default(),
        }
    }

    /// Begins a turn in which `read_bytes_max` may be read.
    pub(crate) fn begin(&mut self, read_bytes_max: usize) {
        self.allowance = read_bytes_max;
        self.drained = false;
        self.blocked = false;
    }

    /// Whether the turn's allowance ended the reading, so that there may be more.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.allowance == 0 && !self.drained
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Adds bytes behind everything written so far.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Writes what is gathered.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let Poll::Ready(count) = Pin::new(&mut self.stream).poll_write(cx, &self.out)? else {
                self.blocked = true;
                return Poll::Pending;
            };
            self.written(count)?;
            self.out.advance(count);
        }
        if self.out.capacity() > IDLE_BYTES_MAX {
            self.out = BytesMut::new();
        } else {
            self.out.clear();
        }
        Poll::Ready(Ok(()))
    }

    fn written(&mut self, count: usize) -> io::Result<()> {
        self.bytes_written += count as u64;
        if count == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }

    fn read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(count));
            return Poll::Ready(Ok(()));
        }
        if self.drained || self.allowance == 0 {
            // The connection knows, and comes back by itself.
            return Poll::Pending;
        }
        let before = buf.filled().len();
        if Pin::new(&mut self.stream).poll_read(cx, buf)?.is_pending() {
            self.drained = true;
            return Poll::Pending;
        }
        let input = &buf.filled()[before..];
        self.allowance = self.allowance.saturating_sub(input.len());
        self.bytes_read += input.len() as u64;
        self.frames.look(input);
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let taken = ready!(self.write(cx, slices))?;
        self.bytes_taken += taken as u64;
        Poll::Ready(Ok(taken))
    }

    fn write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        if len < DIRECT_BYTES_MIN || slices.len() >= SLICES_MAX {
            if self.out.len() + len > GATHER_BYTES_MAX {
                ready!(self.flush(cx))?;
            }
            slices.iter().for_each(|slice| self.out.extend_from_slice(slice));
            return Poll::Ready(Ok(len));
        }
        loop {
            let mut all = [IoSlice::new(&[]); SLICES_MAX];
            all[0] = IoSlice::new(&self.out);
            all[1..=slices.len()].copy_from_slice(slices);
            let all = &all[..=slices.len()];
            let all = if self.out.is_empty() { &all[1..] } else { all };
            let Poll::Ready(count) = Pin::new(&mut self.stream).poll_write_vectored(cx, all)? else {
                self.blocked = true;
                return Poll::Pending;
            };
            self.written(count)?;
            let gathered = self.out.len();
            if count > gathered {
                self.out.clear();
                return Poll::Ready(Ok(count - gathered));
            }
            self.out.advance(count);
        }
    }

    /// Says that nothing more will be written, and reads what the peer still sends without looking at it. Ready when the peer is done,
    /// too. Pending also when the turn's allowance is used up.
    pub(crate) fn linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // It fails when the peer has gone, which the reading shows.
        if self.shutdown(cx).is_pending() {
            return Poll::Pending;
        }
        let mut room = [0; 4096];
        while self.allowance > 0 {
            let mut buf = ReadBuf::new(&mut room);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
                Poll::Pending => {
                    self.drained = true;
                    return Poll::Pending;
                }
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    self.allowance = self.allowance.saturating_sub(buf.filled().len());
                }
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    fn shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A [`Socket`] as the HTTP/2 engine sees it.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Mutex<Socket>>);

impl Wire {
    pub(crate) fn new(socket: Socket) -> Wire {
        Wire(Arc::new(Mutex::new(socket)))
    }

    pub(crate) fn socket(&self) -> MutexGuard<'_, Socket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.socket().read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.socket().take(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // The engine's slices may end in empty ones.
        let filled = slices.iter().rposition(|slice| !slice.is_empty()).map_or(0, |last| last + 1);
        self.socket().take(cx, &slices[..filled])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing: the connection flushes at the end of its turn.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().shutdown(cx)
    }
}
