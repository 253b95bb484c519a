//! Small calls to the other members over their peer URLs.

use api::Message;
use api::etcdserverpb::{
    HashKvResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    ResponseHeader,
};
use api::leasepb::{LeaseInternalRequest, LeaseInternalResponse};
use api::unread;
use http::{Method, Request, Response, StatusCode};
use peer::Connector;
use peer::client::{self, Kept};
use serde::Deserialize;
use std::time::Duration;
use store::Member;

/// The answer of a peer to `/members`: its cluster and the members.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The cluster's id.
    pub(crate) id: u64,
    /// Its members.
    pub(crate) members: Vec<Member>,
}

/// The answer of a peer to `/version`.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Versions {
    /// The release it runs.
    #[serde(rename = "etcdserver")]
    pub(crate) server: String,
    /// The cluster's version, or `not_decided`.
    #[serde(rename = "etcdcluster")]
    pub(crate) cluster: String,
}

/// Why a call to a peer has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// It cannot be reached, or does not answer in time.
    #[error("{0}")]
    Unreachable(#[from] client::Error),
    /// The peer gave another answer than expected.
    #[error("unexpected answer: {status} {text}")]
    Unexpected {
        /// The HTTP status.
        status: StatusCode,
        /// The beginning of the answer.
        text: String,
    },
}

fn unexpected(response: &Response<Vec<u8>>) -> CallError {
    let body = String::from_utf8_lossy(response.body());
    let text: String = body.trim().chars().take(200).collect();
    CallError::Unexpected { status: response.status(), text }
}

fn call(
    connector: &Connector,
    url: &str,
    method: Method,
    path: &str,
    body: Vec<u8>,
    timeout: Duration,
) -> Result<Response<Vec<u8>>, CallError> {
    Ok(client::call(connector, url, request_to(method, path, body), timeout)?)
}

fn request_to(method: Method, path: &str, body: Vec<u8>) -> Request<Vec<u8>> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    // This cannot fail: our own paths have only letters, digits and slashes.
    *request.uri_mut() = path.parse().unwrap_or_default();
    if !request.body().is_empty() {
        let protobuf = http::HeaderValue::from_static("application/protobuf");
        request.headers_mut().insert(http::header::CONTENT_TYPE, protobuf);
    }
    request
}

/// The members, as the peer at `url` knows them.
pub(crate) fn members(connector: &Connector, url: &str, timeout: Duration) -> Result<Cluster, CallError> {
    let response = call(connector, url, Method::GET, "/members", Vec::new(), timeout)?;
    let id = response.headers().get("x-etcd-cluster-id").and_then(|id| id.to_str().ok());
    let id = id.and_then(|id| u64::from_str_radix(id, 16).ok());
    match (id, serde_json::from_slice::<Vec<Member>>(response.body())) {
        (Some(id), Ok(members)) if response.status().is_success() && !members.is_empty() => Ok(Cluster { id, members }),
        _ => Err(unexpected(&response)),
    }
}

/// The versions that the peer at `url` reports.
pub(crate) fn versions(connector: &Connector, url: &str, timeout: Duration) -> Result<Versions, CallError> {
    let response = call(connector, url, Method::GET, "/version", Vec::new(), timeout)?;
    serde_json::from_slice(response.body()).map_err(|_| unexpected(&response))
}

/// The hash of the history of the peer at `url` up to a revision.
pub(crate) fn hash_kv(
    connector: &Connector,
    url: &str,
    cluster: u64,
    revision: i64,
    timeout: Duration,
) -> Result<HashKvResponse, CallError> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Header {
        revision: i64,
    }
    // The JSON leaves out fields that are zero.
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Told {
        header: Header,
        hash: u32,
        compact_revision: i64,
        hash_revision: i64,
    }
    let mut request = Request::new(format!("{{\"revision\":{revision}}}").into_bytes());
    *request.uri_mut() = "/members/hashkv".parse().unwrap_or_default();
    let headers = request.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    if let Ok(id) = http::HeaderValue::from_str(&format!("{cluster:x}")) {
        headers.insert("x-etcd-cluster-id", id);
    }
    let response = client::call(connector, url, request, timeout)?;
    match serde_json::from_slice::<Told>(response.body()) {
        Ok(told) if response.status().is_success() => Ok(HashKvResponse {
            header: Some(ResponseHeader { revision: told.header.revision, ..Default::default() }),
            hash: told.hash,
            compact_revision: told.compact_revision,
            hash_revision: told.hash_revision,
        }),
        _ => Err(unexpected(&response)),
    }
}

