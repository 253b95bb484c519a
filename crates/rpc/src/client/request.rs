//! What goes before the messages of a call.

use std::time::Duration;

use crate::Metadata;
use crate::http2::hpack::{Encoder, Indexing};

/// Longer timeouts than gRPC can write are no deadline at all.
const TIMEOUT_DIGITS_MAX: u128 = 99_999_999;

/// The header fields of the calls of one method. It remembers what they were compressed to, so that a call after the first few
/// costs a copy of a few bytes: keep one for each method.
#[derive(Clone, Debug)]
pub struct RequestHead {
    path: String,
    authority: String,
    is_https: bool,
    metadata: Metadata,
    encoded: Encoded,
}

/// What the fields were compressed to, on which connection and on which state of its table.
#[derive(Clone, Debug, Default)]
struct Encoded {
    connection: u64,
    generation: u64,
    block: Vec<u8>,
}

impl RequestHead {
    /// Calls of the method `path` (`/package.Service/Method`) of the server that is called `authority`.
    pub fn new(path: &str, authority: &str) -> RequestHead {
        RequestHead {
            path: path.into(),
            authority: authority.into(),
            is_https: false,
            metadata: Metadata::default(),
            encoded: Encoded::default(),
        }
    }

    /// With these fields beside those of the protocol. Names are in lower case; values of `-bin` names are in base64 already.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> RequestHead {
        self.metadata = metadata;
        self
    }

    /// For a connection over TLS.
    #[must_use]
    pub fn https(mut self) -> RequestHead {
        self.is_https = true;
        self
    }

    /// Puts the header block into `block`. `connection` is the number of the connection that `encoder` belongs to.
    pub(super) fn encode(
        &mut self,
        connection: u64,
        encoder: &mut Encoder,
        timeout: Option<Duration>,
        block: &mut Vec<u8>,
    ) {
        block.clear();
        let before = encoder.generation();
        if self.encoded.connection == connection && self.encoded.generation == before && !encoder.owes_size() {
            block.extend_from_slice(&self.encoded.block);
        } else {
            self.fields(encoder, block);
            if before == encoder.generation() {
                self.encoded = Encoded { connection, generation: before, block: block.clone() };
            }
        }
        if let Some(timeout) = timeout {
            encoder.encode(block, b"grpc-timeout", timeout_text(timeout).as_bytes(), Indexing::Without);
        }
    }

    fn fields(&self, encoder: &mut Encoder, block: &mut Vec<u8>) {
        let scheme: &[u8] = if self.is_https { b"https" } else { b"http" };
        let fixed: [(&[u8], &[u8]); 7] = [
            (b":method", b"POST"),
            (b":scheme", scheme),
            (b":path", self.path.as_bytes()),
            (b":authority", self.authority.as_bytes()),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", concat!("cairn/", env!("CARGO_PKG_VERSION")).as_bytes()),
        ];
        for (name, value) in fixed {
            encoder.encode(block, name, value, Indexing::Index);
        }
        for (name, value) in self.metadata.iter() {
            let is_secret = matches!(name, b"token" | b"authorization");
            encoder.encode(block, name, value, if is_secret { Indexing::Never } else { Indexing::Index });
        }
    }
}

/// A timeout as `grpc-timeout` has it: at most eight digits and a unit. Rounded up, so that the server does not give up first.
fn timeout_text(timeout: Duration) -> String {
    let nanos = timeout.as_nanos();
    for (unit, nanos_each) in [('n', 1), ('u', 1_000), ('m', 1_000_000), ('S', 1_000_000_000), ('M', 60_000_000_000)] {
        let count = nanos.div_ceil(nanos_each);
        if count <= TIMEOUT_DIGITS_MAX {
            return format!("{count}{unit}");
        }
    }
    format!("{}H", nanos.div_ceil(3_600_000_000_000).min(TIMEOUT_DIGITS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::timeout;
    use crate::http2::hpack::{Decoder, TABLE_BYTES_DEFAULT};

    fn fields(decoder: &mut Decoder, block: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let read = decoder.decode(block, |field| found.push(format!("{}={}", text(field.name), text(field.value))));
        read.expect("a header block");
        found
    }

    #[test]
    fn repeated_heads_mean_the_same() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(TABLE_BYTES_DEFAULT));
        let mut heads = ["/a.B/C", "/a.B/D"].map(|path| RequestHead::new(path, "host:1"));
        let mut block = Vec::new();
        let mut sizes = Vec::new();
        for _ in 0..4 {
            for head in &mut heads {
                head.encode(7, &mut encoder, None, &mut block);
                sizes.push(block.len());
                let found = fields(&mut decoder, &block);
                assert!(found.contains(&format!(":path={}", head.path)), "{found:?}");
                assert_eq!(found.len(), 7);
            }
        }
        assert!(sizes[4..].iter().all(|&size| size < 12), "{sizes:?}");
    }

    #[test]
    fn heads_are_encoded_anew_for_another_connection_or_a_changed_table() {
        let mut head = RequestHead::new("/a.B/C", "host:1");
        let mut block = Vec::new();
        for connection in 1..4 {
            let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(TABLE_BYTES_DEFAULT));
            for round in 0..4 {
                if round == 2 {
                    encoder.set_table_bytes_max(0);
                }
                head.encode(connection, &mut encoder, Some(Duration::from_millis(1500)), &mut block);
                let found = fields(&mut decoder, &block);
                assert_eq!(found.len(), 8);
                assert_eq!(found[7], "grpc-timeout=1500000u");
            }
        }
    }

    #[test]
    fn timeouts_are_read_back() {
        for nanos in [0, 1, 99_999_999, 100_000_000, 123_456_789_012, 5_000_000_000_000_000] {
            let wanted = Duration::from_nanos(nanos);
            let read = timeout::parse(timeout_text(wanted).as_bytes()).expect("a timeout");
            assert!(read >= wanted && read <= wanted + wanted / 1000 + Duration::from_nanos(1), "{wanted:?} {read:?}");
        }
        assert_eq!(timeout_text(Duration::MAX), "99999999H");
    }
}
