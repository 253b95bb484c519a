//! From a call to its handler, through the rule of its method.
//!
//! A row of the method table names a rule and a handler. What the handler takes says how the rule is kept: a handler that takes a
//! [`Permitted`] request is not called before that is decided, one that takes an [`Asking`] can only find out with it, and one that
//! takes neither stands behind the rule [`Open`]. No other handler fits into a row.

use super::admission::Known;
use super::rules::{Keys, Open, Parts};
use super::{Asking, Permitted, Rule};
use crate::node::Node;
use bytes::Bytes;
use rpc::{Call, Outbound, Responder, Status, StreamCall, StreamHandler};
use std::sync::Arc;

/// A request before its rule has decided.
pub(crate) trait Request: Sized + Send + 'static {
    /// Decodes the request, and refuses it if it is invalid for every caller.
    fn read(node: &Node, message: Bytes) -> Result<Self, Status>;

    /// When the member must catch up before it decides about a unary call. A stream waits only for its token.
    fn catch_up(&self) -> CatchUp {
        CatchUp::Refusal
    }

    /// Called when the wait for a read index is over.
    fn caught_up(&mut self) {}

    /// Counts a refusal.
    fn count_refusal(&self, _node: &Node) {}

    /// Counts a [`CatchUp::Read`] for which the member could not catch up, or which has no principal.
    fn count_unread(&self, _node: &Node) {}
}

/// When a member that may lag behind must first apply everything acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatchUp {
    /// Before a refusal, since the entry that grants the permission may not be applied yet. For requests that go
    /// through the log.
    Refusal,
    /// Before any answer: a linearizable read.
    Read,
    /// If the token is from an entry that is not applied yet. For answers from local data.
    Token,
}

/// A handler of unary calls that fits a row with the rule `R`. `S` is the state that the handlers of a service share,
/// and `Takes` the argument that this handler gets from the rule.
pub(crate) trait Handler<S, R, Takes>: Send + 'static {
    /// Answers a call.
    fn serve(self, shared: &S, node: &Arc<Node>, call: Call, responder: Responder);
}

impl<S, F> Handler<S, Open, ()> for F
where
    F: FnOnce(&Arc<Node>, Call, Responder) + Send + 'static,
{
    fn serve(self, _: &S, node: &Arc<Node>, call: Call, responder: Responder) {
        self(node, call, responder);
    }
}

/// The requests that the server makes from a call are decided one by one.
impl<S, F> Handler<S, Parts, Asking<Parts>> for F
where
    F: FnOnce(&S, &Arc<Node>, Call, Asking<Parts>, Responder) + Send + 'static,
{
    fn serve(self, shared: &S, node: &Arc<Node>, call: Call, responder: Responder) {
        let asking = Asking::of(&call);
        self(shared, node, call, asking, responder);
    }
}

impl<S, R, M, F> Handler<S, R, Permitted<R, M>> for F
where
    R: Rule<M>,
    M: Request,
    F: FnOnce(&Arc<Node>, Call, Permitted<R, M>, Responder) + Send + 'static,
{
    fn serve(self, _: &S, node: &Arc<Node>, call: Call, responder: Responder) {
        let mut request = match M::read(node, call.message.clone()) {
            Ok(request) => request,
            Err(status) => return responder.send(Err(status)),
        };
        let asking = Asking::<R>::of(&call);
        match request.catch_up() {
            CatchUp::Refusal => asking.admit(node, request, move |node, decided| match decided {
                Ok(permitted) => self(node, call, permitted, responder),
                Err(error) => responder.send(Err(error.into())),
            }),
            CatchUp::Token => asking.identify(node, move |node, known| match known {
                Ok(known) => answer(node, known, call, request, responder, self),
                Err(error) => {
                    request.count_refusal(node);
                    responder.send(Err(error.into()));
                }
            }),
            CatchUp::Read => {
                let (own, waits) = (node.clone(), !node.status.serves_local_reads());
                // The principal is found after the read index, so that all acknowledged changes of users and
                // permissions count.
                node.linearize_call(asking.weight(), responder, move |caught_up, responder| {
                    if waits {
                        request.caught_up();
                    }
                    match caught_up.and_then(|()| asking.known(&own)) {
                        Ok(known) => answer(&own, known, call, request, responder, self),
                        Err(error) => {
                            request.count_unread(&own);
                            responder.send(Err(error.into()));
                        }
                    }
                });
            }
        }
    }
}

