//! OpenTelemetry traces: a span for each call that is sampled, and one inside it for what it asks of the store.
//!
//! [`context`] says which calls are sampled and what they are part of, [`span`] what is told of them, [`exporter`] sends it. No
//! request ever waits for any of this: what the exporter is too slow for is dropped, and counted.

mod context;
mod exporter;
mod span;

pub(crate) use exporter::run;

use crate::config::Tracing;
use api::otlp::Span;
use contain::lock;
use context::{Context, Ids};
use rpc::{Call, Responder, StreamCall};
use span::Sketch;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Spans that wait to be sent.
const WAITING_MAX: usize = 4096;

/// Takes spans from those who answer requests.
pub(crate) struct Tracer {
    options: Tracing,
    ids: Ids,
    waiting: Mutex<Vec<Span>>,
    arrived: Condvar,
    stopping: AtomicBool,
    sent: AtomicU64,
    dropped: AtomicU64,
}

/// A span that has begun; it ends when this is told how, or dropped.
pub(crate) struct Open {
    tracer: Arc<Tracer>,
    sketch: Option<Sketch>,
}

impl Tracer {
    pub(crate) fn new(options: Tracing) -> Tracer {
        Tracer {
            options,
            ids: Ids::default(),
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            stopping: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Begins the span of a unary call, if that is sampled: it ends with the answer.
    pub(crate) fn unary(self: &Arc<Self>, path: &'static str, call: &Call, responder: Responder) -> Responder {
        let Some(context) = Context::of(&call.metadata, &self.ids, self.options.samples_per_million) else {
            return responder;
        };
        let sketch = Sketch::begin(path, context, &self.ids, Some(&call.message));
        let mut open = Open { tracer: self.clone(), sketch: Some(sketch) };
        responder.notify(move |code| open.end(code))
    }

    /// Begins the span of a stream: it ends with the stream.
    pub(crate) fn stream(self: &Arc<Self>, path: &'static str, call: &StreamCall) -> Option<Open> {
        let context = Context::of(&call.metadata, &self.ids, self.options.samples_per_million)?;
        let sketch = Sketch::begin(path, context, &self.ids, None);
        Some(Open { tracer: self.clone(), sketch: Some(sketch) })
    }

    fn take(&self, spans: impl Iterator<Item = Span>) {
        let mut waiting = lock(&self.waiting);
        for span in spans {
            if waiting.len() < WAITING_MAX {
                waiting.push(span);
            } else {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Ends the exporter once it has sent what there is.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.arrived.notify_one();
    }

    /// Spans that were sent, and those that were dropped.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [self.sent.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed)]
    }
}

impl Open {
    fn end(&mut self, code: api::Code) {
        if let Some(sketch) = self.sketch.take() {
            self.tracer.take(sketch.end(code));
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.end(api::Code::Ok);
    }
}
