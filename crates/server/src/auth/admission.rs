//! From what a call says to what it may do.

use super::login::hand_over;
use super::{Identity, Principal, Unknown};
use crate::node::Node;
use api::Error;
use std::sync::Arc;
use store::Ask;

/// Finds out who asks; `then` is called once, at once unless the token is from an entry that this member has not applied. Then the
/// member first catches up with all that was acknowledged: who was given the token was given it before.
pub(crate) fn identify(
    node: &Arc<Node>,
    identity: Identity,
    then: impl FnOnce(&Arc<Node>, Result<Principal, Error>) + Send + 'static,
) {
    match node.pass(&identity) {
        Ok(pass) => then(node, Ok(pass)),
        Err(Unknown::Refused(error)) => then(node, Err(error)),
        Err(Unknown::NotYet) => {
            let own = node.clone();
            node.linearize(identity.weight(), move |caught_up| {
                hand_over(&own.clone(), move || then(&own, caught_up.and_then(|()| own.pass_now(&identity))));
            });
        }
    }
}

/// Permits or refuses a request that will not wait for a read index of its own; `then` is called once. This member may lag behind
/// what gave the right, so nobody is refused before it has caught up.
pub(crate) fn admit<R: Send + 'static>(
    node: &Arc<Node>,
    identity: Identity,
    request: R,
    ask: impl Fn(&R) -> Ask<'_> + Send + 'static,
    then: impl FnOnce(&Arc<Node>, R, Result<Principal, Error>) + Send + 'static,
) {
    let decide = move |node: &Node, request: &R, pass: Principal| pass.decide(ask(request), &node.store).map(|()| pass);
    match node.pass(&identity) {
        Ok(pass) => match decide(node, &request, pass) {
            Ok(pass) => return then(node, request, Ok(pass)),
            Err(error) if node.status.serves_local_reads() => return then(node, request, Err(error)),
            Err(_) => {}
        },
        Err(Unknown::Refused(error)) if error == Error::InvalidAuthToken => return then(node, request, Err(error)),
        Err(_) => {}
    }
    let own = node.clone();
    node.linearize(identity.weight(), move |caught_up| {
        hand_over(&own.clone(), move || {
            let pass = caught_up.and_then(|()| own.pass_now(&identity));
            let decided = pass.and_then(|pass| decide(&own, &request, pass));
            then(&own, request, decided);
        });
    });
}

impl Node {
    /// Finds out who asks, with what this member has applied up to now.
    pub(crate) fn pass(&self, identity: &Identity) -> Result<Principal, Unknown> {
        // Asked before the tokens are looked at: an entry whose index counts as applied has left its token.
        let applied = self.status.applied();
        self.auth.pass(&self.store, identity, applied, self.now_ms())
    }

    /// The same for somebody who has waited for this member to catch up.
    pub(crate) fn pass_now(&self, identity: &Identity) -> Result<Principal, Error> {
        self.pass(identity).map_err(|unknown| match unknown {
            Unknown::NotYet => Error::InvalidAuthToken,
            Unknown::Refused(error) => error,
        })
    }
}
