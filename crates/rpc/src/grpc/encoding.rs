//! Message compression and base64, as far as requests need them.

use std::io::Read;

use api::Code;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;

use crate::Status;

/// How the messages of a request may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
}

impl Encoding {
    /// What `grpc-encoding` says.
    pub(crate) fn of(value: &[u8]) -> Result<Encoding, Status> {
        match value {
            b"" | b"identity" => Ok(Encoding::Identity),
            b"gzip" => Ok(Encoding::Gzip),
            other => Err(Status::new(
                Code::Unimplemented,
                format!("grpc: Decompressor is not installed for grpc-encoding {:?}", String::from_utf8_lossy(other)),
            )),
        }
    }

    /// Decompresses one message. Never produces more than `bytes_max` + 1 bytes, whatever length the message claims.
    pub(crate) fn decompress(self, message: &[u8], bytes_max: usize) -> Result<Bytes, Status> {
        if self == Encoding::Identity {
            let text = "grpc: compressed flag set with identity or empty encoding";
            return Err(Status::new(Code::Internal, text));
        }
        let mut out = Vec::with_capacity(message.len().saturating_mul(2).min(bytes_max));
        let mut reader = MultiGzDecoder::new(message).take((bytes_max as u64).saturating_add(1));
        if let Err(error) = reader.read_to_end(&mut out) {
            let text = format!("grpc: failed to decompress the message: {error}");
            return Err(Status::new(Code::Internal, text));
        }
        if out.len() > bytes_max {
            let text = format!("grpc: received message after decompression larger than max {bytes_max}");
            return Err(Status::new(Code::ResourceExhausted, text));
        }
        // What is kept of it counts by its length: a million empty members must not have the memory of what they might have been.
        out.shrink_to_fit();
        Ok(Bytes::from(out))
    }
}

/// Decodes standard base64, padded or not. `None` if it is not that.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "six bits of each digit, taken out eight at a time; the text is in memory"
)]
pub(crate) fn base64_decode(text: &[u8]) -> Option<Vec<u8>> {
    let digits = match text {
        [digits @ .., b'=', b'='] if text.len().is_multiple_of(4) => digits,
        [digits @ .., b'='] if text.len().is_multiple_of(4) => digits,
        digits => digits,
    };
    if digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut word, mut bits) = (0_u32, 0);
    for &digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        word = (word << 6 | u32::from(value)) & 0xff_ffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((word >> bits & 0xff) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).expect("writing to memory");
        encoder.finish().expect("writing to memory")
    }

    #[test]
    fn gzip_is_undone_within_bounds() {
        let data = vec![7; 1000];
        assert_eq!(Encoding::Gzip.decompress(&gzip(&data), 1000), Ok(Bytes::from(data.clone())));
        let error = Encoding::Gzip.decompress(&gzip(&data), 999).expect_err("one byte too long");
        assert_eq!(error.code, Code::ResourceExhausted);
        assert_eq!(error.message, "grpc: received message after decompression larger than max 999");
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(Encoding::Gzip.decompress(&bomb, 1 << 20).is_err());
        let members = [gzip(b"x"), gzip(b"").repeat(1_000)].concat();
        let short = Encoding::Gzip.decompress(&members, 1 << 20).expect("nothing, often");
        assert_eq!(short.try_into_mut().map(|short| short.capacity()), Ok(1));
        assert_eq!(Encoding::Gzip.decompress(b"not gzip", 100).expect_err("garbage").code, Code::Internal);
        assert_eq!(Encoding::Identity.decompress(b"x", 100).expect_err("no encoding").code, Code::Internal);
    }

    #[test]
    fn base64_with_and_without_padding() {
        for (text, data) in
            [("", ""), ("Zg", "f"), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm8", "fo"), ("Zm9vYmFy", "foobar")]
        {
            assert_eq!(base64_decode(text.as_bytes()).as_deref(), Some(data.as_bytes()), "{text}");
        }
        for text in ["Z", "Zg=", "Z===", "Zm9*", "====", "Zm=8"] {
            assert_eq!(base64_decode(text.as_bytes()), None, "{text}");
        }
    }
}
