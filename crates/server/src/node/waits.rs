//! Who waits for what becomes of a proposal, and whether they still do.
//!
//! A proposal that is held back ends with the time of the client that made it: what a client was told has failed must not be done
//! minutes later, when there is a leader again.

use rpc::Responder;

/// The receiver of a result. It is called once, on a thread that must not wait for others.
pub(crate) trait Waits<T>: Send {
    /// Takes the result.
    fn end(self: Box<Self>, result: T);

    /// Whether nobody waits for the result any more. A member's own proposals are always waited for.
    fn is_gone(&self) -> bool {
        false
    }
}

impl<T, F: FnOnce(T) + Send> Waits<T> for F {
    fn end(self: Box<Self>, result: T) {
        self(result);
    }
}

/// The originator of a request, who may go before there is an answer.
pub(crate) trait Asker: Send {
    /// Whether the originator has gone or its time is over.
    fn has_gone(&self) -> bool;
}

impl Asker for Responder {
    fn has_gone(&self) -> bool {
        self.is_canceled()
    }
}

impl<T> Asker for Box<dyn Waits<T>> {
    fn has_gone(&self) -> bool {
        self.is_gone()
    }
}

/// Waits as long as `asker` does, and then calls `then` with both.
pub(crate) struct For<A, F> {
    asker: A,
    then: F,
}

impl<A, F> For<A, F> {
    /// A receiver that calls `then` with `asker` and the result.
    pub(crate) fn new(asker: A, then: F) -> Box<For<A, F>> {
        Box::new(For { asker, then })
    }
}

impl<A: Asker, T, F: FnOnce(A, T) + Send> Waits<T> for For<A, F> {
    fn end(self: Box<Self>, result: T) {
        (self.then)(self.asker, result);
    }

    fn is_gone(&self) -> bool {
        self.asker.has_gone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_request_is_waited_for_as_long_as_its_client_waits() {
        let (responder, receiver) = Responder::local();
        let (tell, told) = channel();
        let own = tell.clone();
        let inner: Box<dyn Waits<u8>> = For::new(responder, move |_, result: u8| tell.send(result).unwrap_or(()));
        let outer: Box<dyn Waits<u8>> = For::new(inner, |inner: Box<dyn Waits<u8>>, result: u8| inner.end(result + 1));
        let member: Box<dyn Waits<u8>> = Box::new(move |result: u8| own.send(result).unwrap_or(()));
        assert!(!outer.is_gone() && !member.is_gone());
        drop(receiver);
        assert!(outer.is_gone() && !member.is_gone());
        outer.end(1);
        member.end(7);
        assert_eq!(told.iter().collect::<Vec<_>>(), [2, 7]);
    }
}
