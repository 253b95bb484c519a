//! A stream with a span around it, which ends with the stream.

use bytes::Bytes;
use rpc::{Outbound, StreamHandler};
use telemetry::tracing::Open;

/// Wraps the handler of a traced stream.
pub(super) struct Traced {
    inner: Box<dyn StreamHandler>,
    _span: Open,
}

impl Traced {
    pub(super) fn new(inner: Box<dyn StreamHandler>, span: Open) -> Traced {
        Traced { inner, _span: span }
    }
}

impl StreamHandler for Traced {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        self.inner.message(message, out);
    }

    fn half_closed(&mut self, out: &mut Outbound<'_>) {
        self.inner.half_closed(out);
    }

    fn ready(&mut self, out: &mut Outbound<'_>) {
        self.inner.ready(out);
    }

    fn answers_in_a_crowd(&self) -> bool {
        self.inner.answers_in_a_crowd()
    }

    fn held_bytes(&self) -> usize {
        self.inner.held_bytes()
    }
}
