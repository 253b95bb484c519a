//! Heads of HTTP/1.1 requests and responses: parsed by `httparse`, with bounds on everything.

use crate::fault::Fault;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use std::fmt::Write as _;

/// Limit of the bytes of a head.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Limit of the header lines of a head; a member sends about ten.
const HEADERS_MAX: usize = 64;

/// How the end of a body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After this many bytes.
    Length(u64),
    /// By the chunked coding.
    Chunked,
    /// By the end of the connection; responses only.
    UntilClose,
}

/// A request without its body.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) request: Request<()>,
    pub(crate) framing: Framing,
    /// The connection may be used for another request afterwards.
    pub(crate) keep_alive: bool,
}

/// A response without its body.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) response: Response<()>,
    pub(crate) framing: Framing,
    /// The connection may be used for another request afterwards.
    pub(crate) keep_alive: bool,
}

/// The parsed head and its length; `None` while it is not complete.
pub(crate) type Parsed<T> = Result<Option<(T, usize)>, Fault>;

/// The request at the start of `bytes` and its length; `None` when it is not complete.
pub(crate) fn request(bytes: &[u8]) -> Parsed<RequestHead> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut lines);
    let httparse::Status::Complete(length) = parsed.parse(bytes).map_err(Fault::not_http)? else {
        return Ok(None);
    };
    let (Some(method), Some(path)) = (parsed.method, parsed.path) else { return Ok(None) };
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(method.as_bytes()).map_err(Fault::not_http)?;
    *request.uri_mut() = path.parse::<Uri>().map_err(Fault::not_http)?;
    *request.headers_mut() = headers(parsed.headers)?;
    let framing = framing(request.headers())?.unwrap_or(Framing::Length(0));
    let keep_alive = keep_alive(parsed.version, request.headers());
    Ok(Some((RequestHead { request, framing, keep_alive }, length)))
}

/// The response at the start of `bytes` and its length; `None` when it is not complete.
pub(crate) fn response(bytes: &[u8]) -> Parsed<ResponseHead> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut lines);
    let httparse::Status::Complete(length) = parsed.parse(bytes).map_err(Fault::not_http)? else {
        return Ok(None);
    };
    let Some(code) = parsed.code else { return Ok(None) };
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(code).map_err(Fault::not_http)?;
    *response.headers_mut() = headers(parsed.headers)?;
    let bodiless = matches!(code, 100..=199 | 204 | 304);
    let framing = match framing(response.headers())? {
        _ if bodiless => Framing::Length(0),
        Some(framing) => framing,
        None => Framing::UntilClose,
    };
    let keep_alive = framing != Framing::UntilClose && keep_alive(parsed.version, response.headers());
    Ok(Some((ResponseHead { response, framing, keep_alive }, length)))
}

fn headers(parsed: &[httparse::Header<'_>]) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::with_capacity(parsed.len());
    for line in parsed {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(Fault::not_http)?;
        headers.append(name, HeaderValue::from_bytes(line.value).map_err(Fault::not_http)?);
    }
    Ok(headers)
}

/// A message with two lengths could be read as two different ones: refused, as RFC 9112 section 6.3 advises.
fn framing(headers: &HeaderMap) -> Result<Option<Framing>, Fault> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(None),
        (None, Some(coding)) if codings.next().is_none() && coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            Ok(Some(Framing::Chunked))
        }
        (Some(length), None) if lengths.next().is_none() => {
            let digits = length.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let length = digits.and_then(|digits| digits.parse().ok());
            length.map(|length| Some(Framing::Length(length))).ok_or_else(|| Fault::not_http("a content length"))
        }
        _ => Err(Fault::not_http("a body with more than one length, or in an unknown coding")),
    }
}

fn keep_alive(version: Option<u8>, headers: &HeaderMap) -> bool {
    let close = headers.get_all(header::CONNECTION).iter().any(|value| {
        let mut words = value.as_bytes().split(|byte| *byte == b',');
        words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
    });
    version == Some(1) && !close
}

