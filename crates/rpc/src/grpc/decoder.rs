//! Cuts the body of a request into messages.

use api::Code;
use bytes::{Buf, Bytes, BytesMut};

use super::encoding::Encoding;
use super::payload::PREFIX_BYTES;
use crate::Status;

/// Messages up to this size are copied out of what is gathered, so that they do not keep all of it in memory.
const SMALL_BYTES_MAX: usize = 16 * 1024;

/// Once this part of a message has come there is room made for all of it, so that it is not copied whenever what is gathered doubles; not
/// before, so that who announces what does not come has no more memory taken than a few times what came. No more is kept of what was
/// gathered, either.
const ROOM_PART: usize = 4;

/// Memory that a stream keeps for its next message.
const KEPT_BYTES_MAX: usize = 1024;

/// Gathers the DATA of one stream and yields its messages, decompressed.
#[derive(Debug)]
pub(crate) struct Decoder {
    encoding: Encoding,
    bytes_max: usize,
    /// There are no messages: what has come is yielded as it is.
    is_raw: bool,
    /// What is not yet yielded.
    gathered: BytesMut,
    /// The most that was in it. What was yielded may share its memory, which is then kept.
    peak_bytes: usize,
}

impl Decoder {
    pub(crate) fn new(encoding: Encoding, bytes_max: usize) -> Decoder {
        Decoder { encoding, bytes_max, is_raw: false, gathered: BytesMut::new(), peak_bytes: 0 }
    }

    /// Of a body that does not consist of messages.
    pub(crate) fn raw() -> Decoder {
        Decoder { is_raw: true, ..Decoder::new(Encoding::Identity, 0) }
    }

    /// Adds what came from the client.
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.gathered.extend_from_slice(data);
        let (held, room) = (self.gathered.len(), self.gathered.capacity());
        if held > SMALL_BYTES_MAX
            && let Some(whole) = self.next_len().map(|len| len.saturating_add(PREFIX_BYTES))
            && whole > room
            && held >= whole / ROOM_PART
        {
            self.gathered.reserve(whole.saturating_sub(held));
        }
        self.peak_bytes = self.peak_bytes.max(self.gathered.len());
    }

    /// Bytes held that are not yet a message.
    pub(crate) fn held_bytes(&self) -> usize {
        self.gathered.len()
    }

    /// Length of the message that has begun, once that has come. Too long a one is told of by [`Decoder::next`].
    pub(crate) fn next_len(&self) -> Option<usize> {
        header(&self.gathered, self.bytes_max).ok().flatten().map(|(len, _)| len)
    }

    /// Whether there is a complete message.
    pub(crate) fn has_message(&self) -> bool {
        self.next_len().is_some_and(|len| self.gathered.len() >= PREFIX_BYTES.saturating_add(len))
    }

    /// The next complete message. An error ends the stream.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if self.is_raw {
            return Ok(Some(std::mem::take(&mut self.gathered).freeze()).filter(|piece| !piece.is_empty()));
        }
        let Some((len, compressed)) = header(&self.gathered, self.bytes_max)? else { return Ok(None) };
        // `bytes_max` bounds the length.
        if self.gathered.len() < PREFIX_BYTES.saturating_add(len) {
            return Ok(None);
        }
        self.gathered.advance(PREFIX_BYTES);
        let message = if len <= SMALL_BYTES_MAX {
            let message = self.gathered.get(..len).map(Bytes::copy_from_slice).ok_or_else(cut_off)?;
            self.gathered.advance(len);
            message
        } else {
            self.gathered.split_to(len).freeze()
        };
        // A byte of the next message would keep the memory of this one.
        if self.peak_bytes > KEPT_BYTES_MAX && self.gathered.len() <= self.peak_bytes / ROOM_PART {
            self.gathered = BytesMut::from(&self.gathered[..]);
            self.peak_bytes = self.gathered.len();
        }
        if compressed { self.encoding.decompress(&message, self.bytes_max).map(Some) } else { Ok(Some(message)) }
    }
}

/// The only message of a request whose body is `body`.
pub(crate) fn sole(body: &[u8], encoding: Encoding, bytes_max: usize) -> Result<Bytes, Status> {
    if body.is_empty() {
        return Err(no_message());
    }
    let Some((len, compressed)) = header(body, bytes_max)? else { return Err(cut_off()) };
    let messages = body.get(PREFIX_BYTES..).and_then(|body| body.split_at_checked(len));
    let Some((message, rest)) = messages else { return Err(cut_off()) };
    if !rest.is_empty() {
        let whole = header(rest, bytes_max)?.is_some_and(|(len, _)| rest.len() >= PREFIX_BYTES.saturating_add(len));
        return Err(if whole { too_many_messages() } else { cut_off() });
    }
    if compressed { encoding.decompress(message, bytes_max) } else { Ok(Bytes::copy_from_slice(message)) }
}

