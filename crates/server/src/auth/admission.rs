//! From what a call says to what it may do.

use super::login::hand_over;
use super::{Identity, Permitted, Principal, Rule, Unknown};
use crate::node::{Node, Weight};
use api::Error;
use rpc::{Call, StreamCall};
use std::marker::PhantomData;
use std::sync::Arc;
use telemetry::logging::{self, Pace};

/// The caller of a method with the rule `R`. A request is decided only when it has become a [`Permitted`].
pub(crate) struct Asking<R> {
    identity: Identity,
    rule: PhantomData<fn() -> R>,
}

/// The principal of a caller, under one auth revision.
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

    /// The caller of a unary call. The call's message is kept as long as its headers.
    pub(super) fn of(call: &Call) -> Asking<R> {
        Asking::new(Identity::of(call))
    }

    /// The caller of a stream. The bytes of kept messages are added by [`Asking::holding`].
    pub(super) fn of_stream(call: &StreamCall) -> Asking<R> {
        Asking::new(Identity::of_stream(call))
    }

    /// This caller with `bytes` more bytes that are kept while the call waits.
    #[must_use]
    pub(crate) fn holding(self, bytes: usize) -> Asking<R> {
        Asking::new(self.identity.holding(bytes))
    }

    /// The bytes of the call that are kept while it waits.
    pub(crate) fn weight(&self) -> Weight {
        self.identity.weight()
    }

    /// Finds the principal with the entries applied so far, after the member has caught up.
    pub(super) fn known(&self, node: &Node) -> Result<Known<R>, Error> {
        Ok(Known(node.principal_now(&self.identity)?, PhantomData))
    }

    /// Permits or refuses a request with the entries that this member has applied so far.
    pub(crate) fn decide<M>(&self, node: &Node, request: M) -> Result<Permitted<R, M>, Error>
    where
        R: Rule<M>,
    {
        self.known(node)?.decide(node, request).map_err(|(_, error)| error)
    }

    /// Finds the principal and passes it to `then`, once. If the token is from an entry that this member has not
    /// applied, the member first applies everything acknowledged; that includes the entry, if the token is valid.
    /// Otherwise `then` is called at once.
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
                let weight = self.weight();
                node.linearize(weight, move |caught_up| {
                    hand_over(&own.clone(), weight.client(), move || {
                        then(&own, caught_up.and_then(|()| self.known(&own)))
                    });
                });
            }
        }
    }

    /// Permits or refuses a request that is answered from local data; `then` is called once.
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

    /// Permits or refuses a request that has no read index of its own; `then` is called once. The entry that grants the
    /// permission may not be applied yet, so a refusal waits until this member has caught up.
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
        let weight = self.weight();
        node.linearize(weight, move |caught_up| {
            hand_over(&own.clone(), weight.client(), move || {
                let decided = caught_up.and_then(|()| self.decide(&own, request));
                then(&own, decided);
            });
        });
    }
}

impl<R> Known<R> {
    /// Permits a request, or returns it with the error.
    pub(super) fn decide<M>(self, node: &Node, request: M) -> Result<Permitted<R, M>, (M, Error)>
    where
        R: Rule<M>,
    {
        Permitted::decide(self.0, request, &node.store)
    }
}

/// Whether the token of a stream is from an entry that this member has not applied. If so, `caught_up` is called once
/// the member has caught up, or has failed to. The memory of the stream's messages is not counted here.
pub(crate) fn awaits_token(node: &Arc<Node>, call: &StreamCall, caught_up: impl FnOnce() + Send + 'static) -> bool {
    let identity = Identity::of_stream(call);
    let is_awaited = node.principal(&identity).err() == Some(Unknown::NotYet);
    if is_awaited {
        node.linearize(identity.weight(), move |_| caught_up());
    }
    is_awaited
}

/// A line about a token that is not valid, without the token. Clients cause it, so there are only so many.
fn tell_invalid(identity: &Identity) {
    static PACE: Pace = Pace::new();
    if let Some(left_out) = PACE.line() {
        let from = identity.address().map(|address| address.to_string()).unwrap_or_default();
        logging::warn("invalid auth token", &[("remote-addr", (&from).into()), ("lines-left-out", left_out.into())]);
    }
}

impl Node {
    /// Finds the principal with the entries that this member has applied so far.
    pub(super) fn principal(&self, identity: &Identity) -> Result<Principal, Unknown> {
        let found = self.principal_untold(identity);
        if matches!(found, Err(Unknown::Refused(Error::InvalidAuthToken))) {
            tell_invalid(identity);
        }
        found
    }

    /// Like [`Node::principal`], without a line in the log about a token that is not valid.
    pub(super) fn principal_untold(&self, identity: &Identity) -> Result<Principal, Unknown> {
        // The applied index is read before the tokens: every entry up to that index has already added its token.
        let applied = self.status.applied();
        self.auth.principal(&self.store, identity, applied, self.now_ms())
    }

    /// Like [`Node::principal`], after the member has caught up.
    fn principal_now(&self, identity: &Identity) -> Result<Principal, Error> {
        self.principal(identity).map_err(|unknown| match unknown {
            Unknown::NotYet => Error::InvalidAuthToken,
            Unknown::Refused(error) => error,
        })
    }
}
