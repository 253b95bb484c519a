//! Sends spans to a collector: OTLP over gRPC, without TLS, as etcd does.

use super::Tracer;
use super::span::text;
use crate::logging;
use api::Message;
use api::otlp::{ExportTraceServiceRequest, Resource, ResourceSpans, Scope, ScopeSpans, Span};
use contain::lock;
use rpc::client::{Channel, Options};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

const PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// How long spans gather before they are sent together.
const GATHER: Duration = Duration::from_secs(1);
/// Spans sent together.
const BATCH_MAX: usize = 512;
/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends spans until the tracer is stopped.
pub(crate) fn run(tracer: &Tracer) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return logging::warn("cannot send traces", &[("error", logging::Value::Shown(&error))]),
    };
    let channel = Channel::new(&tracer.options.address, Options::default());
    let resource = resource(tracer);
    let mut is_failing = false;
    while let Some(spans) = tracer.gathered() {
        let count = spans.len() as u64;
        let scope = Scope { name: "cairn".into(), version: api::version::CAIRN.into() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        let resource_spans = vec![ResourceSpans { resource: Some(resource.clone()), scope_spans }];
        let message = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let no_metadata = rpc::Metadata::default();
        match runtime.block_on(channel.unary(PATH, &no_metadata, message.into(), Some(PATIENCE))) {
            Ok(_) => {
                is_failing = false;
                tracer.sent.fetch_add(count, Ordering::Relaxed);
            }
            Err(status) => {
                tracer.dropped.fetch_add(count, Ordering::Relaxed);
                // Once, until it works again.
                if !std::mem::replace(&mut is_failing, true) {
                    let error = status.message.to_string();
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

/// Who sends.
fn resource(tracer: &Tracer) -> Resource {
    let name = text("service.name", &tracer.options.service_name);
    let instance = tracer.options.instance_id.as_ref().map(|id| text("service.instance.id", id));
    Resource { attributes: std::iter::once(name).chain(instance).collect() }
}
