//! Cuts the body of a request into messages.

use api::Code;
use bytes::{Buf, Bytes, BytesMut};

use crate::Status;
use crate::encoding::Encoding;
use crate::payload::PREFIX_BYTES;

/// Gathers the DATA of one stream and yields its messages, decompressed.
#[derive(Debug)]
pub(crate) struct Decoder {
    encoding: Encoding,
    bytes_max: usize,
    /// What came last and is not yet looked at; only while nothing is gathered.
    chunk: Bytes,
    /// The beginning of a message that came in several chunks.
    gathered: BytesMut,
}

impl Decoder {
    pub(crate) fn new(encoding: Encoding, bytes_max: usize) -> Decoder {
        Decoder { encoding, bytes_max, chunk: Bytes::new(), gathered: BytesMut::new() }
    }

    /// Adds what came from the client.
    pub(crate) fn push(&mut self, data: Bytes) {
        if self.gathered.is_empty() && self.chunk.is_empty() {
            self.chunk = data;
            return;
        }
        self.gather();
        self.gathered.extend_from_slice(&data);
    }

    /// Bytes held that are not yet a message.
    pub(crate) fn held_bytes(&self) -> usize {
        self.chunk.len() + self.gathered.len()
    }

    /// The next complete message. An error ends the stream.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let held = if self.gathered.is_empty() { &self.chunk[..] } else { &self.gathered[..] };
        let (len, compressed) = match self.header(held)? {
            Some((len, compressed)) if held.len() >= PREFIX_BYTES + len => (len, compressed),
            _ => {
                self.gather();
                return Ok(None);
            }
        };
        let message = if self.gathered.is_empty() {
            self.chunk.advance(PREFIX_BYTES);
            self.chunk.split_to(len)
        } else {
            self.gathered.advance(PREFIX_BYTES);
            self.gathered.split_to(len).freeze()
        };
        if compressed { self.encoding.decompress(&message, self.bytes_max).map(Some) } else { Ok(Some(message)) }
    }

    /// The only message of a request that is all here.
    pub(crate) fn sole(&mut self) -> Result<Bytes, Status> {
        let message = self.next()?;
        let nothing_left = self.held_bytes() == 0;
        match message {
            Some(message) if nothing_left => Ok(message),
            Some(_) if self.next()?.is_some() => Err(too_many_messages()),
            None if nothing_left => Err(no_message()),
            Some(_) | None => Err(cut_off()),
        }
    }

    fn header(&self, held: &[u8]) -> Result<Option<(usize, bool)>, Status> {
        let [flag, a, b, c, d, ..] = *held else { return Ok(None) };
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        if len > self.bytes_max {
            let text = format!("grpc: received message larger than max ({len} vs. {})", self.bytes_max);
            return Err(Status::new(Code::ResourceExhausted, text));
        }
        if flag > 1 {
            return Err(Status::new(Code::Internal, format!("grpc: received unexpected payload format {flag}")));
        }
        Ok(Some((len, flag == 1)))
    }

    /// Moves an unfinished chunk to memory of its own, which lets go of the connection's read buffer.
    fn gather(&mut self) {
        if !self.chunk.is_empty() {
            self.gathered.extend_from_slice(&self.chunk);
            self.chunk = Bytes::new();
        }
    }
}

/// What a unary or server-streaming call without a message ends with.
pub(crate) fn no_message() -> Status {
    let text = "cardinality violation: received no request message from non-client-streaming RPC";
    Status::new(Code::Internal, text)
}

/// What a unary or server-streaming call with more than one message ends with.
pub(crate) fn too_many_messages() -> Status {
    let text = "cardinality violation: received multiple request messages for non-client-streaming RPC";
    Status::new(Code::Internal, text)
}

/// What a call ends with whose request stops in the middle of a message.
pub(crate) fn cut_off() -> Status {
    Status::new(Code::Internal, "unexpected EOF")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::prefix;

    fn framed(messages: &[&[u8]]) -> Vec<u8> {
        messages.iter().flat_map(|message| [&prefix(message.len())[..], message].concat()).collect()
    }

    #[test]
    fn messages_survive_any_cut() {
        let messages: [&[u8]; 4] = [b"first", b"", b"third one", b"x"];
        let body = framed(&messages);
        for step in 1..=body.len() {
            let mut decoder = Decoder::new(Encoding::Identity, 100);
            let mut seen = Vec::new();
            for piece in body.chunks(step) {
                decoder.push(Bytes::copy_from_slice(piece));
                while let Some(message) = decoder.next().expect("well formed") {
                    seen.push(message);
                }
            }
            assert_eq!(seen, messages, "in pieces of {step}");
            assert_eq!(decoder.held_bytes(), 0);
        }
    }

    #[test]
    fn limits_are_named() {
        let mut decoder = Decoder::new(Encoding::Identity, 10);
        decoder.push(Bytes::from(framed(&[b"0123456789"])));
        assert_eq!(decoder.next(), Ok(Some(Bytes::from_static(b"0123456789"))));
        decoder.push(Bytes::from_static(&[0, 0, 0, 0, 11]));
        let error = decoder.next().expect_err("too long");
        assert_eq!(error, Status::new(Code::ResourceExhausted, "grpc: received message larger than max (11 vs. 10)"));
        let mut decoder = Decoder::new(Encoding::Identity, 10);
        decoder.push(Bytes::from_static(&[2, 0, 0, 0, 0]));
        assert_eq!(decoder.next().expect_err("odd flag").message, "grpc: received unexpected payload format 2");
    }
}
