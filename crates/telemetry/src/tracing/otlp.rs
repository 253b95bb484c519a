//! The part of OpenTelemetry's messages that is sent: `opentelemetry/proto/{trace,common,resource}/v1` of
//! <https://github.com/open-telemetry/opentelemetry-proto>.

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Span {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) trace_id: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) span_id: Bytes,
    #[prost(string, tag = "3")]
    pub(super) trace_state: String,
    #[prost(bytes = "bytes", tag = "4")]
    pub(super) parent_span_id: Bytes,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    /// 1: internal, 2: server.
    #[prost(int32, tag = "6")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(super) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<Attribute>,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<SpanStatus>,
    #[prost(fixed32, tag = "16")]
    pub(super) flags: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SpanStatus {
    #[prost(string, tag = "2")]
    pub(super) message: String,
    /// 0: unset, 2: error.
    #[prost(int32, tag = "3")]
    pub(super) code: i32,
}

/// A name and a value that a span has.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    Number(i64),
}

impl Attribute {
    /// One whose value is text.
    pub fn text(name: &str, text: &str) -> Attribute {
        Attribute::new(name, Value::Text(text.into()))
    }

    /// One whose value is a whole number.
    pub fn number(name: &str, number: i64) -> Attribute {
        Attribute::new(name, Value::Number(number))
    }

    /// One that is true or false.
    pub fn flag(name: &str, flag: bool) -> Attribute {
        Attribute::new(name, Value::Flag(flag))
    }

    fn new(name: &str, value: Value) -> Attribute {
        Attribute { key: name.into(), value: Some(AnyValue { value: Some(value) }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field numbers and wire types as the files of OpenTelemetry have them.
    #[test]
    fn spans_are_encoded_as_a_collector_reads_them() {
        let span = Span {
            trace_id: Bytes::from_static(&[1; 2]),
            span_id: Bytes::from_static(&[2; 2]),
            trace_state: "s".into(),
            parent_span_id: Bytes::from_static(&[3; 2]),
            name: "n".into(),
            kind: 2,
            start_time_unix_nano: 7,
            end_time_unix_nano: 8,
            attributes: vec![Attribute::text("a", "b"), Attribute::flag("f", true), Attribute::number("n", 3)],
            status: Some(SpanStatus { message: "m".into(), code: 2 }),
            flags: 1,
        };
        let mut wanted = b"\x0a\x02\x01\x01\x12\x02\x02\x02\x1a\x01s\x22\x02\x03\x03\x2a\x01n\x30\x02".to_vec();
        wanted.extend_from_slice(b"\x39\x07\0\0\0\0\0\0\0\x41\x08\0\0\0\0\0\0\0");
        wanted.extend_from_slice(b"\x4a\x08\x0a\x01a\x12\x03\x0a\x01b\x4a\x07\x0a\x01f\x12\x02\x10\x01");
        wanted.extend_from_slice(b"\x4a\x07\x0a\x01n\x12\x02\x18\x03\x7a\x05\x12\x01m\x18\x02\x85\x01\x01\0\0\0");
        assert_eq!(span.encode_to_vec(), wanted);
        let scope_spans = ScopeSpans { scope: Some(Scope { name: "c".into(), version: "v".into() }), spans: vec![] };
        let resource = Resource { attributes: vec![Attribute::number("n", 3)] };
        let resource_spans = ResourceSpans { resource: Some(resource), scope_spans: vec![scope_spans] };
        let request = ExportTraceServiceRequest { resource_spans: vec![resource_spans] };
        let wanted = b"\x0a\x15\x0a\x09\x0a\x07\x0a\x01n\x12\x02\x18\x03\x12\x08\x0a\x06\x0a\x01c\x12\x01v";
        assert_eq!(request.encode_to_vec(), wanted);
    }
}
