//! Who a client is, as members see it.

use rpc::Metadata;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The metadata that tells apart those who may share something.
const NAMES: [&[u8]; 3] = [b"token", b"authorization", b"hasleader"];

/// What a client shows to members of itself. Clients share a watch, an answer or a stream only if theirs are the same.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    metadata: Metadata,
    /// Names and values with their lengths, so that different metadata never look alike.
    key: Arc<[u8]>,
}

impl Identity {
    /// That of a call.
    pub(crate) fn of(metadata: &Metadata) -> Identity {
        let metadata: Metadata = metadata.iter().filter(|(name, _)| NAMES.contains(name)).collect();
        let mut key = Vec::new();
        for part in metadata.iter().flat_map(|(name, value)| [name, value]) {
            key.extend_from_slice(&part.len().to_be_bytes());
            key.extend_from_slice(part);
        }
        Identity { metadata, key: key.into() }
    }

    /// What members are sent.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.metadata.held_bytes().saturating_add(self.key.len())
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.key == other.key
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_credentials_are_the_same() {
        let of = |pairs: &[(&str, &str)]| Identity::of(&pairs.iter().copied().collect());
        assert_eq!(of(&[("token", "a"), ("traceparent", "1")]), of(&[("traceparent", "2"), ("token", "a")]));
        for (one, two) in [
            (&[("token", "a")][..], &[("token", "b")][..]),
            (&[("token", "a")], &[]),
            (&[("token", "a")], &[("token", "a"), ("hasleader", "true")]),
            (&[("token", "a")], &[("authorization", "a")]),
            (&[("token", "ab")], &[("token", "a"), ("token", "b")]),
        ] {
            assert_ne!(of(one), of(two));
        }
    }
}