/// The result of a promotion that another member was asked for.
#[derive(Debug)]
pub(crate) enum Promoted {
    /// The members after the promotion.
    Done(Vec<Member>),
    /// The promotion was refused for good; a retry would not help.
    Refused(api::Error),
}

/// Asks the member at `url` to promote a learner.
pub(crate) fn promote(connector: &Connector, url: &str, id: u64, timeout: Duration) -> Result<Promoted, CallError> {
    let response = call(connector, url, Method::POST, &format!("/members/promote/{id}"), Vec::new(), timeout)?;
    let says = |error: api::Error| String::from_utf8_lossy(response.body()).contains(error.message());
    match response.status() {
        StatusCode::OK => match serde_json::from_slice(response.body()) {
            Ok(members) => Ok(Promoted::Done(members)),
            Err(_) => Err(unexpected(&response)),
        },
        StatusCode::NOT_FOUND => Ok(Promoted::Refused(api::Error::MemberNotFound)),
        StatusCode::PRECONDITION_FAILED if says(api::Error::LearnerNotReady) => {
            Ok(Promoted::Refused(api::Error::LearnerNotReady))
        }
        // etcd's text for this error lacks the prefix that clients see.
        StatusCode::PRECONDITION_FAILED if String::from_utf8_lossy(response.body()).contains("can only promote") => {
            Ok(Promoted::Refused(api::Error::MemberNotLearner))
        }
        _ => Err(unexpected(&response)),
    }
}

/// Renews a lease at the leader. Returns its time to live, or `None` if the lease does not exist.
pub(crate) fn renew(
    kept: &mut Kept,
    connector: &Connector,
    url: &str,
    lease: i64,
    timeout: Duration,
) -> Result<Option<i64>, CallError> {
    let request = LeaseKeepAliveRequest { id: lease }.encode_to_vec();
    let response = kept.call(connector, url, request_to(Method::POST, "/leases", request), timeout)?;
    match (response.status(), unread::decode::<LeaseKeepAliveResponse>(response.body().as_slice())) {
        (StatusCode::NOT_FOUND, _) if is_lease_not_found(&response) => Ok(None),
        (StatusCode::OK, Ok(answer)) if answer.id == lease => Ok(Some(answer.ttl)),
        _ => Err(unexpected(&response)),
    }
}

/// Asks the leader for the remaining time of a lease; `None` if the lease does not exist.
pub(crate) fn time_to_live(
    kept: &mut Kept,
    connector: &Connector,
    url: &str,
    request: &LeaseTimeToLiveRequest,
    timeout: Duration,
) -> Result<Option<LeaseTimeToLiveResponse>, CallError> {
    let body = LeaseInternalRequest { lease_time_to_live_request: Some(*request) }.encode_to_vec();
    let response = kept.call(connector, url, request_to(Method::POST, "/leases/internal", body), timeout)?;
    match (response.status(), unread::decode::<LeaseInternalResponse>(response.body().as_slice())) {
        (StatusCode::NOT_FOUND, _) if is_lease_not_found(&response) => Ok(None),
        (StatusCode::OK, Ok(answer)) if answer.lease_time_to_live_response.is_some() => {
            Ok(answer.lease_time_to_live_response)
        }
        _ => Err(unexpected(&response)),
    }
}

/// Whether a 404 means that the lease does not exist: a peer also answers 404 for a path that it does not serve.
fn is_lease_not_found(response: &Response<Vec<u8>>) -> bool {
    response.body().starts_with(LEASE_NOT_FOUND.as_bytes())
}

/// Beginning of a peer's answer for a lease that does not exist.
pub(super) const LEASE_NOT_FOUND: &str = "lease not found";
/// A peer's answer if it does not keep the deadlines of leases.
pub(super) const NOT_PRIMARY: &str = "not a primary lessor";
