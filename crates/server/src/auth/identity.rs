//! What a call says of who makes it.

use crate::node::Weight;
use rpc::{Address, Call, Metadata, Peer, StreamCall};
use std::fmt;
use std::sync::Arc;

/// The credentials of a call: a token in its metadata, or else the common name of the client's certificate. Cheap to
/// clone. A call that is served by making others passes them on.
#[derive(Clone, Default)]
pub(super) struct Identity {
    metadata: Metadata,
    common_name: Option<Arc<str>>,
    address: Option<Address>,
    /// The bytes of the call that are kept while it waits.
    weight: Weight,
}

impl Identity {
    fn new(metadata: &Metadata, peer: &Peer) -> Identity {
        let bytes = metadata.held_bytes();
        Identity {
            metadata: metadata.clone(),
            common_name: peer.common_name.clone(),
            address: Some(peer.address),
            weight: Weight::of(bytes, peer.address),
        }
    }

    /// The identity of a unary call. Its message is kept as long as its headers.
    pub(super) fn of(call: &Call) -> Identity {
        Identity::new(&call.metadata, &call.peer).holding(call.message.len())
    }

    /// The identity of a stream. The bytes of kept messages are added by [`Identity::holding`].
    pub(super) fn of_stream(call: &StreamCall) -> Identity {
        Identity::new(&call.metadata, &call.peer)
    }

    /// This identity with `bytes` more bytes that are kept while the call waits.
    #[must_use]
    pub(super) fn holding(self, bytes: usize) -> Identity {
        Identity { weight: self.weight.and(bytes), ..self }
    }

    /// The bytes of the call that are kept while it waits.
    pub(super) fn weight(&self) -> Weight {
        self.weight
    }

    /// The token, if one was sent. An empty token counts as sent.
    pub(super) fn token(&self) -> Option<&[u8]> {
        let token = self.metadata.get("token").or_else(|| self.metadata.get("authorization"))?;
        Some(token.strip_prefix(b"Bearer ").unwrap_or(token))
    }

    /// Where the call comes from, for a line about it.
    pub(super) fn address(&self) -> Option<Address> {
        self.address
    }

    pub(super) fn common_name(&self) -> Option<&str> {
        self.common_name.as_deref()
    }
}

/// Omits the token, which is as good as a password.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { common_name, .. } = self;
        let has_token = self.token().is_some();
        f.debug_struct("Identity").field("has_token", &has_token).field("common_name", common_name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Identity {
        Identity::new(&pairs.iter().copied().collect(), &Peer::unknown(Address::Unix))
    }

    #[test]
    fn where_the_token_is() {
        assert_eq!(of(&[]).token(), None);
        assert_eq!(of(&[("token", "a")]).token(), Some(&b"a"[..]));
        assert_eq!(of(&[("authorization", "Bearer a")]).token(), Some(&b"a"[..]));
        assert_eq!(of(&[("authorization", "a")]).token(), Some(&b"a"[..]));
        assert_eq!(of(&[("authorization", "b"), ("token", "a")]).token(), Some(&b"a"[..]));
        assert_eq!(of(&[("token", "")]).token(), Some(&b""[..]));
        assert!(!format!("{:?}", of(&[("token", "secret")])).contains("secret"));
    }
}
