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

/// What a unary handler is given before anybody knows whether it is permitted.
pub(crate) trait Request: Sized + Send + 'static {
    /// Decodes it, and refuses what is wrong with it for everybody.
    fn read(node: &Node, message: Bytes) -> Result<Self, Status>;

    /// What the member catches up for before it decides about a unary call. Streams wait for their token alone.
    fn catch_up(&self) -> CatchUp {
        CatchUp::Refusal
    }

    /// Takes note that the wait for a read index is over.
    fn caught_up(&mut self) {}

    /// Counts a refusal.
    fn count_refusal(&self, _node: &Node) {}

    /// Counts a [`CatchUp::Read`] that the member could not catch up for, or after which it is not known who asks.
    fn count_unread(&self, _node: &Node) {}
}

/// What a member that may lag behind catches up for, with all that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatchUp {
    /// A refusal: what gives the right may not be applied yet. For what goes through the log.
    Refusal,
    /// Any answer: a linearizable read.
    Read,
    /// A token that it does not know yet: for answers from whatever this member has.
    Token,
}

/// A handler of unary calls that fits a row with the rule `R`; `S` is what the handlers of a service share, and `Takes` what this one
/// takes of the rule.
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

/// Requests that the server makes of a call are decided one by one.
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
                // Who asks is found out after the read index: what was acknowledged about users and permissions counts too.
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

/// Has the handler answer what is permitted.
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

/// Rules of streams that are decided about message by message.
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

/// A stream of answers to one request, whose handler is made once that is permitted.
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
