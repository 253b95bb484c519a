//! What the other members ask over the peer port, beside Raft itself.

use super::{change, checkpoints, leases, remote};
use crate::node::Node;
use crate::unread;
use api::etcdserverpb::{HashKvResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, ResponseHeader};
use api::leasepb::{LeaseInternalRequest, LeaseInternalResponse};
use api::{Error, Message};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// Requests of members are small.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// How long a question about a lease waits for this member to be level.
const LEVEL_MAX: Duration = Duration::from_secs(1);

type Answer = Response<Vec<u8>>;

/// Answers one call. It may block, as the peer's connection has a thread of its own.
pub(crate) fn call(node: &Arc<Node>, request: &Request<Vec<u8>>) -> Answer {
    let path = request.uri().path();
    let method = match path {
        "/leases" | "/leases/internal" => Method::POST,
        _ if path.starts_with("/members/promote/") => Method::POST,
        _ => Method::GET,
    };
    let known = matches!(
        path,
        "/members" | "/members/hashkv" | "/leases" | "/leases/internal" | "/downgrade/enabled" | "/version"
    );
    if !known && method == Method::GET {
        return text(StatusCode::NOT_FOUND, "404 page not found");
    }
    if request.method() != method {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
        let allow = if method == Method::GET { "GET" } else { "POST" };
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
        return refused;
    }
    if request.body().len() > BODY_BYTES_MAX {
        return text(StatusCode::PAYLOAD_TOO_LARGE, "request body too large");
    }
    match path {
        "/members" => members(node),
        "/members/hashkv" => hash_kv(node, request),
        "/leases" => keep_alive(node, request.body()),
        "/leases/internal" => time_to_live(node, request.body()),
        "/downgrade/enabled" => downgrade_enabled(node),
        "/version" => answer(StatusCode::OK, "application/json", crate::http::version(node).into_bytes()),
        _ => promote(node, path.trim_start_matches("/members/promote/")),
    }
}

fn answer(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

fn text(status: StatusCode, text: &str) -> Answer {
    answer(status, "text/plain; charset=utf-8", format!("{text}\n").into_bytes())
}

fn with_cluster(node: &Node, mut answer: Answer) -> Answer {
    if let Ok(id) = HeaderValue::from_str(&format!("{:x}", node.cluster_id)) {
        answer.headers_mut().insert("x-etcd-cluster-id", id);
    }
    answer
}

fn json_list(members: &[store::Member]) -> Vec<u8> {
    let mut body = serde_json::to_vec(members).unwrap_or_default();
    body.push(b'\n');
    body
}

fn members(node: &Node) -> Answer {
    with_cluster(node, answer(StatusCode::OK, "application/json", json_list(&change::members(node))))
}

fn promote(node: &Arc<Node>, id: &str) -> Answer {
    let Ok(id) = id.parse::<u64>() else {
        return text(StatusCode::NOT_FOUND, &format!("member {id} not found in cluster"));
    };
    let (tell, told) = sync_channel(1);
    change::promote(
        node,
        id,
        Box::new(move |changed: change::Changed| {
            // The peer may have given up.
            let _ = tell.send(changed);
        }),
    );
    let changed = told.recv_timeout(node.config.request_timeout()).unwrap_or(Err(Error::Timeout));
    let refused = match changed {
        Ok(members) => return with_cluster(node, answer(StatusCode::OK, "application/json", json_list(&members))),
        Err(Error::MemberNotFound) => text(StatusCode::NOT_FOUND, "membership: ID not found"),
        // Between members this error has a prefix of its own.
        Err(Error::MemberNotLearner) => {
            text(StatusCode::PRECONDITION_FAILED, "membership: can only promote a learner member")
        }
        Err(error @ Error::LearnerNotReady) => text(StatusCode::PRECONDITION_FAILED, error.message()),
        Err(error @ Error::Timeout) => text(StatusCode::REQUEST_TIMEOUT, error.message()),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.message()),
    };
    with_cluster(node, refused)
}

#[derive(Deserialize)]
struct HashRequest {
    #[serde(default)]
    revision: i64,
}

