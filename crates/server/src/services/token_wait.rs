//! Streams whose token this member does not know yet.

use crate::auth::awaits_token;
use crate::node::Node;
use api::{Error, limits};
use budget::Claim;
use bytes::Bytes;
use rpc::{Outbound, Status, StreamCall, StreamHandler};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes the handler of a stream. If the call's token is from an entry that this member has not applied, messages of
/// the client are held back until the member has caught up.
pub(super) fn hold(
    node: &Arc<Node>,
    call: StreamCall,
    make: impl FnOnce(StreamCall) -> Box<dyn StreamHandler>,
) -> Box<dyn StreamHandler> {
    let caught_up = Arc::new(AtomicBool::new(false));
    let (told, waker) = (caught_up.clone(), call.waker.clone());
    // If the member cannot catch up, the handler refuses the token as unknown. Memory for the messages is claimed as
    // they come.
    let is_awaited = awaits_token(node, &call, move || {
        told.store(true, Ordering::Release);
        waker.wake();
    });
    if !is_awaited {
        return make(call);
    }
    let claim = node.budget.request(call.peer.address);
    Box::new(Arriving {
        inner: make(call),
        caught_up,
        held: VecDeque::new(),
        held_bytes: 0,
        claim,
        is_half_closed: false,
    })
}

struct Arriving {
    inner: Box<dyn StreamHandler>,
    caught_up: Arc<AtomicBool>,
    held: VecDeque<Bytes>,
    held_bytes: usize,
    /// Claims the memory of the held messages, unless they are small.
    claim: Claim,
    is_half_closed: bool,
}

impl Arriving {
    /// Passes the held messages on. Returns false while messages must still be held back.
    fn go_on(&mut self, out: &mut Outbound<'_>) -> bool {
        if !self.caught_up.load(Ordering::Acquire) {
            return false;
        }
        for message in std::mem::take(&mut self.held) {
            self.inner.message(message, out);
        }
        self.held_bytes = 0;
        self.claim.resize(0);
        if std::mem::take(&mut self.is_half_closed) {
            self.inner.half_closed(out);
        }
        true
    }
}

impl StreamHandler for Arriving {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        if self.go_on(out) {
            self.inner.message(message, out);
        } else if self.held.len() >= limits::EARLY_MESSAGES_MAX {
            out.finish(Status::from(Error::TooManyRequests));
        } else {
            self.held_bytes = self.held_bytes.saturating_add(message.len());
            let is_little = self.held_bytes <= limits::BUDGET_FREE_BYTES;
            if is_little || self.claim.resize(self.held_bytes as u64) {
                self.held.push_back(message);
            } else {
                out.finish(Status::from(Error::TooManyRequests));
            }
        }
    }

    fn half_closed(&mut self, out: &mut Outbound<'_>) {
        if self.go_on(out) {
            self.inner.half_closed(out);
        } else {
            self.is_half_closed = true;
        }
    }

    fn ready(&mut self, out: &mut Outbound<'_>) {
        if self.go_on(out) {
            self.inner.ready(out);
        }
    }

    fn answers_in_a_crowd(&self) -> bool {
        self.held.is_empty() && self.inner.answers_in_a_crowd()
    }
}