/// Lets the handler answer the request if it is permitted.
fn answer<R: Rule<M>, M: Request>(
    node: &Arc<Node>,
    known: Known<R>,
    call: Call,
    request: M,
    responder: Responder,
    handler: impl FnOnce(&Arc<Node>, Call, Permitted<R, M>, Responder),
) {
    match known.decide(node, request) {
        Ok(permitted) => handler(node, call, permitted, responder),
        Err((request, error)) => {
            request.count_refusal(node);
            responder.send(Err(error.into()));
        }
    }
}

/// A handler of streams that fits a row with the rule `R`.
pub(crate) trait Opens<R, Takes>: Send + 'static {
    /// Begins a stream.
    fn open(self, node: &Arc<Node>, call: StreamCall) -> Box<dyn StreamHandler>;
}

impl<F, H> Opens<Open, ()> for F
where
    F: FnOnce(&Arc<Node>, StreamCall) -> H + Send + 'static,
    H: StreamHandler + 'static,
{
    fn open(self, node: &Arc<Node>, call: StreamCall) -> Box<dyn StreamHandler> {
        Box::new(self(node, call))
    }
}

/// Rules for streams whose messages are decided one by one.
pub(crate) trait ByMessage {}
impl ByMessage for Keys {}
impl ByMessage for Parts {}

impl<R, F, H> Opens<R, Asking<R>> for F
where
    R: ByMessage + 'static,
    F: FnOnce(&Arc<Node>, StreamCall, Asking<R>) -> H + Send + 'static,
    H: StreamHandler + 'static,
{
    fn open(self, node: &Arc<Node>, call: StreamCall) -> Box<dyn StreamHandler> {
        let asking = Asking::of_stream(&call);
        Box::new(self(node, call, asking))
    }
}

impl<R, M, F, H> Opens<R, Permitted<R, M>> for F
where
    R: Rule<M>,
    M: Request,
    F: FnOnce(&Arc<Node>, StreamCall, Permitted<R, M>) -> Result<H, Status> + Send + 'static,
    H: StreamHandler + 'static,
{
    fn open(self, node: &Arc<Node>, call: StreamCall) -> Box<dyn StreamHandler> {
        let asking = Asking::<R>::of_stream(&call);
        let node = node.clone();
        let begin = move |message| {
            let request = M::read(&node, message)?;
            let permitted = asking.decide(&node, request)?;
            self(&node, call, permitted)
        };
        Box::new(OfOne { begin: Some(begin), handler: None })
    }
}

/// A stream of answers to one request. Its handler is made once the request is permitted.
struct OfOne<B, H> {
    begin: Option<B>,
    handler: Option<H>,
}

impl<B, H> StreamHandler for OfOne<B, H>
where
    B: FnOnce(Bytes) -> Result<H, Status> + Send,
    H: StreamHandler,
{
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        let Some(begin) = self.begin.take() else { return };
        match begin(message) {
            Ok(handler) => self.handler = Some(handler),
            Err(status) => out.finish(status),
        }
    }

    fn half_closed(&mut self, out: &mut Outbound<'_>) {
        if let Some(handler) = &mut self.handler {
            handler.half_closed(out);
        }
    }

    fn ready(&mut self, out: &mut Outbound<'_>) {
        if let Some(handler) = &mut self.handler {
            handler.ready(out);
        }
    }

    fn held_bytes(&self) -> usize {
        self.handler.as_ref().map_or(0, StreamHandler::held_bytes)
    }
}
