//! Request headers as gRPC metadata.

use std::fmt;
use std::sync::Arc;

use super::encoding::base64_decode;

/// The headers of a request. Names are lower case; values are bytes, because nothing forces a client to send UTF-8. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    fields: Arc<Fields>,
}

/// Names and values, one after the other in one piece of memory.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Fields {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Span {
    name: u32,
    value: u32,
    end: u32,
}

impl Fields {
    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        assert!(u32::try_from(self.bytes.len()).is_ok(), "header lists are bounded far below 4 GiB");
        self.spans.push(Span {
            name: at as u32,
            value: at.saturating_add(name.len()) as u32,
            end: self.bytes.len() as u32,
        });
    }

    #[expect(clippy::indexing_slicing, reason = "spans are made by `push`, of bytes that stay")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.spans.iter().map(|span| {
            let [name, value, end] = [span.name, span.value, span.end].map(|at| at as usize);
            (&self.bytes[name..value], &self.bytes[value..end])
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Memory held, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        let spans_bytes = self.spans.capacity().saturating_mul(size_of::<Span>());
        self.bytes.capacity().saturating_add(spans_bytes)
    }
}

impl From<Fields> for Metadata {
    fn from(fields: Fields) -> Metadata {
        Metadata { fields: Arc::new(fields) }
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Metadata {
        let mut fields = Fields::default();
        pairs.into_iter().for_each(|(name, value)| fields.push(name.as_ref(), value.as_ref()));
        Metadata::from(fields)
    }
}

impl Metadata {
    /// Every name and value, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter()
    }

    /// The first value of `name`, as it came. For binary metadata (`-bin`) see [`Metadata::binary`].
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The first value of `name` as text: `None` if there is none, `Some(Err)` if it is not UTF-8.
    pub fn text(&self, name: &str) -> Option<Result<&str, std::str::Utf8Error>> {
        self.get(name).map(std::str::from_utf8)
    }

    /// Memory held, in bytes. Several calls of a connection may share it.
    pub fn held_bytes(&self) -> usize {
        self.fields.held_bytes()
    }

    /// Every value of `name`, in the order in which they came.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(key, _)| *key == name.as_bytes()).map(|(_, value)| value)
    }

    /// The first value of a `-bin` name, decoded from base64 (with or without padding). The intake has already refused
    /// requests in which such a value does not decode.
    pub fn binary(&self, name: &str) -> Option<Vec<u8>> {
        self.get(name).and_then(base64_decode)
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        // Tokens are worth as much as passwords.
        let is_secret = |name: &[u8]| matches!(name, b"token" | b"authorization" | b"cookie");
        let shown = |(name, value)| (text(name), if is_secret(name) { "...".into() } else { text(value) });
        f.debug_map().entries(self.iter().map(shown)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bytes() {
        let mut fields = Fields::default();
        fields.push(b"client-api-version", b"3.\xff");
        fields.push(b"token", b"a");
        fields.push(b"token", b"b");
        fields.push(b"trace-bin", b"AAH/");
        let metadata = Metadata::from(fields);
        assert!(metadata.text("client-api-version").is_some_and(|text| text.is_err()));
        assert_eq!(metadata.text("token"), Some(Ok("a")));
        assert_eq!(metadata.all("token").collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(metadata.binary("trace-bin"), Some(vec![0, 1, 255]));
        assert_eq!(metadata.get("missing"), None);
    }
}
