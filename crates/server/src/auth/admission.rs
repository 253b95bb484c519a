//! From what a call says to what it may do.

use super::login::hand_over;
use super::{Identity, Permitted, Principal, Rule, Unknown};
use crate::node::{Node, Weight};
use api::Error;
use rpc::{Call, StreamCall};
use std::marker::PhantomData;
use std::sync::Arc;

/// Who makes a call to a method with the rule `R`. What they may do is known only of what has become [`Permitted`].
pub(crate) struct Asking<R> {
    identity: Identity,
    rule: PhantomData<fn() -> R>,
}

/// Who that turned out to be, under one auth revision.
pub(super) struct Known<R>(Principal, PhantomData<fn() -> R>);

impl<R> Clone for Asking<R> {
    fn clone(&self) -> Asking<R> {
        Asking { identity: self.identity.clone(), rule: PhantomData }
    }
}

impl<R: 'static> Asking<R> {
    fn new(identity: Identity) -> Asking<R> {
        Asking { identity, rule: PhantomData }
    }

    /// Who makes a unary call, whose message is held as long as its headers.
    pub(super) fn of(call: &Call) -> Asking<R> {
        Asking::new(Identity::of(call))
    }

    /// Who began a stream. What is held of its messages is added.
    pub(super) fn of_stream(call: &StreamCall) -> Asking<R> {
        Asking::new(Identity::of_stream(call))
    }

    /// The same with so many more bytes that are held while it waits.
    #[must_use]
    pub(crate) fn holding(self, bytes: usize) -> Asking<R> {
        Asking::new(self.identity.holding(bytes))
    }

    /// What is held while it waits.
    pub(crate) fn weight(&self) -> Weight {
        self.identity.weight()
    }

    /// Finds out who asks, with what this member has applied up to now: for somebody who has waited for it to catch up.
    pub(super) fn known(&self, node: &Node) -> Result<Known<R>, Error> {
        Ok(Known(node.principal_now(&self.identity)?, PhantomData))
    }

    /// Permits or refuses a request with what this member has applied up to now.
    pub(crate) fn decide<M>(&self, node: &Node, request: M) -> Result<Permitted<R, M>, Error>
    where
        R: Rule<M>,
    {
        self.known(node)?.decide(node, request).map_err(|(_, error)| error)
    }

    /// Finds out who asks; `then` is called once, at once unless the token is from an entry that this member has not applied. Then
    /// the member first catches up with all that was acknowledged: who was given the token was given it before.
    pub(super) fn identify(
        self,
        node: &Arc<Node>,
        then: impl FnOnce(&Arc<Node>, Result<Known<R>, Error>) + Send + 'static,
    ) {
        match node.principal(&self.identity) {
            Ok(principal) => then(node, Ok(Known(principal, PhantomData))),
            Err(Unknown::Refused(error)) => then(node, Err(error)),
            Err(Unknown::NotYet) => {
                let own = node.clone();
                node.linearize(self.weight(), move |caught_up| {
                    hand_over(&own.clone(), move || then(&own, caught_up.and_then(|()| self.known(&own))));
                });
            }
        }
    }

    /// Permits or refuses a request that is answered from whatever this member has; `then` is called once.
    pub(crate) fn decide_once_known<M: Send + 'static>(
        self,
        node: &Arc<Node>,
        request: M,
        then: impl FnOnce(Result<Permitted<R, M>, Error>) + Send + 'static,
    ) where
        R: Rule<M>,
    {
        self.identify(node, |node, known| {
            then(known.and_then(|known| known.decide(node, request).map_err(|(_, error)| error)));
        });
    }

    /// Permits or refuses a request that will not wait for a read index of its own; `then` is called once. This member may lag
    /// behind what gave the right, so nobody is refused before it has caught up.
    pub(crate) fn admit<M: Send + 'static>(
        self,
        node: &Arc<Node>,
        mut request: M,
        then: impl FnOnce(&Arc<Node>, Result<Permitted<R, M>, Error>) + Send + 'static,
    ) where
        R: Rule<M>,
    {
        match node.principal(&self.identity) {
            Ok(principal) => match Permitted::decide(principal, request, &node.store) {
                Ok(permitted) => return then(node, Ok(permitted)),
                Err((_, error)) if node.status.serves_local_reads() => return then(node, Err(error)),
                Err((refused, _)) => request = refused,
            },
            Err(Unknown::Refused(error)) if error == Error::InvalidAuthToken => return then(node, Err(error)),
            Err(_) => {}
        }
        let own = node.clone();
        node.linearize(self.weight(), move |caught_up| {
            hand_over(&own.clone(), move || {
                let decided = caught_up.and_then(|()| self.decide(&own, request));
                then(&own, decided);
            });
        });
    }
}

impl<R> Known<R> {
    /// Permits a request, or gives it back.
    pub(super) fn decide<M>(self, node: &Node, request: M) -> Result<Permitted<R, M>, (M, Error)>
    where
        R: Rule<M>,
    {
        Permitted::decide(self.0, request, &node.store)
    }
}

/// Whether the token of a stream is from an entry that this member has not applied. Then `caught_up` is called once it has, or once it
/// is clear that it cannot. Messages of the stream are not counted here.
pub(crate) fn awaits_token(node: &Arc<Node>, call: &StreamCall, caught_up: impl FnOnce() + Send + 'static) -> bool {
    let identity = Identity::of_stream(call);
    let is_awaited = node.principal(&identity).err() == Some(Unknown::NotYet);
    if is_awaited {
        node.linearize(identity.weight(), move |_| caught_up());
    }
    is_awaited
}

impl Node {
    /// Finds out who asks, with what this member has applied up to now.
    fn principal(&self, identity: &Identity) -> Result<Principal, Unknown> {
        // Asked before the tokens are looked at: an entry whose index counts as applied has left its token.
        let applied = self.status.applied();
        self.auth.principal(&self.store, identity, applied, self.now_ms())
    }

    /// The same for somebody who has waited for this member to catch up.
    fn principal_now(&self, identity: &Identity) -> Result<Principal, Error> {
        self.principal(identity).map_err(|unknown| match unknown {
            Unknown::NotYet => Error::InvalidAuthToken,
            Unknown::Refused(error) => error,
        })
    }
}
