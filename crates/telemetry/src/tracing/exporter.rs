//! Gathers spans and sends them to a collector.

use super::Tracer;
use super::otlp::{Attribute, ExportTraceServiceRequest, Resource, ResourceSpans, Scope, ScopeSpans, Span};
use crate::logging;
use contain::lock;
use prost::Message;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long spans gather before they are sent together.
const GATHER: Duration = Duration::from_secs(1);
/// Spans sent together.
const BATCH_MAX: usize = 512;

/// Sends spans until the tracer is stopped. `send` is given encoded `ExportTraceServiceRequest`s, one after the other, and says in words
/// why the collector did not take one.
pub fn run(tracer: &Tracer, mut send: impl FnMut(Vec<u8>) -> Result<(), String>) {
    let resource = resource(tracer);
    let mut is_failing = false;
    while let Some(spans) = tracer.gathered() {
        let count = spans.len() as u64;
        let scope = Scope { name: "cairn".into(), version: env!("CARGO_PKG_VERSION").into() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        let resource_spans = vec![ResourceSpans { resource: Some(resource.clone()), scope_spans }];
        match send(ExportTraceServiceRequest { resource_spans }.encode_to_vec()) {
            Ok(()) => {
                is_failing = false;
                tracer.sent.fetch_add(count, Ordering::Relaxed);
            }
            Err(error) => {
                tracer.dropped.fetch_add(count, Ordering::Relaxed);
                // Once, until it works again.
                if !std::mem::replace(&mut is_failing, true) {
                    logging::warn(
                        "cannot send traces; they are dropped until it works again",
                        &[("error", (&error).into())],
                    );
                }
            }
        }
    }
}

impl Tracer {
    /// The next spans to send; waits for some. None: the end.
    fn gathered(&self) -> Option<Vec<Span>> {
        loop {
            let mut waiting = lock(&self.waiting);
            if waiting.len() < BATCH_MAX && !self.stopping.load(Ordering::Acquire) {
                waiting = self.arrived.wait_timeout(waiting, GATHER).unwrap_or_else(PoisonError::into_inner).0;
            }
            let len = waiting.len().min(BATCH_MAX);
            if len > 0 {
                return Some(waiting.drain(..len).collect());
            }
            if self.stopping.load(Ordering::Acquire) {
                return None;
            }
        }
    }
}

/// The sender of spans, as the collector sees it.
fn resource(tracer: &Tracer) -> Resource {
    let name = Attribute::text("service.name", &tracer.options.service_name);
    let instance = tracer.options.instance_id.as_ref().map(|id| Attribute::text("service.instance.id", id));
    Resource { attributes: std::iter::once(name).chain(instance).collect() }
}
