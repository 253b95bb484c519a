//! Request headers as gRPC metadata.

use http::HeaderMap;
use http::header::HeaderValue;

use crate::encoding::base64_decode;

/// The headers of a request. Names are lower case; values are bytes, because nothing forces a client to send UTF-8.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    headers: HeaderMap,
}

impl Metadata {
    /// The first value of `name`, as it came. For binary metadata (`-bin`) see [`Metadata::binary`].
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name).map(HeaderValue::as_bytes)
    }

    /// The first value of `name` as text: `None` if there is none, `Some(Err)` if it is not UTF-8.
    pub fn text(&self, name: &str) -> Option<Result<&str, std::str::Utf8Error>> {
        self.get(name).map(std::str::from_utf8)
    }

    /// Every value of `name`, in the order in which they came.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.get_all(name).into_iter().map(HeaderValue::as_bytes)
    }

    /// The first value of a `-bin` name, decoded from base64 (with or without padding). The intake has already refused
    /// requests in which such a value does not decode.
    pub fn binary(&self, name: &str) -> Option<Vec<u8>> {
        self.get(name).and_then(base64_decode)
    }

    /// The headers themselves.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

impl From<HeaderMap> for Metadata {
    fn from(headers: HeaderMap) -> Metadata {
        Metadata { headers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bytes() {
        let mut headers = HeaderMap::new();
        headers.insert("client-api-version", HeaderValue::from_bytes(b"3.\xff").expect("opaque bytes are allowed"));
        headers.append("token", HeaderValue::from_static("a"));
        headers.append("token", HeaderValue::from_static("b"));
        headers.append("trace-bin", HeaderValue::from_static("AAH/"));
        let metadata = Metadata::from(headers);
        assert!(metadata.text("client-api-version").is_some_and(|text| text.is_err()));
        assert_eq!(metadata.text("token"), Some(Ok("a")));
        assert_eq!(metadata.all("token").collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(metadata.binary("trace-bin"), Some(vec![0, 1, 255]));
        assert_eq!(metadata.get("missing"), None);
    }
}
