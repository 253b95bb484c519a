//! One connection with its buffer, speaking HTTP/1.1 in either role.

use crate::body::Body;
use crate::fault::Fault;
use crate::head::{self, Framing, HEAD_BYTES_MAX, Parsed, RequestHead, ResponseHead};
use crate::stream::Stream;
use crate::timeouts::after;
use bytes::{Buf, BytesMut};
use contain::contain;
use http::{HeaderValue, Response, StatusCode, header};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// Bytes read from the socket at once.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// A write that makes no progress for this long has failed.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that are read from a refused peer, and for how long, so that it gets the reason.
const LINGER_BYTES_MAX: usize = 1 << 20;
const LINGER: Duration = Duration::from_millis(500);

/// A connection, and its received bytes that were not used yet.
pub(crate) struct Wire {
    stream: Stream,
    received: BytesMut,
    scratch: Box<[u8]>,
}

impl Wire {
    pub(crate) fn new(stream: Stream) -> io::Result<Wire> {
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Wire { stream, received: BytesMut::new(), scratch: vec![0; READ_BYTES].into() })
    }

    /// Lets writes make no progress for longer: the other side may wait for its disk.
    pub(crate) fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.stream.set_write_timeout(Some(timeout))
    }

    /// The connection itself, once HTTP is over.
    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Whether no byte of a next message has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.received.is_empty()
    }

    /// The next request; `None` if the other side has no more.
    pub(crate) fn request(&mut self, deadline: Instant) -> Result<Option<RequestHead>, Fault> {
        match self.head(deadline, head::request) {
            Err(Fault::Closed) if self.is_idle() => Ok(None),
            other => other.map(Some),
        }
    }

    /// The next response. Interim responses (1xx) only show that the other side is alive: after each, another
    /// `patience` begins.
    pub(crate) fn response(&mut self, patience: Duration) -> Result<ResponseHead, Fault> {
        loop {
            let head = self.head(after(patience), head::response)?;
            if !head.response.status().is_informational() {
                return Ok(head);
            }
        }
    }

    fn head<T>(&mut self, deadline: Instant, parse: fn(&[u8]) -> Parsed<T>) -> Result<T, Fault> {
        let mut looked_at = 0usize;
        loop {
            // Garbage is recognized by the first bytes. After that only the end is searched for: a head that comes byte
            // by byte must not be parsed for each byte.
            let is_due = looked_at == 0 || ends(self.received.get(looked_at.saturating_sub(3)..).unwrap_or_default());
            if is_due && let Some((head, length)) = contain(|| parse(&self.received))?? {
                self.received.advance(length);
                return Ok(head);
            }
            looked_at = self.received.len();
            if self.received.len() >= HEAD_BYTES_MAX {
                return Err(Fault::TooLong { what: "a head", bytes_max: HEAD_BYTES_MAX });
            }
            let read = self.read(Some(deadline))?;
            if read == 0 {
                return Err(Fault::Closed);
            }
            self.received.extend_from_slice(self.scratch.get(..read).unwrap_or_default());
        }
    }

    /// Reads into the scratch buffer. Without a deadline the socket's own time-out holds.
    fn read(&mut self, deadline: Option<Instant>) -> Result<usize, Fault> {
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Fault::TimedOut);
            }
            self.stream.set_read_timeout(Some(left))?;
        }
        loop {
            match self.stream.read(&mut self.scratch) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return Ok(other?),
            }
        }
    }

    /// Passes received bytes, or the next ones, through `body` into `to`. Returns false when the body is complete.
    pub(crate) fn receive(
        &mut self,
        body: &mut Body,
        to: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> Result<bool, Fault> {
        if body.ended() {
            return Ok(false);
        }
        if !self.received.is_empty() {
            let mut received = self.received.split();
            let taken = contain(|| body.feed(&received, to))??;
            self.received = received.split_off(taken);
            return Ok(true);
        }
        let read = self.read(deadline)?;
        if read == 0 {
            body.close()?;
            return Ok(false);
        }
        let read = self.scratch.get(..read).unwrap_or_default();
        let taken = contain(|| body.feed(read, to))??;
        self.received.extend_from_slice(read.get(taken..).unwrap_or_default());
        Ok(true)
    }

    /// A whole body of at most `bytes_max`.
    pub(crate) fn body(&mut self, framing: Framing, bytes_max: usize, deadline: Instant) -> Result<BytesMut, Fault> {
        let mut body = Body::new(framing);
        let mut to = BytesMut::new();
        let too_long = || Fault::TooLong { what: "a body", bytes_max };
        if matches!(framing, Framing::Length(length) if length > bytes_max as u64) {
            return Err(too_long());
        }
        while self.receive(&mut body, &mut to, Some(deadline))? {
            if to.len() > bytes_max {
                return Err(too_long());
            }
        }
        Ok(to)
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.stream.write_all(bytes)?;
        // With TLS some bytes may still wait.
        Ok(self.stream.flush()?)
    }

    /// Answers a request.
    pub(crate) fn respond(&mut self, mut response: Response<impl AsRef<[u8]>>, keep_alive: bool) -> Result<(), Fault> {
        let length = response.body().as_ref().len();
        let status = response.status();
        let headers = response.headers_mut();
        if status != StatusCode::NO_CONTENT {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        if !keep_alive {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let mut bytes = head::write_response(status, headers);
        bytes.extend_from_slice(response.body().as_ref());
        self.write_all(&bytes)
    }

    /// Ends a connection on which the other side may still be sending. If it were closed at once, the answer would be
    /// lost.
    pub(crate) fn linger(mut self) {
        let deadline = after(LINGER);
        let mut read = 0_usize;
        if self.stream.finish().is_err() {
            return;
        }
        while let Ok(more @ 1..) = self.read(Some(deadline)) {
            read = read.saturating_add(more);
            if read > LINGER_BYTES_MAX {
                return;
            }
        }
    }
}

/// Whether `bytes` contain the empty line after a head.
fn ends(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == b"\n\n") || bytes.windows(3).any(|three| three == b"\n\r\n")
}
