//! The headers of a request, checked by the rules of HTTP/2 (RFC 9113 section 8) and of gRPC.

use std::sync::Arc;
use std::time::Duration;

use api::Code;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Uri, Version};

use super::hpack;
use super::sender::ContentType;
use crate::grpc::encoding::{Encoding, base64_decode};
use crate::grpc::metadata::Fields;
use crate::grpc::routes::Routes;
use crate::grpc::timeout;
use crate::{Kind, Metadata, Status};

/// What an entry of [`HeaderMap`] takes, roughly.
const MAP_ENTRY_BYTES: usize = 160;
/// What a request that is not gRPC takes, and the task that answers it, roughly.
const HTTP_BYTES: usize = 4 * 1024;

/// A request up to its body.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) target: Target,
    /// How many bytes of body are announced.
    pub(crate) content_length: Option<u64>,
    /// Memory held, in bytes.
    pub(crate) bytes: usize,
}

#[derive(Debug)]
pub(crate) enum Target {
    Grpc(Arc<Grpc>),
    /// A gRPC request that ends here.
    Refused {
        http_status: StatusCode,
        content_type: ContentType,
        status: Status,
    },
    Http(Box<http::request::Parts>),
    /// Not gRPC, and it ends here.
    Answered(StatusCode),
}

/// A gRPC request whose headers are in order.
#[derive(Debug)]
pub(crate) struct Grpc {
    pub(crate) method: usize,
    pub(crate) kind: Kind,
    pub(crate) encoding: Encoding,
    pub(crate) timeout: Option<Duration>,
    pub(crate) content_type: ContentType,
    pub(crate) metadata: Metadata,
}

/// Why a header block is no request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadHead {
    /// It cannot be decompressed: the connection is lost.
    Compression(hpack::Error),
    /// Trailers of more bytes than a header list may have: the stream ends.
    TooLong,
    /// It breaks the rules of HTTP/2: the stream ends.
    Malformed,
}

