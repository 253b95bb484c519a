//! What is told of a call.

use super::context::{Context, Ids};
use crate::unread;
use api::Code;
use api::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest, RangeRequest, RequestOp,
    TxnRequest, request_op::Request,
};
use api::otlp::{AnyValue, KeyValue, Span, SpanStatus, any_value::Value};
use bytes::Bytes;
use contain::contain;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Of a key, more is not told.
const KEY_BYTES_MAX: usize = 256;
const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const ERROR: i32 = 2;

/// A span that has begun, and the one inside it if there is one.
pub(super) struct Sketch {
    began: Instant,
    outer: Span,
    inner: Option<Span>,
}

impl Sketch {
    /// Begins the span of a call to `path`, at this moment.
    pub(super) fn begin(path: &'static str, context: Context, ids: &Ids, message: Option<&Bytes>) -> Sketch {
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
            attributes: vec![text("rpc.system", "grpc"), text("rpc.service", service), text("rpc.method", method)],
            flags: 1,
            ..Span::default()
        };
        let inner = message.and_then(|message| inside(path, message)).map(|(name, attributes)| Span {
            span_id: id(ids.draw()),
            parent_span_id: outer.span_id.clone(),
            name: name.into(),
            kind: INTERNAL,
            attributes,
            ..outer.clone()
        });
        Sketch { began: Instant::now(), outer, inner }
    }

    /// The finished spans of a call that ended with `code`.
    pub(super) fn end(self, code: Code) -> impl Iterator<Item = Span> {
        let took = self.began.elapsed().as_nanos() as u64;
        let finish = move |mut span: Span| {
            span.end_time_unix_nano = span.start_time_unix_nano + took;
            // Those that the server is to blame for; the client's mistakes are not its errors.
            let is_error = matches!(
                code,
                Code::Unknown
                    | Code::DeadlineExceeded
                    | Code::Unimplemented
                    | Code::Internal
                    | Code::Unavailable
                    | Code::DataLoss
            );
            if is_error {
                span.status = Some(SpanStatus { message: code.name().into(), code: ERROR });
            }
            if span.kind == SERVER {
                span.attributes.push(number("rpc.grpc.status_code", i64::from(code as u8)));
            }
            span
        };
        [Some(self.outer), self.inner].into_iter().flatten().map(finish)
    }
}

fn id(number: u64) -> Bytes {
    number.to_be_bytes().to_vec().into()
}

/// What a request asks of the store: a name and attributes as etcd gives them. Values are not among them.
fn inside(path: &str, message: &Bytes) -> Option<(&'static str, Vec<KeyValue>)> {
    let message = message.clone();
    Some(match path {
        "/etcdserverpb.KV/Range" => ("range", range(&unread::decode::<RangeRequest>(message).ok()?)),
        "/etcdserverpb.KV/Put" => ("put", vec![key("key", &unread::decode::<PutRequest>(message).ok()?.key)]),
        "/etcdserverpb.KV/DeleteRange" => {
            let request = unread::decode::<DeleteRangeRequest>(message).ok()?;
            ("delete_range", vec![key("range_begin", &request.key), key("range_end", &request.range_end)])
        }
        "/etcdserverpb.KV/Txn" => ("txn", txn(&contain(|| api::decode::txn(message)).ok()?.ok()?)),
        "/etcdserverpb.KV/Compact" => {
            let request = unread::decode::<CompactionRequest>(message).ok()?;
            ("compact", vec![number("rev", request.revision), flag("is_physical", request.physical)])
        }
        "/etcdserverpb.Lease/LeaseGrant" => {
            let request = unread::decode::<LeaseGrantRequest>(message).ok()?;
            ("lease_grant", vec![number("id", request.id), number("ttl", request.ttl)])
        }
        "/etcdserverpb.Lease/LeaseRevoke" => {
            ("lease_revoke", vec![number("id", unread::decode::<LeaseRevokeRequest>(message).ok()?.id)])
        }
        _ => return None,
    })
}

fn range(request: &RangeRequest) -> Vec<KeyValue> {
    vec![
        key("range_begin", &request.key),
        key("range_end", &request.range_end),
        number("rev", request.revision),
        number("limit", request.limit),
        flag("count_only", request.count_only),
        flag("keys_only", request.keys_only),
    ]
}

fn txn(request: &TxnRequest) -> Vec<KeyValue> {
    let first = request.success.first();
    let is_read = |op: &RequestOp| matches!(op.request, Some(Request::RequestRange(_)));
    let read_only = request.success.iter().chain(&request.failure).all(is_read);
    let (kind, first_key, lease): (_, &[u8], _) = match first.and_then(|op| op.request.as_ref()) {
        Some(Request::RequestPut(put)) => ("put", &put.key, put.lease),
        Some(Request::RequestRange(range)) => ("range", &range.key, 0),
        Some(Request::RequestDeleteRange(delete)) => ("delete_range", &delete.key, 0),
        Some(Request::RequestTxn(_)) => ("txn", &[], 0),
        None => ("", &[], 0),
    };
    vec![
        key("compare_first_key", request.compare.first().map_or(&[], |compare| &compare.key)),
        key("success_first_key", first_key),
        text("success_first_type", kind),
        number("success_first_lease", lease),
        number("compare_len", request.compare.len() as i64),
        number("success_len", request.success.len() as i64),
        number("failure_len", request.failure.len() as i64),
        flag("read_only", read_only),
    ]
}

fn pair(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }) }
}

pub(super) fn text(name: &str, text: &str) -> KeyValue {
    pair(name, Value::StringValue(text.into()))
}

fn number(name: &str, number: i64) -> KeyValue {
    pair(name, Value::IntValue(number))
}

fn flag(name: &str, flag: bool) -> KeyValue {
    pair(name, Value::BoolValue(flag))
}

/// A key, as far as it is text.
fn key(name: &str, key: &[u8]) -> KeyValue {
    text(name, &String::from_utf8_lossy(&key[..key.len().min(KEY_BYTES_MAX)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;

    #[test]
    fn a_put_has_two_spans() {
        let ids = Ids::default();
        let context = Context { trace: 5, parent: 7, state: "a=b".into() };
        let put = PutRequest { key: "k".into(), value: "secret".into(), ..Default::default() };
        let message = Bytes::from(put.encode_to_vec());
        let spans: Vec<Span> =
            Sketch::begin("/etcdserverpb.KV/Put", context, &ids, Some(&message)).end(Code::Unavailable).collect();
        let [outer, inner] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((outer.name.as_str(), inner.name.as_str()), ("etcdserverpb.KV/Put", "put"));
        assert_eq!(outer.parent_span_id, id(7));
        assert_eq!(inner.parent_span_id, outer.span_id);
        assert_eq!((inner.trace_id.len(), inner.trace_id[15]), (16, 5));
        assert!(outer.status.is_some() && outer.end_time_unix_nano >= outer.start_time_unix_nano);
        assert!(!format!("{spans:?}").contains("secret"));
    }
}
