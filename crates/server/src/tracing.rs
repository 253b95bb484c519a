//! Tracing of calls: their spans begin and end here, and go to a collector by OTLP over gRPC, without TLS, as etcd's do.

use api::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest, RangeRequest, RequestOp,
    TxnRequest, request_op::Request,
};
use api::{Code, check, unread};
use bytes::Bytes;
use contain::contain;
use rpc::client::{Channel, Options};
use rpc::{Call, Metadata, Responder, StreamCall};
use std::sync::Arc;
use std::time::Duration;
use telemetry::logging::{self, Value};
use telemetry::tracing::{Attribute, Inside, Open, Outcome, Parent, Tracer};

/// Bytes of a key that are shown at most.
const KEY_BYTES_MAX: usize = 256;
const PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends spans until the tracer is stopped.
pub(crate) fn run(tracer: &Tracer) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return logging::warn("cannot send traces", &[("error", Value::Shown(&error))]),
    };
    let channel = Channel::new(&tracer.options().address, Options::default());
    telemetry::tracing::run(tracer, |spans| {
        let no_metadata = Metadata::default();
        let sent = runtime.block_on(channel.unary(PATH, &no_metadata, spans.into(), Some(PATIENCE)));
        sent.map(drop).map_err(|status| status.message.to_string())
    });
}

/// Begins the span of a unary call, if that is sampled: it ends with the answer.
pub(crate) fn unary(
    tracer: &Arc<Tracer>,
    max_txn_ops: usize,
    path: &'static str,
    call: &Call,
    responder: Responder,
) -> Responder {
    match tracer.begin(path, parent(&call.metadata), || inside(path, max_txn_ops, call.message.clone())) {
        Some(mut open) => responder.notify(move |answer| open.end(outcome(answer.err().unwrap_or(Code::Ok)))),
        None => responder,
    }
}

/// Begins the span of a stream, if that is sampled: it ends with the stream.
pub(crate) fn stream(tracer: &Arc<Tracer>, path: &'static str, call: &StreamCall) -> Option<Open> {
    tracer.begin(path, parent(&call.metadata), || None)
}

fn parent(metadata: &Metadata) -> Parent<'_> {
    let header = |name| metadata.text(name).and_then(Result::ok);
    Parent { traceparent: header("traceparent"), tracestate: header("tracestate") }
}

fn outcome(code: Code) -> Outcome {
    // Failures that are the server's fault.
    let is_fault = matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    );
    Outcome { code: code as u8, name: code.name(), is_fault }
}

/// What a request asks of the store: a name and attributes as etcd gives them. Values are not among them.
fn inside(path: &str, max_txn_ops: usize, message: Bytes) -> Option<Inside> {
    let (name, attributes) = match path {
        "/etcdserverpb.KV/Range" => ("range", range(&unread::decode::<RangeRequest>(message).ok()?)),
        "/etcdserverpb.KV/Put" => ("put", vec![key("key", &unread::decode::<PutRequest>(message).ok()?.key)]),
        "/etcdserverpb.KV/DeleteRange" => {
            let request = unread::decode::<DeleteRangeRequest>(message).ok()?;
            ("delete_range", vec![key("range_begin", &request.key), key("range_end", &request.range_end)])
        }
        "/etcdserverpb.KV/Txn" => {
            let ops_max = check::txn_tree_ops_max(max_txn_ops);
            ("txn", txn(&contain(|| api::decode::txn(message, ops_max)).ok()?.ok()?))
        }
        "/etcdserverpb.KV/Compact" => {
            let request = unread::decode::<CompactionRequest>(message).ok()?;
            (
                "compact",
                vec![Attribute::number("rev", request.revision), Attribute::flag("is_physical", request.physical)],
            )
        }
        "/etcdserverpb.Lease/LeaseGrant" => {
            let request = unread::decode::<LeaseGrantRequest>(message).ok()?;
            ("lease_grant", vec![Attribute::number("id", request.id), Attribute::number("ttl", request.ttl)])
        }
        "/etcdserverpb.Lease/LeaseRevoke" => {
            ("lease_revoke", vec![Attribute::number("id", unread::decode::<LeaseRevokeRequest>(message).ok()?.id)])
        }
        _ => return None,
    };
    Some(Inside { name, attributes })
}

fn range(request: &RangeRequest) -> Vec<Attribute> {
    vec![
        key("range_begin", &request.key),
        key("range_end", &request.range_end),
        Attribute::number("rev", request.revision),
        Attribute::number("limit", request.limit),
        Attribute::flag("count_only", request.count_only),
        Attribute::flag("keys_only", request.keys_only),
    ]
}

fn txn(request: &TxnRequest) -> Vec<Attribute> {
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
        Attribute::text("success_first_type", kind),
        Attribute::number("success_first_lease", lease),
        Attribute::number("compare_len", request.compare.len() as i64),
        Attribute::number("success_len", request.success.len() as i64),
        Attribute::number("failure_len", request.failure.len() as i64),
        Attribute::flag("read_only", read_only),
    ]
}

/// A key, as far as it is text.
fn key(name: &str, key: &[u8]) -> Attribute {
    Attribute::text(name, &String::from_utf8_lossy(&key[..key.len().min(KEY_BYTES_MAX)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;

    #[test]
    fn keys_are_told_and_values_are_not() {
        let put = PutRequest { key: "k".into(), value: "secret".into(), ..Default::default() };
        let inside = inside("/etcdserverpb.KV/Put", 0, put.encode_to_vec().into()).expect("it asks for something");
        assert_eq!((inside.name, &inside.attributes[..]), ("put", &[Attribute::text("key", "k")][..]));
        assert!(!format!("{inside:?}").contains("secret"));
    }

    #[test]
    fn clients_are_to_blame_for_their_mistakes() {
        for (code, is_fault) in [(Code::Ok, false), (Code::InvalidArgument, false), (Code::Unavailable, true)] {
            assert_eq!(outcome(code).is_fault, is_fault, "{code:?}");
        }
        assert_eq!((outcome(Code::Ok).code, outcome(Code::Ok).name), (Outcome::OK.code, Outcome::OK.name));
    }
}