/// Decodes a header block and checks it. `list_bytes_max` bounds the header list.
pub(crate) fn decode(
    block: &[u8],
    decoder: &mut hpack::Decoder,
    routes: &Routes,
    list_bytes_max: usize,
) -> Result<Head, BadHead> {
    let mut parts = Parts { list_bytes_max, ..Parts::default() };
    decoder.decode(block, |field| parts.field(field)).map_err(BadHead::Compression)?;
    if parts.malformed || !parts.has_method || parts.method.is_empty() {
        return Err(BadHead::Malformed);
    }
    // CONNECT has only an authority; it is answered as an unknown method.
    let is_connect = parts.method == b"CONNECT";
    if is_connect == (parts.has_scheme || parts.has_path) || (!is_connect && parts.path.is_empty()) {
        return Err(BadHead::Malformed);
    }
    if !is_connect && !parts.has_scheme {
        return Err(BadHead::Malformed);
    }
    let content_length = parts.content_length;
    let held_bytes = parts.fields.held_bytes();
    let bytes = held_bytes.saturating_add(if parts.content_type.is_none() { parts.http_bytes() } else { 0 });
    let target = if parts.list_bytes > list_bytes_max {
        Target::Answered(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
    } else {
        match parts.content_type {
            Some(content_type) => parts.grpc(content_type, routes),
            None => parts.http(),
        }
    };
    Ok(Head { target, content_length, bytes })
}

/// Decodes the trailers of a request, in which nothing is of interest.
pub(crate) fn decode_trailers(
    block: &[u8],
    decoder: &mut hpack::Decoder,
    list_bytes_max: usize,
) -> Result<(), BadHead> {
    let mut malformed = false;
    let mut list_bytes = 0_usize;
    let decoded = decoder.decode(block, |field| {
        list_bytes = list_bytes.saturating_add(field.size_bytes());
        malformed = malformed || !is_name(field.name) || is_of_connection(field.name) || !is_value(field.value);
    });
    match decoded {
        Err(error) => Err(BadHead::Compression(error)),
        Ok(()) if list_bytes > list_bytes_max => Err(BadHead::TooLong),
        Ok(()) if malformed => Err(BadHead::Malformed),
        Ok(()) => Ok(()),
    }
}

/// What has been read of a header list.
#[derive(Default)]
struct Parts {
    list_bytes_max: usize,
    list_bytes: usize,
    method: Vec<u8>,
    path: Vec<u8>,
    authority: Vec<u8>,
    has_method: bool,
    has_scheme: bool,
    has_path: bool,
    has_authority: bool,
    is_https: bool,
    fields: Fields,
    has_content_type: bool,
    content_type: Option<ContentType>,
    content_length: Option<u64>,
    /// A field that is no pseudo-header has come.
    regular: bool,
    malformed: bool,
}

impl Parts {
    fn field(&mut self, field: hpack::Field<'_>) {
        let (name, value) = (field.name, field.value);
        self.list_bytes = self.list_bytes.saturating_add(field.size_bytes());
        if self.list_bytes > self.list_bytes_max || self.malformed {
            return;
        }
        self.malformed = !is_value(value)
            || match name {
                [b':', ..] => self.regular || !self.pseudo(name, value),
                _ => !is_name(name) || is_of_connection(name) || !self.regular(name, value),
            };
    }

    /// A pseudo-header. False if it must not be there.
    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> bool {
        match name {
            b":method" if !self.has_method && is_token(value) => {
                self.has_method = true;
                self.method.extend_from_slice(value);
            }
            b":path" if !self.has_path && is_path(value) => {
                self.has_path = true;
                self.path.extend_from_slice(value);
            }
            b":scheme" if !self.has_scheme && is_scheme(value) => {
                self.has_scheme = true;
                self.is_https = value == b"https";
            }
            b":authority" if !self.has_authority => {
                self.has_authority = true;
                self.authority.extend_from_slice(value);
            }
            _ => return false,
        }
        true
    }

    /// Any other field. False if it must not be there.
    fn regular(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.regular = true;
        match name {
            b"te" if value != b"trailers" => return false,
            b"content-length" => {
                let text =
                    std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                let Some(length) = text.and_then(|text| text.parse().ok()) else { return false };
                if self.content_length.replace(length).is_some_and(|before| before != length) {
                    return false;
                }
            }
            b"content-type" if !self.has_content_type => {
                self.has_content_type = true;
                self.content_type = grpc_content_type(value);
            }
            _ => {}
        }
        self.fields.push(name, value);
        true
    }

    fn grpc(self, content_type: ContentType, routes: &Routes) -> Target {
        let refused = |http_status, status| Target::Refused { http_status, content_type, status };
        let bad = |text: String| refused(StatusCode::BAD_REQUEST, Status::new(Code::Internal, text));
        let mut timeout = None;
        let mut encoding = Ok(Encoding::Identity);
        for (name, value) in self.fields.iter() {
            match name {
                b"grpc-timeout" => match timeout::parse(value) {
                    Ok(parsed) => timeout = Some(parsed),
                    Err(error) => return bad(format!("malformed grpc-timeout: {error}")),
                },
                b"grpc-encoding" => encoding = Encoding::of(value),
                _ if name.ends_with(b"-bin") && base64_decode(value).is_none() => {
                    let [name, value] = [name, value].map(String::from_utf8_lossy);
                    return bad(format!("malformed binary metadata {value:?} in header {name:?}: illegal base64 data"));
                }
                _ => {}
            }
        }
        if self.method != b"POST" {
            let method = String::from_utf8_lossy(&self.method);
            let text = format!("Received a HEADERS frame with :method {method:?} which should be POST");
            return refused(StatusCode::METHOD_NOT_ALLOWED, Status::new(Code::Internal, text));
        }
        let path = String::from_utf8_lossy(&self.path);
        // What stands after the path is no part of a method's name.
        let path = path.split_once('?').map_or(&*path, |(path, _)| path);
        let ((method, kind), encoding) = match (routes.find(path), encoding) {
            (Ok(method), Ok(encoding)) => (method, encoding),
            (Err(status), _) | (_, Err(status)) => return refused(StatusCode::OK, status),
        };
        let metadata = Metadata::from(self.fields);
        Target::Grpc(Arc::new(Grpc { method, kind, encoding, timeout, content_type, metadata }))
    }

    /// What a request that is not gRPC takes beside the text of its fields.
    fn http_bytes(&self) -> usize {
        // A map of headers takes more than their text.
        let map_bytes = self.fields.len().saturating_mul(MAP_ENTRY_BYTES);
        HTTP_BYTES.saturating_add(map_bytes).saturating_add(self.path.len()).saturating_add(self.authority.len())
    }

    fn http(self) -> Target {
        let Some(request) = self.http_request() else { return Target::Answered(StatusCode::BAD_REQUEST) };
        Target::Http(Box::new(request.into_parts().0))
    }

    fn http_request(self) -> Option<Request<()>> {
        let mut headers = HeaderMap::with_capacity(8);
        for (name, value) in self.fields.iter() {
            headers.try_append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?).ok()?;
        }
        let mut uri = Uri::builder();
        if self.method == b"CONNECT" {
            uri = uri.authority(&self.authority[..]);
        } else if self.path == b"*" || self.authority.is_empty() {
            uri = uri.path_and_query(&self.path[..]);
        } else {
            let scheme = if self.is_https { "https" } else { "http" };
            uri = uri.scheme(scheme).authority(&self.authority[..]).path_and_query(&self.path[..]);
        }
        let mut request = Request::new(());
        *request.uri_mut() = uri.build().ok()?;
        *request.method_mut() = Method::from_bytes(&self.method).ok()?;
        *request.headers_mut() = headers;
        *request.version_mut() = Version::HTTP_2;
        Some(request)
    }
}

