//! The HTTP endpoints beside gRPC: `/health`, `/version`, `/metrics`.

use crate::metrics;
use crate::node::Node;
use api::etcdserverpb::AlarmType;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use rpc::HttpResponder;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) fn handle(
    node: &Arc<Node>,
    stats: Option<&Arc<rpc::Stats>>,
    request: Request<Bytes>,
    responder: HttpResponder,
) {
    let get = request.method() == Method::GET;
    match request.uri().path() {
        "/health" if get => health(node, request.uri().query().unwrap_or_default(), responder),
        "/version" if get => responder.send(response(StatusCode::OK, "application/json", version(node))),
        "/metrics" if get || request.method() == Method::HEAD => {
            let page = metrics::render(node, stats.map(Arc::as_ref));
            responder.send(response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page));
        }
        "/health" | "/version" | "/metrics" => {
            let mut refused =
                response(StatusCode::METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", "Method Not Allowed\n".into());
            refused.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET"));
            responder.send(refused);
        }
        _ => {
            responder.send(response(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n".into()))
        }
    }
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}

/// The answer to `/version`, on the client and on the peer port.
pub(crate) fn version(node: &Node) -> String {
    let cluster = match node.store.cluster_version() {
        version if version.is_empty() => "not_decided".to_string(),
        version => version,
    };
    let (etcd, storage) = (api::version::ETCD, api::version::STORAGE);
    format!("{{\"etcdserver\":\"{etcd}\",\"etcdcluster\":\"{cluster}\",\"storage\":\"{storage}\"}}")
}

/// Alarms first, then the leader, then a read; `exclude=NOSPACE` and `serializable=true` as etcd has them.
fn health(node: &Arc<Node>, query: &str, responder: HttpResponder) {
    let has = |name: &str, value: &str| query.split('&').any(|part| part.split_once('=') == Some((name, value)));
    let alarms = node.store.alarms();
    let mut failed = alarms.iter().find_map(|alarm| match AlarmType::try_from(alarm.alarm) {
        Ok(AlarmType::Nospace) if !has("exclude", "NOSPACE") => Some("ALARM NOSPACE"),
        Ok(AlarmType::Corrupt) if !has("exclude", "CORRUPT") => Some("ALARM CORRUPT"),
        _ => None,
    });
    let serializable = has("serializable", "true");
    if failed.is_none() && !serializable && node.status.leader() == 0 {
        failed = Some("RAFT NO LEADER");
    }
    let own = node.clone();
    match failed {
        None if !serializable => node.linearize(move |allowed| {
            let reason = allowed.err().map(|error| format!("RANGE ERROR:{error}"));
            answer_health(&own, reason.as_deref(), responder);
        }),
        reason => answer_health(node, reason, responder),
    }
}

fn answer_health(node: &Node, reason: Option<&str>, responder: HttpResponder) {
    node.metrics.health[usize::from(reason.is_some())].fetch_add(1, Ordering::Relaxed);
    let (status, healthy) = match reason {
        None => (StatusCode::OK, "true"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "false"),
    };
    let mut body = format!("{{\"health\":\"{healthy}\",\"reason\":");
    crate::logging::quote(&mut body, reason.unwrap_or_default());
    body.push('}');
    if reason.is_some() {
        body.push('\n');
    }
    responder.send(response(status, "text/plain; charset=utf-8", body));
}
