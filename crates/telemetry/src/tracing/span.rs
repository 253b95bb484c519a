//! The spans of a call.

use super::context::{Context, Ids};
use super::otlp::{Attribute, Span, SpanStatus};
use bytes::Bytes;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const ERROR: i32 = 2;

/// The operation that a call asks for, as a span inside the call's own.
#[derive(Clone, Debug)]
pub struct Inside {
    /// Its name.
    pub name: &'static str,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
}

/// How a call ended, in gRPC's terms.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The number of the status.
    pub code: u8,
    /// Its name.
    pub name: &'static str,
    /// It is the server's fault: the client's mistakes are not counted as errors.
    pub is_fault: bool,
}

impl Outcome {
    /// No error.
    pub const OK: Outcome = Outcome { code: 0, name: "OK", is_fault: false };
}

/// A span that has begun, and the one inside it if there is one.
pub(super) struct Sketch {
    began: Instant,
    outer: Span,
    inner: Option<Span>,
}

impl Sketch {
    /// Begins the span of a call to `path`, at this moment.
    pub(super) fn begin(path: &'static str, context: Context, ids: &Ids, inside: Option<Inside>) -> Sketch {
        let name = path.trim_start_matches('/');
        let (service, method) = name.split_once('/').unwrap_or((name, ""));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let parent_span_id = match context.parent {
            0 => Bytes::new(),
            parent => id(parent),
        };
        let outer = Span {
            trace_id: context.trace.to_be_bytes().to_vec().into(),
            span_id: id(ids.draw()),
            trace_state: context.state,
            parent_span_id,
            name: name.into(),
            kind: SERVER,
            start_time_unix_nano: now,
            attributes: vec![
                Attribute::text("rpc.system", "grpc"),
                Attribute::text("rpc.service", service),
                Attribute::text("rpc.method", method),
            ],
            flags: 1,
            ..Span::default()
        };
        let inner = inside.map(|Inside { name, attributes }| Span {
            span_id: id(ids.draw()),
            parent_span_id: outer.span_id.clone(),
            name: name.into(),
            kind: INTERNAL,
            attributes,
            ..outer.clone()
        });
        Sketch { began: Instant::now(), outer, inner }
    }

    /// The finished spans of a call that ended so.
    pub(super) fn end(self, outcome: Outcome) -> impl Iterator<Item = Span> {
        let took = self.began.elapsed().as_nanos() as u64;
        let finish = move |mut span: Span| {
            span.end_time_unix_nano = span.start_time_unix_nano + took;
            if outcome.is_fault {
                span.status = Some(SpanStatus { message: outcome.name.into(), code: ERROR });
            }
            if span.kind == SERVER {
                span.attributes.push(Attribute::number("rpc.grpc.status_code", i64::from(outcome.code)));
            }
            span
        };
        [Some(self.outer), self.inner].into_iter().flatten().map(finish)
    }
}

fn id(number: u64) -> Bytes {
    number.to_be_bytes().to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_has_a_span_of_its_own() {
        let ids = Ids::default();
        let context = Context { trace: 5, parent: 7, state: "a=b".into() };
        let inside = Inside { name: "put", attributes: vec![Attribute::text("key", "k")] };
        let unavailable = Outcome { code: 14, name: "Unavailable", is_fault: true };
        let spans: Vec<Span> = Sketch::begin("/a.KV/Put", context, &ids, Some(inside)).end(unavailable).collect();
        let [outer, inner] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((outer.name.as_str(), inner.name.as_str()), ("a.KV/Put", "put"));
        assert_eq!(outer.parent_span_id, id(7));
        assert_eq!(inner.parent_span_id, outer.span_id);
        assert_eq!((inner.trace_id.len(), inner.trace_id[15]), (16, 5));
        assert!(outer.status.is_some() && outer.end_time_unix_nano >= outer.start_time_unix_nano);
        assert_eq!(inner.attributes, [Attribute::text("key", "k")]);
        assert_eq!(outer.attributes.last(), Some(&Attribute::number("rpc.grpc.status_code", 14)));
    }
}
