//! One DATA frame's worth of bytes: a message prefix and a body, without copying them together.

use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Bytes of the prefix of a gRPC message: the compression flag and the length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// The prefix of an uncompressed message of `len` bytes.
pub(crate) fn prefix(len: usize) -> [u8; PREFIX_BYTES] {
    assert!(u32::try_from(len).is_ok(), "a gRPC message is at most 4 GiB long");
    let [a, b, c, d] = (len as u32).to_be_bytes();
    [0, a, b, c, d]
}

/// Part of a prefix, then part of a body; either may be empty.
#[derive(Debug)]
pub(crate) struct Payload {
    prefix: [u8; PREFIX_BYTES],
    at: u8,
    end: u8,
    body: Bytes,
}

impl Payload {
    /// A whole message.
    pub(crate) fn message(body: Bytes) -> Payload {
        Payload { prefix: prefix(body.len()), at: 0, end: PREFIX_BYTES as u8, body }
    }

    /// The bytes `at..end` of a prefix, then `body`.
    pub(crate) fn part(prefix: [u8; PREFIX_BYTES], at: usize, end: usize, body: Bytes) -> Payload {
        assert!(at <= end && end <= PREFIX_BYTES, "part {at}..{end} of a prefix");
        Payload { prefix, at: at as u8, end: end as u8, body }
    }

    /// Bytes as they are.
    pub(crate) fn raw(body: Bytes) -> Payload {
        Payload { prefix: [0; PREFIX_BYTES], at: 0, end: 0, body }
    }

    fn head(&self) -> &[u8] {
        &self.prefix[usize::from(self.at)..usize::from(self.end)]
    }
}

impl Buf for Payload {
    fn remaining(&self) -> usize {
        self.head().len() + self.body.len()
    }

    fn chunk(&self) -> &[u8] {
        if self.at < self.end { self.head() } else { &self.body }
    }

    fn advance(&mut self, count: usize) {
        let of_head = count.min(self.head().len());
        self.at += of_head as u8;
        self.body.advance(count - of_head);
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for part in [self.head(), &self.body[..]] {
            if !part.is_empty() && filled < slices.len() {
                slices[filled] = IoSlice::new(part);
                filled += 1;
            }
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_prefix_then_body() {
        let whole: Vec<u8> = b"\0\0\0\0\x03abc".to_vec();
        for cut in 0..=whole.len() {
            let mut payload = Payload::message(Bytes::from_static(b"abc"));
            assert_eq!(payload.remaining(), whole.len());
            payload.advance(cut);
            assert_eq!(payload.copy_to_bytes(payload.remaining()), whole[cut..]);
        }
        let mut slices = [IoSlice::new(&[]); 4];
        let payload = Payload::message(Bytes::new());
        assert_eq!(payload.chunks_vectored(&mut slices), 1);
        assert_eq!(Payload::part(prefix(0x0102), 3, 5, Bytes::from_static(b"x")).copy_to_bytes(3), b"\x01\x02x"[..]);
    }
}
