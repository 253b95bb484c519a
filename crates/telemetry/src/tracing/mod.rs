//! OpenTelemetry traces: a span for each call that is sampled, and one inside it for what it asks for.
//!
//! `context` decides which calls are sampled and which trace they belong to, `span` describes them, and `exporter` sends the spans in the
//! messages of `otlp`. No request waits for it: spans that the exporter is too slow for are dropped and counted.

mod context;
mod exporter;
mod options;
mod otlp;
mod span;

pub use context::Parent;
pub use exporter::run;
pub use options::Options;
pub use otlp::Attribute;
pub use span::{Inside, Outcome};

use contain::lock;
use context::{Context, Ids};
use otlp::Span;
use span::Sketch;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Spans that wait to be sent.
const WAITING_MAX: usize = 4096;

/// Takes spans from the threads that answer requests.
pub struct Tracer {
    options: Options,
    ids: Ids,
    waiting: Mutex<Vec<Span>>,
    arrived: Condvar,
    stopping: AtomicBool,
    sent: AtomicU64,
    dropped: AtomicU64,
}

/// A span that has begun; it ends with a status, or when this is dropped.
pub struct Open {
    tracer: Arc<Tracer>,
    sketch: Option<Sketch>,
}

impl Tracer {
    /// One that has no spans yet.
    pub fn new(options: Options) -> Tracer {
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

    /// Where spans go.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Begins the span of a call to `path` (`/package.Service/Method`), if that is sampled. Only then `inside` is asked what the call
    /// wants.
    pub fn begin(
        self: &Arc<Self>,
        path: &'static str,
        parent: Parent<'_>,
        inside: impl FnOnce() -> Option<Inside>,
    ) -> Option<Open> {
        let context = Context::of(parent, &self.ids, self.options.samples_per_million)?;
        let sketch = Sketch::begin(path, context, &self.ids, inside());
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
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.arrived.notify_one();
    }

    /// Spans that were sent, and those that were dropped.
    pub fn counts(&self) -> [u64; 2] {
        [self.sent.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed)]
    }
}

impl Open {
    /// Ends the span; later calls change nothing.
    pub fn end(&mut self, outcome: Outcome) {
        if let Some(sketch) = self.sketch.take() {
            self.tracer.take(sketch.end(outcome));
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.end(Outcome::OK);
    }
}