/// A request in HTTP/1.1 form. Its content length is added, unless it has no body and needs none.
pub(crate) fn write_request(request: &Request<impl AsRef<[u8]>>, host: &str) -> Vec<u8> {
    write_request_of(request, host, request.body().as_ref().len() as u64)
}

/// The same for a body of so many bytes, which comes from elsewhere.
pub(crate) fn write_request_of<T>(request: &Request<T>, host: &str, length: u64) -> Vec<u8> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut text = format!("{} {path} HTTP/1.1\r\nHost: {host}\r\n", request.method());
    if length > 0 || request.method() != Method::GET {
        let _ = write!(text, "Content-Length: {length}\r\n");
    }
    write_rest(text, request.headers())
}

/// The head of a response in HTTP/1.1 form, lengths and codings as its headers say.
pub(crate) fn write_response(status: StatusCode, headers: &HeaderMap) -> Vec<u8> {
    let reason = status.canonical_reason().unwrap_or_default();
    write_rest(format!("HTTP/1.1 {} {reason}\r\n", status.as_str()), headers)
}

fn write_rest(text: String, headers: &HeaderMap) -> Vec<u8> {
    let mut head = text.into_bytes();
    for (name, value) in headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Parsed<RequestHead> {
        request(text.as_bytes())
    }

    #[test]
    fn requests() {
        let text = "POST /raft?x=1 HTTP/1.1\r\nHost: a\r\nX-Server-From: 1f\r\nContent-Length: 12\r\n\r\nbody";
        let (head, length) = parsed(text).expect("valid").expect("complete");
        assert_eq!((head.request.method(), head.request.uri().path()), (&Method::POST, "/raft"));
        assert_eq!(head.request.headers().get("x-server-from").expect("there").as_bytes(), b"1f");
        assert_eq!((head.framing, head.keep_alive, length), (Framing::Length(12), true, text.len() - 4));
        for length in 0..length {
            assert!(matches!(parsed(&text[..length]), Ok(None)), "{length}");
        }
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nConnection: foo, Close\r\n\r\n";
        let (head, _) = parsed(chunked).expect("valid").expect("complete");
        assert_eq!((head.framing, head.keep_alive), (Framing::Chunked, false));
        let (head, _) = parsed("GET / HTTP/1.0\r\n\r\n").expect("valid").expect("complete");
        assert_eq!((head.framing, head.keep_alive), (Framing::Length(0), false));
    }

    #[test]
    fn garbage() {
        for bad in [
            "\u{16}\u{3}\u{1}",
            "GET / HTTP/9.9\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
            "GET / HTTP/1.1\r\nbad header\r\n\r\n",
        ] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert!(parsed(&many).is_err());
    }

    #[test]
    fn responses() {
        let read = |text: &str| response(text.as_bytes()).expect("valid").expect("complete").0;
        let stream = read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!((stream.response.status(), stream.framing), (StatusCode::OK, Framing::Chunked));
        assert_eq!(read("HTTP/1.1 204 No Content\r\n\r\n").framing, Framing::Length(0));
        let old = read("HTTP/1.0 200 OK\r\n\r\n");
        assert_eq!((old.framing, old.keep_alive), (Framing::UntilClose, false));
        assert!(response(b"HTTP/1.1 20 OK\r\n\r\n").is_err());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut request = Request::new(b"abc".to_vec());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = "http://ignored:1/raft?a=b".parse().expect("valid");
        request.headers_mut().insert("x-raft-to", HeaderValue::from_static("ff"));
        let bytes = write_request(&request, "host:1");
        let (head, length) = super::request(&bytes).expect("valid").expect("complete");
        assert_eq!(
            (head.request.uri(), head.framing, length),
            (&"/raft?a=b".parse().expect("valid"), Framing::Length(3), bytes.len())
        );
        let bytes = write_response(StatusCode::GONE, request.headers());
        let (head, _) = response(&bytes).expect("valid").expect("complete");
        assert_eq!(head.response.status(), StatusCode::GONE);
        assert_eq!(head.response.headers().get("x-raft-to").expect("there"), "ff");
    }
}