fn hash_kv(node: &Node, request: &Request<Vec<u8>>) -> Answer {
    let theirs = request.headers().get("x-etcd-cluster-id").and_then(|id| id.to_str().ok());
    if theirs.is_some_and(|theirs| u64::from_str_radix(theirs, 16) != Ok(node.cluster_id)) {
        return text(StatusCode::PRECONDITION_FAILED, "cluster ID mismatch");
    }
    let Ok(wanted) = serde_json::from_slice::<HashRequest>(request.body()) else {
        return text(StatusCode::BAD_REQUEST, "error unmarshalling request");
    };
    match node.store.hash_kv(wanted.revision) {
        Ok(HashKvResponse { header, hash, compact_revision, hash_revision }) => {
            let revision = header.map_or(0, |header| header.revision);
            let body = json!({
                "header": { "revision": revision },
                "hash": hash,
                "compact_revision": compact_revision,
                "hash_revision": hash_revision,
            });
            with_cluster(node, answer(StatusCode::OK, "application/json", body.to_string().into_bytes()))
        }
        // Between members the text goes without the prefix that clients see.
        Err(error) => text(StatusCode::BAD_REQUEST, error.message().trim_start_matches("etcdserver: ")),
    }
}

/// What a lease's question gets while this member cannot tell.
fn not_level(error: Error) -> Answer {
    match error {
        Error::NotPrimaryLessor => text(StatusCode::INTERNAL_SERVER_ERROR, remote::NOT_PRIMARY),
        Error::Timeout => {
            text(StatusCode::REQUEST_TIMEOUT, "waiting for node to catch up its applied index has timed out")
        }
        error => text(StatusCode::INTERNAL_SERVER_ERROR, error.message()),
    }
}

fn keep_alive(node: &Arc<Node>, body: &[u8]) -> Answer {
    let Ok(request) = unread::decode::<LeaseKeepAliveRequest>(body) else {
        return text(StatusCode::BAD_REQUEST, "error unmarshalling request");
    };
    if let Err(error) = node.wait_linearized(LEVEL_MAX) {
        return not_level(error);
    }
    match leases::renew_here(node, &[request.id]).as_deref() {
        None => text(StatusCode::BAD_REQUEST, remote::NOT_PRIMARY),
        Some([ttl]) if *ttl > 0 => {
            if let Err(error) = checkpoints::forget_and_wait(node, request.id) {
                return not_level(error);
            }
            let renewed = LeaseKeepAliveResponse { header: None, id: request.id, ttl: *ttl };
            answer(StatusCode::OK, "application/protobuf", renewed.encode_to_vec())
        }
        Some(_) => text(StatusCode::NOT_FOUND, remote::LEASE_NOT_FOUND),
    }
}

fn time_to_live(node: &Arc<Node>, body: &[u8]) -> Answer {
    let decoded = unread::decode::<LeaseInternalRequest>(body).map(|request| request.lease_time_to_live_request);
    let Ok(Some(request)) = decoded else {
        return text(StatusCode::BAD_REQUEST, "error unmarshalling request");
    };
    if let Err(error) = node.wait_linearized(LEVEL_MAX) {
        return not_level(error);
    }
    match leases::time_to_live_here(node, &request) {
        Ok(Some(mut found)) => {
            found.header = Some(ResponseHeader::default());
            let found = LeaseInternalResponse { lease_time_to_live_response: Some(found) };
            answer(StatusCode::OK, "application/protobuf", found.encode_to_vec())
        }
        Ok(None) => text(StatusCode::NOT_FOUND, remote::LEASE_NOT_FOUND),
        Err(error) => not_level(error),
    }
}

fn downgrade_enabled(node: &Arc<Node>) -> Answer {
    let allowed = node.wait_linearized(node.config.request_timeout());
    let told = match allowed {
        Ok(()) => answer(StatusCode::OK, "text/plain", node.store.members().downgrade.enabled.to_string().into_bytes()),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("failed linearized read: {error}")),
    };
    with_cluster(node, told)
}
