//! A stream whose client wants none without a leader: it ends with the leader.

use crate::node::Node;
use api::Error;
use bytes::Bytes;
use rpc::{Outbound, StreamCall, StreamHandler};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wraps the handler of a stream that needs a leader.
struct NeedsLeader {
    inner: Box<dyn StreamHandler>,
    lost: Arc<AtomicBool>,
}

/// Wraps the stream when its client asks for it.
pub(super) fn guard(
    node: &Node,
    call: StreamCall,
    make: impl FnOnce(StreamCall) -> Box<dyn StreamHandler>,
) -> Box<dyn StreamHandler> {
    if !super::needs_leader(&call.metadata) {
        return make(call);
    }
    let lost = node.leaderless.add(call.waker.clone());
    Box::new(NeedsLeader { inner: make(call), lost })
}

impl NeedsLeader {
    fn run(&mut self, out: &mut Outbound<'_>, turn: impl FnOnce(&mut dyn StreamHandler, &mut Outbound<'_>)) {
        if self.lost.load(Ordering::Acquire) {
            out.finish(Error::NoLeader.into());
        } else {
            turn(&mut *self.inner, out);
        }
    }
}

impl StreamHandler for NeedsLeader {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        self.run(out, |inner, out| inner.message(message, out));
    }

    fn half_closed(&mut self, out: &mut Outbound<'_>) {
        self.run(out, |inner, out| inner.half_closed(out));
    }

    fn ready(&mut self, out: &mut Outbound<'_>) {
        self.run(out, |inner, out| inner.ready(out));
    }

    fn answers_in_a_crowd(&self) -> bool {
        self.inner.answers_in_a_crowd()
    }
}
