//! Calls that are made once more because users or permissions have changed while they were under way.
//!
//! A request is permitted under an auth revision, and refused if that is not the present one any more when its entry is applied or
//! its answer is built: nothing was done, and nobody knows yet whether it may be. That happens most to a member that lags behind.
//! Who asked would only ask again, so the member does: caught up with all that was acknowledged, from the start.
//!
//! Only a change of users makes it do so, which administrators make. A token that is of an older revision is refused, as often as it comes.

use crate::node::{Node, Weight};
use api::Error;
use bytes::Bytes;
use rpc::{Call, Responder, Status};
use std::sync::Arc;
use std::time::Instant;

/// Times that a request is tried. On a busy machine users that change all the time overtake one several times in a row.
pub(super) const TRIES_MAX: u32 = 20;

/// What one request may still try.
#[derive(Clone, Copy)]
pub(super) struct Tries {
    left: u32,
    began: Instant,
    /// Under which it is tried now.
    revision: u64,
}

impl Tries {
    /// Of a request that is tried now for the first time.
    pub(super) fn new(node: &Node) -> Tries {
        Tries { left: TRIES_MAX - 1, began: Instant::now(), revision: node.store.auth().revision() }
    }

    /// What is left after a refusal, if another try could end otherwise.
    pub(super) fn next(self, node: &Node) -> Option<Tries> {
        let revision = node.store.auth().revision();
        let is_in_time = self.began.elapsed() < node.config.request_timeout();
        let left = self.left.checked_sub(1)?;
        (is_in_time && revision != self.revision).then_some(Tries { left, revision, ..self })
    }
}

/// Answers a unary call with `serve`, and again while it is refused for being permitted under an older revision.
pub(super) fn serve(
    node: &Arc<Node>,
    call: Call,
    responder: Responder,
    serve: impl Fn(&Arc<Node>, Call, Responder) + Send + Sync + 'static,
) {
    attempt(node, call, responder, Tries::new(node), Arc::new(serve));
}

/// How the call is answered.
type Serve = Arc<dyn Fn(&Arc<Node>, Call, Responder) + Send + Sync>;

fn attempt(node: &Arc<Node>, call: Call, responder: Responder, tries: Tries, serve: Serve) {
    // A client that has too much waiting asks again itself.
    let Ok(held) = Weight::of(call.message.len(), call.peer.address).claim(&node.budget) else {
        return serve(node, call, responder);
    };
    let kept = Call {
        // A copy of its own: the request's bytes keep all of what was read with them in memory.
        message: Bytes::copy_from_slice(&call.message),
        metadata: call.metadata.clone(),
        deadline: call.deadline,
        peer: call.peer.clone(),
        // Next time it is another thread.
        is_alone: false,
    };
    let (own, again) = (node.clone(), serve.clone());
    let responder = responder.review(move |responder, reply| {
        let is_outdated = reply.as_ref().err().is_some_and(says_so) && !responder.is_canceled();
        match tries.next(&own).filter(|_| is_outdated) {
            None => responder.send(reply),
            // What it keeps is claimed already.
            Some(tries) => {
                own.clone().linearize_call(Weight::NONE, responder, move |caught_up, responder| match caught_up {
                    Ok(()) => {
                        drop(held);
                        attempt(&own, kept, responder, tries, again);
                    }
                    // Nothing was done, and no other error would say so.
                    Err(_) => responder.send(reply),
                })
            }
        }
    });
    serve(node, call, responder);
}

fn says_so(status: &Status) -> bool {
    let error = Error::AuthOldRevision;
    status.code == error.code() && status.message == error.message()
}
