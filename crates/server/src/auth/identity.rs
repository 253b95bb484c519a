//! What a call says of who makes it.

use crate::budget::Claim;
use crate::node::Node;
use api::{Error, limits};
use rpc::{Call, Metadata, Peer, StreamCall};
use std::fmt;
use std::sync::Arc;

/// Who makes a call, as far as the call says: a token in its metadata, else the common name of the client's certificate. Cheap to
/// clone. Whoever serves a call by making others passes it on.
#[derive(Clone, Default)]
pub(crate) struct Identity {
    metadata: Metadata,
    common_name: Option<Arc<str>>,
    is_member: bool,
    /// Length of its message, which is held while it waits.
    request_bytes: usize,
}

impl Identity {
    /// Of a call with these headers from this client.
    pub(crate) fn new(metadata: &Metadata, peer: &Peer) -> Identity {
        Identity {
            metadata: metadata.clone(),
            common_name: peer.common_name.clone(),
            is_member: false,
            request_bytes: 0,
        }
    }

    /// Of a unary call.
    pub(crate) fn of(call: &Call) -> Identity {
        Identity { request_bytes: call.message.len(), ..Identity::new(&call.metadata, &call.peer) }
    }

    /// Claims what the call holds while it waits to be let in; nothing if that is little.
    pub(crate) fn claim(&self, node: &Node) -> Result<Option<Claim>, Error> {
        let is_little = self.request_bytes <= limits::BUDGET_FREE_BYTES;
        if is_little { Ok(None) } else { node.budget.claim_request(self.request_bytes).map(Some) }
    }

    /// Of a stream.
    pub(crate) fn of_stream(call: &StreamCall) -> Identity {
        Identity::new(&call.metadata, &call.peer)
    }

    /// The member itself, which may do everything: for what it asks on its own account, never for a client.
    #[allow(dead_code, reason = "probes of its own health ask as the member")]
    pub(crate) fn member() -> Identity {
        Identity { is_member: true, ..Identity::default() }
    }

    pub(super) fn is_member(&self) -> bool {
        self.is_member
    }

    /// The token, if one was sent. One that is empty was.
    pub(super) fn token(&self) -> Option<&[u8]> {
        let token = self.metadata.get("token").or_else(|| self.metadata.get("authorization"))?;
        Some(token.strip_prefix(b"Bearer ").unwrap_or(token))
    }

    pub(super) fn common_name(&self) -> Option<&str> {
        self.common_name.as_deref()
    }
}

/// Not the token: it is as good as a password.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { common_name, is_member, .. } = self;
        let has_token = self.token().is_some();
        f.debug_struct("Identity")
            .field("has_token", &has_token)
            .field("common_name", common_name)
            .field("is_member", is_member)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpc::Address;

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
