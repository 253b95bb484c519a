//! The sending half of a stream that a peer has dialled.

use crate::codec::{Encoder, Kind};
use crate::stream::Stream;
use api::raftpb::Message;
use bytes::{Buf, BufMut, BytesMut};
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Length of a chunk's size in eight hex digits with a line break. Room for it is left before a chunk, whose length is
/// known only afterwards.
const CHUNK_HEAD_BYTES: usize = 10;
/// A buffer that grew beyond this is freed once it is empty.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The sender's end of a stream. No method waits.
pub(crate) struct Outgoing {
    stream: Stream,
    encoder: Encoder,
    /// Chunks that the socket has not taken yet, and the one being filled.
    buffer: BytesMut,
    /// Where the chunk that is being filled begins.
    chunk: Option<usize>,
    /// Since when the socket has taken nothing.
    stalled: Option<Instant>,
    last_write: Instant,
    /// Whether the buffer has more memory than an idle stream should have.
    is_large: bool,
    /// Distinguishes this stream from those before and after it.
    pub(crate) serial: u64,
}

impl Outgoing {
    /// Takes over a connection whose response head is already written.
    pub(crate) fn new(stream: Stream, kind: Kind, serial: u64) -> io::Result<Outgoing> {
        stream.set_nonblocking(true)?;
        Ok(Outgoing {
            stream,
            encoder: Encoder::new(kind),
            buffer: BytesMut::new(),
            chunk: None,
            stalled: None,
            last_write: Instant::now(),
            is_large: false,
            serial,
        })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.stream.descriptor()
    }

    /// Bytes that wait for the socket.
    pub(crate) fn waiting(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the socket is full: then only waiting until it is writable helps.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// For how long the socket has taken nothing.
    pub(crate) fn stalled_for(&self, now: Instant) -> Option<Duration> {
        self.stalled.map(|since| now.saturating_duration_since(since))
    }

    /// When a heartbeat of the link is due if nothing else is written before.
    pub(crate) fn idle_until(&self, interval: Duration) -> Instant {
        self.last_write.checked_add(interval).unwrap_or(self.last_write)
    }

    /// Queues a message; returns its length in bytes.
    pub(crate) fn push(&mut self, message: &Message) -> usize {
        self.open_chunk();
        let before = self.buffer.len();
        self.encoder.message(message, &mut self.buffer);
        self.buffer.len().saturating_sub(before)
    }

    /// Queues a heartbeat of the link.
    pub(crate) fn push_heartbeat(&mut self) {
        self.open_chunk();
        self.encoder.heartbeat(&mut self.buffer);
    }

    fn open_chunk(&mut self) {
        if self.chunk.is_none() {
            self.chunk = Some(self.buffer.len());
            self.buffer.put_bytes(b'0', CHUNK_HEAD_BYTES);
        }
    }

    fn close_chunk(&mut self) {
        let Some(start) = self.chunk.take() else { return };
        let (_, chunk) = self.buffer.split_at_mut_checked(start).unwrap_or_default();
        if let Some((head, body)) = chunk.split_first_chunk_mut::<CHUNK_HEAD_BYTES>() {
            let mut length = body.len();
            let [digits @ .., carriage_return, line_feed] = head;
            (*carriage_return, *line_feed) = (b'\r', b'\n');
            for digit in digits.iter_mut().rev() {
                *digit = match length & 15 {
                    small @ 0..=9 => b'0' | small as u8,
                    large => b'a'.saturating_add((large as u8).saturating_sub(10)),
                };
                length >>= 4;
            }
            assert_eq!(length, 0, "a chunk is bounded by what may wait for a peer");
        }
        self.buffer.put_slice(b"\r\n");
    }

    /// Writes as many bytes as the socket takes. Returns true if bytes are left: call again when the socket is
    /// writable.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        self.close_chunk();
        self.is_large |= self.buffer.len() > KEPT_BYTES_MAX;
        while !self.buffer.is_empty() {
            match self.stream.write(&self.buffer) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.buffer.advance(written);
                    self.last_write = Instant::now();
                    self.stalled = None;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stalled.get_or_insert_with(Instant::now);
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
        }
        // With TLS some encrypted bytes may still wait.
        match self.stream.flush() {
            Ok(()) => self.stalled = None,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                self.stalled.get_or_insert_with(Instant::now);
                return Ok(true);
            }
            Err(error) => return Err(error),
        }
        if std::mem::take(&mut self.is_large) {
            self.buffer = BytesMut::new();
        }
        Ok(false)
    }
}
