//! Who makes a call, for the audit log.

use super::{Identity, Principal, Unknown};
use crate::node::Node;
use rpc::{Call, StreamCall};

/// The user of a call, as far as that is known when it arrives.
pub(crate) struct Caller(Who);

enum Who {
    Known(Principal),
    /// The token is from an entry that this member has not applied: known once the call is answered.
    Later(Identity),
    /// The credentials are invalid.
    Refused,
}

impl Caller {
    pub(crate) fn of(node: &Node, call: &Call) -> Caller {
        Caller::new(node, Identity::of(call))
    }

    pub(crate) fn of_stream(node: &Node, call: &StreamCall) -> Caller {
        Caller::new(node, Identity::of_stream(call))
    }

    fn new(node: &Node, identity: Identity) -> Caller {
        // The call itself tells the log of a token that is not valid.
        Caller(match node.principal_untold(&identity) {
            Ok(principal) => Who::Known(principal),
            Err(Unknown::NotYet) => Who::Later(identity),
            Err(Unknown::Refused(_)) => Who::Refused,
        })
    }

    /// The name of the user; empty if there is none.
    pub(crate) fn user(&self, node: &Node) -> String {
        match &self.0 {
            Who::Known(principal) => principal.author().user,
            Who::Later(identity) => node.principal_untold(identity).map(|who| who.author().user).unwrap_or_default(),
            Who::Refused => String::new(),
        }
    }
}