/// Length of the message that begins with `held`, and whether it is compressed.
fn header(held: &[u8], bytes_max: usize) -> Result<Option<(usize, bool)>, Status> {
    let [flag, a, b, c, d, ..] = *held else { return Ok(None) };
    let len = u32::from_be_bytes([a, b, c, d]) as usize;
    if len > bytes_max {
        let text = format!("grpc: received message larger than max ({len} vs. {bytes_max})");
        return Err(Status::new(Code::ResourceExhausted, text));
    }
    if flag > 1 {
        return Err(Status::new(Code::Internal, format!("grpc: received unexpected payload format {flag}")));
    }
    Ok(Some((len, flag == 1)))
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
    use crate::grpc::payload::prefix;

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
                decoder.push(piece);
                while let Some(message) = decoder.next().expect("well formed") {
                    seen.push(message);
                }
            }
            assert_eq!(seen, messages, "in pieces of {step}");
            assert_eq!(decoder.held_bytes(), 0);
        }
    }

    #[test]
    fn a_large_message_leaves_no_memory_behind() {
        let mut decoder = Decoder::new(Encoding::Identity, 1 << 21);
        let body = framed(&[&vec![7; (1 << 21) - PREFIX_BYTES]]);
        body.chunks(16_384).for_each(|piece| decoder.push(piece));
        let message = decoder.next().expect("well formed").expect("whole");
        assert_eq!((message.len(), decoder.peak_bytes), ((1 << 21) - PREFIX_BYTES, 0));
        // Nothing else refers to it: it can be taken back whole.
        assert!(message.try_into_mut().is_ok());
    }

    #[test]
    fn room_is_made_once_a_part_has_come() {
        let whole = 1 << 20;
        let mut decoder = Decoder::new(Encoding::Identity, whole);
        let body = framed(&[&vec![7; whole]]);
        for (number, piece) in body.chunks(16_384).enumerate() {
            decoder.push(piece);
            let (held, room) = (decoder.held_bytes(), decoder.gathered.capacity());
            assert!(room <= held.max(SMALL_BYTES_MAX) * (ROOM_PART + 1), "{room} bytes for {held}");
            assert!(number < 16 || room >= body.len(), "{room} bytes after {held}");
        }
        assert_eq!(decoder.next().map(|message| message.map_or(0, |message| message.len())), Ok(whole));
        // What is announced and does not come takes nothing.
        let mut decoder = Decoder::new(Encoding::Identity, 1 << 30);
        decoder.push(&prefix(1 << 30));
        decoder.push(&vec![7; 1 << 20]);
        assert!(decoder.gathered.capacity() <= 2 << 20);
    }

    #[test]
    fn the_beginning_of_the_next_message_keeps_no_memory_of_the_last() {
        for (first, more) in [(1 << 20, 1), (1 << 20, 1_000), (20_000, 1)] {
            let mut decoder = Decoder::new(Encoding::Identity, 1 << 21);
            let mut body = framed(&[&vec![7; first]]);
            body.extend(framed(&[&vec![8; 2_000]]).iter().take(more));
            body.chunks(16_384).for_each(|piece| decoder.push(piece));
            let message = decoder.next().expect("well formed").expect("whole");
            assert_eq!((message.len(), decoder.held_bytes()), (first, more));
            assert!(message.try_into_mut().is_ok(), "{more} bytes share the memory of {first}");
            assert_eq!(decoder.next(), Ok(None));
            assert!(decoder.gathered.capacity() <= ROOM_PART * more.max(KEPT_BYTES_MAX), "{first} and {more}");
            decoder.push(&framed(&[&vec![8; 2_000]])[more..]);
            assert_eq!(decoder.next(), Ok(Some(vec![8; 2_000].into())), "nothing is lost");
        }
    }

    #[test]
    fn limits_are_named() {
        let mut decoder = Decoder::new(Encoding::Identity, 10);
        decoder.push(&framed(&[b"0123456789"]));
        assert_eq!(decoder.next(), Ok(Some(Bytes::from_static(b"0123456789"))));
        decoder.push(&[0, 0, 0, 0, 11]);
        let error = decoder.next().expect_err("too long");
        assert_eq!(error, Status::new(Code::ResourceExhausted, "grpc: received message larger than max (11 vs. 10)"));
        let mut decoder = Decoder::new(Encoding::Identity, 10);
        decoder.push(&[2, 0, 0, 0, 0]);
        assert_eq!(decoder.next().expect_err("odd flag").message, "grpc: received unexpected payload format 2");
    }
}
