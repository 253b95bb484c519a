//! A request that its rule has permitted.

use super::{Principal, Rule};
use api::Error;
use std::marker::PhantomData;
use std::ops::Deref;
use store::{Author, Store};

/// A request that the rule `R` has permitted, with its principal. Only a decision creates one, so code that has one
/// needs no further check.
pub(crate) struct Permitted<R, M> {
    request: M,
    principal: Principal,
    rule: PhantomData<fn() -> R>,
}

impl<R: Rule<M>, M> Permitted<R, M> {
    /// Decides about a request, and gives it back with the error if it is refused.
    pub(super) fn decide(principal: Principal, request: M, store: &Store) -> Result<Permitted<R, M>, (M, Error)> {
        match principal.decide(R::ask(&request), store) {
            Ok(()) => Ok(Permitted { request, principal, rule: PhantomData }),
            Err(error) => Err((request, error)),
        }
    }

    /// The author of the entry that is proposed for the request.
    pub(crate) fn author(&self) -> Author {
        self.principal.author()
    }

    /// The request, and the author of its entry.
    pub(crate) fn into_parts(self) -> (M, Author) {
        let author = self.author();
        (self.request, author)
    }

    /// Checks an answer after it was built: fails if users or permissions have changed since the decision.
    pub(crate) fn check_unchanged(&self, store: &Store) -> Result<(), Error> {
        self.principal.check_unchanged(store)
    }

    /// Decides again for the same principal: for requests whose keys may have changed.
    pub(crate) fn decide_again(&self, store: &Store) -> Result<(), Error> {
        self.principal.decide(R::ask(&self.request), store)
    }

    /// Decides again if users or permissions have changed since: for answers that take long.
    pub(crate) fn decide_anew(&mut self, store: &Store) -> Result<(), Error> {
        self.principal.decide_anew(R::ask(&self.request), store)
    }
}

impl<R, M> Deref for Permitted<R, M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.request
    }
}
