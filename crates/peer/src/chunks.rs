//! The chunked transfer coding (RFC 9112 section 7.1), read as the bytes come.

use bytes::BytesMut;

/// Limit of bytes in extensions and trailers, which are skipped.
const SKIPPED_BYTES_MAX: usize = 8 * 1024;

/// Why a body cannot be read further.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the chunked coding is malformed")]
pub(crate) struct Malformed;

/// The position of the reader in the coding.
#[derive(Debug)]
enum State {
    /// In a size, of which this many digits were seen.
    Size(u32),
    /// In a chunk extension.
    Extension,
    /// Before the line feed after a size.
    SizeEnd,
    Data,
    /// Before the carriage return after a chunk.
    DataReturn,
    /// Before the line feed after a chunk.
    DataEnd,
    /// In a trailer, in a line of this many bytes.
    Trailer(usize),
    End,
}

/// Takes a body out of its chunks.
#[derive(Debug)]
pub(crate) struct Chunks {
    state: State,
    /// Bytes of the chunk that are missing.
    left: u64,
    skipped: usize,
}

impl Chunks {
    pub(crate) fn new() -> Chunks {
        Chunks { state: State::Size(0), left: 0, skipped: 0 }
    }

    /// Whether the last chunk and the trailer have been read.
    pub(crate) fn ended(&self) -> bool {
        matches!(self.state, State::End)
    }

    /// Takes bytes from `input`, appends those of the body to `body`, and returns how many bytes it took: all of them,
    /// unless the body ended.
    pub(crate) fn feed(&mut self, input: &[u8], body: &mut BytesMut) -> Result<usize, Malformed> {
        let mut rest = input;
        while !self.ended() {
            if matches!(self.state, State::Data) {
                let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                let (data, behind) = rest.split_at_checked(take).ok_or(Malformed)?;
                body.extend_from_slice(data);
                rest = behind;
                self.left = self.left.saturating_sub(take as u64);
                if self.left > 0 {
                    break;
                }
                self.state = State::DataReturn;
            } else {
                let Some((byte, behind)) = rest.split_first() else { break };
                self.step(*byte)?;
                rest = behind;
            }
        }
        Ok(input.len().saturating_sub(rest.len()))
    }

    fn step(&mut self, byte: u8) -> Result<(), Malformed> {
        self.state = match (&self.state, byte) {
            (State::Size(digits @ 0..=15), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.left = self.left << 4 | u64::from((byte as char).to_digit(16).ok_or(Malformed)?);
                State::Size(digits.saturating_add(1))
            }
            (State::Size(1..), b'\r') => State::SizeEnd,
            (State::Size(1..), b';' | b' ' | b'\t') => self.skip(State::Extension)?,
            (State::Extension, b'\r') => State::SizeEnd,
            (State::Extension, 0x20.. | b'\t') => self.skip(State::Extension)?,
            (State::SizeEnd, b'\n') if self.left == 0 => State::Trailer(0),
            (State::SizeEnd, b'\n') => State::Data,
            (State::DataReturn, b'\r') => State::DataEnd,
            (State::DataEnd, b'\n') => State::Size(0),
            (State::Trailer(0), b'\n') => State::End,
            (State::Trailer(_), b'\n') => self.skip(State::Trailer(0))?,
            (State::Trailer(length), b'\r') => self.skip(State::Trailer(*length))?,
            (State::Trailer(length), _) => self.skip(State::Trailer(length.saturating_add(1)))?,
            _ => return Err(Malformed),
        };
        Ok(())
    }

    fn skip(&mut self, next: State) -> Result<State, Malformed> {
        self.skipped = self.skipped.saturating_add(1);
        if self.skipped > SKIPPED_BYTES_MAX { Err(Malformed) } else { Ok(next) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8], piece: usize) -> Result<(Vec<u8>, usize, bool), Malformed> {
        let (mut chunks, mut body, mut taken) = (Chunks::new(), BytesMut::new(), 0);
        for part in input.chunks(piece) {
            taken += chunks.feed(part, &mut body)?;
        }
        Ok((body.to_vec(), taken, chunks.ended()))
    }

    #[test]
    fn bodies_come_out_however_they_arrive() {
        let input = b"5\r\nhello\r\n00000001;a=\"b\"\r\n \r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\nrest";
        for piece in 1..input.len() {
            let mut chunks = Chunks::new();
            let mut body = BytesMut::new();
            let mut rest = Vec::new();
            for part in input.chunks(piece) {
                let taken = chunks.feed(part, &mut body).expect("valid");
                rest.extend_from_slice(&part[taken..]);
            }
            assert_eq!((&body[..], &rest[..], chunks.ended()), (&b"hello 0123456789"[..], &b"rest"[..], true));
        }
    }

    #[test]
    fn a_body_that_breaks_off_has_not_ended() {
        let input = b"5\r\nhello\r\n0\r\n\r\n";
        for length in 0..input.len() {
            let (_, taken, ended) = read(&input[..length], 3).expect("valid so far");
            assert_eq!((taken, ended), (length, false));
        }
    }

    #[test]
    fn garbage_is_refused() {
        for bad in
            ["\r\n", "x\r\n", "5\nhello", "1\r\nab\r\n", "11111111111111111\r\n", "-1\r\n", ";\r\n", "5\r\nhello0"]
        {
            assert_eq!(read(bad.as_bytes(), 1), Err(Malformed), "{bad:?}");
        }
        let endless = [b"1;".as_slice(), &[b'x'; SKIPPED_BYTES_MAX]].concat();
        assert_eq!(read(&endless, 100), Err(Malformed));
        let trailers = [b"0\r\n".as_slice(), &b"a: b\r\n".repeat(SKIPPED_BYTES_MAX / 6 + 1)].concat();
        assert_eq!(read(&trailers, 100), Err(Malformed));
    }

    #[test]
    fn a_huge_chunk_takes_no_memory_in_advance() {
        let (body, _, ended) = read(b"ffffffffffffffff\r\nab", 4).expect("valid so far");
        assert_eq!((&body[..], ended), (&b"ab"[..], false));
    }
}
