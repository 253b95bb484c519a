//! The header lists of a script, judged independently: this code decides on its own which of them are malformed.

use rpc::hpack::Decoder;

use crate::script::{flag, kind};

type List = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads the header blocks of a script.
pub struct Headers {
    decoder: Decoder,
    block: Vec<u8>,
}

impl Headers {
    pub fn new() -> Headers {
        Headers { decoder: Decoder::new(4096), block: Vec::new() }
    }

    /// The header list that ends with `frame`, if one does and it can be decoded.
    pub fn read(&mut self, frame: &[u8]) -> Option<List> {
        let (kind, flags, mut payload) = (frame[3], frame[4], &frame[9..]);
        if kind == kind::HEADERS {
            self.block.clear();
            if flags & flag::PADDED != 0 {
                let (padding, rest) = payload.split_first()?;
                payload = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
            }
            if flags & flag::PRIORITY != 0 {
                payload = payload.get(5..)?;
            }
        } else if kind != kind::CONTINUATION {
            return None;
        }
        self.block.extend_from_slice(payload);
        if flags & flag::END_HEADERS == 0 {
            return None;
        }
        let mut list = Vec::new();
        let read = self.decoder.decode(&self.block, |field| list.push((field.name.to_vec(), field.value.to_vec())));
        read.is_ok().then_some(list)
    }
}

/// Whether no good request begins with this list (RFC 9113 section 8).
pub fn is_malformed_request(list: &List) -> bool {
    let count = |wanted: &str| list.iter().filter(|(name, _)| name == wanted.as_bytes()).count();
    let value = |wanted: &str| list.iter().find(|(name, _)| name == wanted.as_bytes()).map(|(_, value)| &value[..]);
    let is_connect = value(":method") == Some(b"CONNECT");
    let (scheme, path) = (count(":scheme"), count(":path"));
    let has_parts = if is_connect { scheme + path == 0 } else { scheme == 1 && path == 1 };
    let lengths: Vec<_> = list.iter().filter(|(name, _)| name == b"content-length").map(|(_, value)| value).collect();
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let first_regular = list.iter().position(|(name, _)| !name.starts_with(b":")).unwrap_or(list.len());
    !has_parts
        || count(":method") != 1
        || value(":method") == Some(b"")
        || value(":path") == Some(b"")
        || count(":authority") > 1
        || list[..first_regular].len() != count(":method") + scheme + path + count(":authority")
        || list[..first_regular].iter().any(|(_, value)| is_bad_value(value))
        || is_malformed_trailers(&list[first_regular..])
        || lengths.iter().any(|length| !is_number(length))
        || lengths.windows(2).any(|pair| pair[0] != pair[1])
        || ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"]
            .iter()
            .any(|name| count(name) > 0)
        || list.iter().any(|(name, value)| name == b"te" && value != b"trailers")
}

/// Whether no good request ends with this list.
pub fn is_malformed_trailers(list: &[(Vec<u8>, Vec<u8>)]) -> bool {
    list.iter().any(|(name, value)| {
        let is_token =
            |byte: &u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && !b"\"(),/:;<=>?@[\\]{}".contains(byte);
        name.is_empty() || !name.iter().all(is_token) || is_bad_value(value)
    })
}

fn is_bad_value(value: &[u8]) -> bool {
    value.iter().any(|byte| b"\0\r\n".contains(byte)) || value != value.trim_ascii()
}
