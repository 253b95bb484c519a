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

/// How often a request is tried. On a busy machine, constant changes of users can make several tries in a row outdated.
pub(super) const TRIES_MAX: u32 = 20;

/// The tries that a request has left.
#[derive(Clone, Copy)]
pub(super) struct Tries {
    left: u32,
    began: Instant,
    /// The auth revision of the current try.
    revision: u64,
}

impl Tries {
    /// The tries of a request before its first one.
    pub(super) fn new(node: &Node) -> Tries {
        Tries { left: TRIES_MAX - 1, began: Instant::now(), revision: node.store.auth().revision() }
    }

    /// The tries left after a refusal; `None` if another try cannot have another result.
    pub(super) fn next(self, node: &Node) -> Option<Tries> {
        let revision = node.store.auth().revision();
        let is_in_time = self.began.elapsed() < node.config.request_timeout();
        let left = self.left.checked_sub(1)?;
        (is_in_time && revision != self.revision).then_some(Tries { left, revision, ..self })
    }
}

/// Answers a unary call with `serve`, and repeats that while the call is refused because it was permitted under an
/// older auth revision.
pub(super) fn serve(
    node: &Arc<Node>,
    call: Call,
    responder: Responder,
    serve: impl Fn(&Arc<Node>, Call, Responder) + Send + Sync + 'static,
) {
    attempt(node, call, responder, Tries::new(node), Arc::new(serve));
}

/// The function that answers the call.
type Serve = Arc<dyn Fn(&Arc<Node>, Call, Responder) + Send + Sync>;

fn attempt(node: &Arc<Node>, call: Call, responder: Responder, tries: Tries, serve: Serve) {
    // A client that has too much memory claimed gets the refusal, and can retry itself.
    let Ok(held) = Weight::of(call.message.len(), call.peer.address).claim(&node.budget) else {
        return serve(node, call, responder);
    };
    let kept = Call {
        // A copy, because the original shares a buffer with everything that was read with it and would keep that in
        // memory.
        message: Bytes::copy_from_slice(&call.message),
        metadata: call.metadata.clone(),
        deadline: call.deadline,
        peer: call.peer.clone(),
        // Another thread makes the next try.
        is_alone: false,
    };
    let (own, again) = (node.clone(), serve.clone());
    let responder = responder.review(move |responder, reply| {
        let is_outdated = reply.as_ref().err().is_some_and(says_so) && !responder.is_canceled();
        match tries.next(&own).filter(|_| is_outdated) {
            None => responder.send(reply),
            // The memory of the kept call is already claimed by `held`.
            Some(tries) => {
                own.clone().linearize_call(Weight::NONE, responder, move |caught_up, responder| match caught_up {
                    Ok(()) => {
                        drop(held);
                        attempt(&own, kept, responder, tries, again);
                    }
                    // Only the old reply tells the client that nothing was done.
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
