//! A service for tests.

use crate::dialogue::MESSAGE_BYTES;
use api::limits::TURN_BYTES_MAX;
use bytes::Bytes;
use rpc::{Call, HttpResponder, Kind, Method, Outbound, Responder, Service, Status, StreamCall, StreamHandler};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) const WATCH: &[Method] = &[Method { path: "/etcdserverpb.Watch/Watch", kind: Kind::Bidi }];

/// How many times `{}` may be handed on in a turn. There are fewer if they take long.
pub(crate) const EMPTY_MESSAGES_OF_A_TURN: usize = TURN_BYTES_MAX.div_ceil(MESSAGE_BYTES + 2);

/// Counts the messages of all its streams.
#[derive(Clone, Default)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// To be run in a task of its own: the most messages that came between two of its turns, once `all` have come.
    pub(crate) fn most_between_turns(&self, all: usize) -> impl Future<Output = usize> + Send + 'static {
        let count = self.0.clone();
        async move {
            let (mut seen, mut most) = (0, 0);
            while seen < all {
                tokio::task::yield_now().await;
                let now = count.load(Ordering::Relaxed);
                most = most.max(now.saturating_sub(seen));
                seen = now;
            }
            most
        }
    }
}

impl Service for Counted {
    fn methods(&self) -> &'static [Method] {
        WATCH
    }

    fn unary(&self, _: usize, _: Call, _: Responder) {}

    fn stream(&self, _: usize, _: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        Ok(Box::new(self.clone()))
    }

    fn http(&self, _: http::Request<Bytes>, _: HttpResponder) {}
}

impl StreamHandler for Counted {
    fn message(&mut self, _: Bytes, _: &mut Outbound<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn half_closed(&mut self, _: &mut Outbound<'_>) {}

    fn ready(&mut self, _: &mut Outbound<'_>) {}
}