/// How the reply to a gRPC request is called; none if it is no gRPC request.
fn grpc_content_type(value: &[u8]) -> Option<ContentType> {
    match value.strip_prefix(b"application/grpc")? {
        b"" => Some(ContentType::Grpc),
        b"+proto" => Some(ContentType::GrpcProto),
        [b'+' | b';', ..] => Some(ContentType::Grpc),
        _ => None,
    }
}

/// A field name as HTTP/2 allows it: a token without upper case.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| is_in_names(byte))
}

#[expect(clippy::indexing_slicing, reason = "there is an entry for every byte")]
fn is_in_names(byte: u8) -> bool {
    NAME_BYTES[usize::from(byte)]
}

/// Fields that speak of an HTTP/1.1 connection, of which HTTP/2 has none.
fn is_of_connection(name: &[u8]) -> bool {
    matches!(name, b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade")
}

/// A scheme as URIs have it (RFC 3986 section 3.1).
fn is_scheme(text: &[u8]) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(is_inner)
}

/// The name of a method: a token in any case.
fn is_token(text: &[u8]) -> bool {
    text.iter().all(|byte| is_in_names(byte.to_ascii_lowercase()))
}

/// A path without blanks and control characters. What else is wrong with it shows when it is looked up.
fn is_path(path: &[u8]) -> bool {
    path.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

/// A field value as HTTP/2 allows it: no line ends, no zero, no blank at either end.
fn is_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b' ' | b'\t'));
    !is_blank(value.first()) && !is_blank(value.last()) && !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
}

#[expect(clippy::indexing_slicing, reason = "runs at compile time, where a slip is an error")]
const NAME_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut at = 0;
    while at < allowed.len() {
        let byte = at as u8;
        allowed[at] = byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || matches!(
                byte,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            );
        at += 1;
    }
    allowed
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Method as Row;
    use crate::http2::hpack::{Encoder, Indexing};

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    const GRPC: Pairs<'static> =
        &[(":method", "POST"), (":scheme", "http"), (":path", "/a.B/C"), ("content-type", "application/grpc")];

    fn read(fields: &[Pairs<'_>]) -> Result<Head, BadHead> {
        let (mut encoder, mut block) = (Encoder::new(), Vec::new());
        for (name, value) in fields.iter().copied().flatten() {
            encoder.encode(&mut block, name.as_bytes(), value.as_bytes(), Indexing::Without);
        }
        let routes = Routes::new(&[Row { path: "/a.B/C", kind: Kind::Unary }]);
        decode(&block, &mut hpack::Decoder::new(4096), &routes, 1000)
    }

    #[test]
    fn a_call_is_recognized() {
        let head = read(&[GRPC, &[("grpc-timeout", "5S"), ("content-length", "17"), ("te", "trailers")]]);
        let head = head.expect("a request");
        assert_eq!(head.content_length, Some(17));
        let Target::Grpc(grpc) = head.target else { panic!("a call: {head:?}") };
        assert_eq!((grpc.method, grpc.timeout), (0, Some(Duration::from_secs(5))));
        assert_eq!(grpc.metadata.get("te"), Some(&b"trailers"[..]));
        assert_eq!(grpc.metadata.get(":path"), None);
    }

    #[test]
    fn malformed_requests_are_told_apart() {
        let (pseudo, cases) = (
            &GRPC[..3],
            [
                [("Upper", "x")],
                [("connection", "close")],
                [(":authority", "x\ry")],
                [("te", "gzip")],
                [(":path", "/again")],
                [(":status", "200")],
                [("blank ", "x")],
                [("", "x")],
                [("x", " leading")],
                [("x", "trailing\t")],
                [("x", "line\nend")],
                [("content-length", "-1")],
                [("content-length", "")],
            ],
        );
        for case in cases {
            assert_eq!(read(&[pseudo, &case]).err(), Some(BadHead::Malformed), "{case:?}");
        }
        for missing in pseudo {
            let rest: Vec<_> = pseudo.iter().filter(|field| *field != missing).copied().collect();
            assert_eq!(read(&[&rest]).err(), Some(BadHead::Malformed), "without {missing:?}");
        }
        let late = [&[("x", "y")][..], pseudo];
        assert_eq!(read(&late).err(), Some(BadHead::Malformed));
        let twice = [pseudo, &[("content-length", "1"), ("content-length", "2")]];
        assert_eq!(read(&twice).err(), Some(BadHead::Malformed));
    }

    #[test]
    fn what_is_not_grpc_is_http() {
        let get = [(":method", "GET"), (":scheme", "https"), (":path", "/health?x=1"), (":authority", "host:1")];
        let Ok(Head { target: Target::Http(parts), .. }) = read(&[&get, &[("accept", "*/*")]]) else {
            panic!("a request");
        };
        assert_eq!(parts.uri.to_string(), "https://host:1/health?x=1");
        assert_eq!(parts.headers["accept"], "*/*");
        let long = "x".repeat(1000);
        let Ok(Head { target: Target::Answered(status), .. }) = read(&[&get, &[("x", &long)]]) else {
            panic!("too long a list");
        };
        assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
}
