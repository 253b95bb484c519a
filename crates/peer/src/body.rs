//! The body of a message, however its end is known.

use crate::chunks::Chunks;
use crate::fault::Fault;
use crate::head::Framing;
use bytes::BytesMut;

/// Separates the body of a message from the bytes that follow it.
pub(crate) enum Body {
    /// This many bytes are missing.
    Length(u64),
    Chunked(Chunks),
    /// All bytes until the connection ends; true once it has ended.
    UntilClose(bool),
}

impl Body {
    pub(crate) fn new(framing: Framing) -> Body {
        match framing {
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked(Chunks::new()),
            Framing::UntilClose => Body::UntilClose(false),
        }
    }

    pub(crate) fn ended(&self) -> bool {
        match self {
            Body::Length(left) => *left == 0,
            Body::Chunked(chunks) => chunks.ended(),
            Body::UntilClose(closed) => *closed,
        }
    }

    /// Appends the body's part of `input` to `to` and returns how many bytes of `input` belonged to it.
    pub(crate) fn feed(&mut self, input: &[u8], to: &mut BytesMut) -> Result<usize, Fault> {
        match self {
            Body::Length(left) => {
                let all = input.len();
                let part = input.get(..usize::try_from(*left).unwrap_or(usize::MAX).min(all)).unwrap_or_default();
                *left = left.saturating_sub(part.len() as u64);
                to.extend_from_slice(part);
                Ok(part.len())
            }
            Body::Chunked(chunks) => Ok(chunks.feed(input, to)?),
            Body::UntilClose(_) => {
                to.extend_from_slice(input);
                Ok(input.len())
            }
        }
    }

    /// Notes that the connection has ended. An error, unless the body ends with the connection.
    pub(crate) fn close(&mut self) -> Result<(), Fault> {
        match self {
            Body::UntilClose(closed) => {
                *closed = true;
                Ok(())
            }
            _ => Err(Fault::Closed),
        }
    }
}
