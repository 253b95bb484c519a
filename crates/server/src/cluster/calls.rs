//! Calls of other members on the peer port, apart from Raft's messages.

use super::{change, checkpoints, leases, remote};
use crate::node::Node;
use crate::observer::READ_INDEX;
use crate::yield_cpu::yield_to_others;
use api::etcdserverpb::{HashKvResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, ResponseHeader};
use api::leasepb::{LeaseInternalRequest, LeaseInternalResponse};
use api::unread;
use api::{Error, Message};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use peer::Caller;
use serde::Deserialize;
use serde_json::json;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;
use store::Unread;

/// Requests of members are small.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// How long a request about a lease waits until this member has applied everything acknowledged.
const LEVEL_MAX: Duration = Duration::from_secs(1);

/// Time between two attempts to begin a hash.
const LOOK: Duration = Duration::from_millis(20);

type Answer = Response<Vec<u8>>;

/// Answers one call. It may block, as the peer's connection has a thread of its own.
pub(crate) fn call(node: &Arc<Node>, request: &Request<Vec<u8>>, caller: Caller<'_>, hashing: &Hashing) -> Answer {
    let path = request.uri().path();
    let method = match path {
        "/leases" | "/leases/internal" | READ_INDEX => Method::POST,
        _ if path.starts_with("/members/promote/") => Method::POST,
        _ => Method::GET,
    };
    let known = matches!(
        path,
        "/members"
            | "/members/hashkv"
            | "/leases"
            | "/leases/internal"
            | "/downgrade/enabled"
            | "/version"
            | READ_INDEX
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
        "/members/hashkv" => hash_kv(node, request, caller, hashing),
        "/leases" => keep_alive(node, request.body(), peer::is_of_observer(request)),
        "/leases/internal" => time_to_live(node, request.body(), peer::is_of_observer(request)),
        READ_INDEX => read_index(node),
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
        None,
        Box::new(move |changed: change::Changed| {
            // The thread below may have given up waiting.
            let _ = tell.send(changed);
        }),
    );
    let changed = told.recv_timeout(node.config.request_timeout()).unwrap_or(Err(Error::Timeout));
    let refused = match changed {
        Ok(members) => return with_cluster(node, answer(StatusCode::OK, "application/json", json_list(&members))),
        Err(Error::MemberNotFound) => text(StatusCode::NOT_FOUND, "membership: ID not found"),
        // The peer protocol has a text of its own for this error.
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

/// Computes at most one hash at a time for members, and one for non-members: a hash reads the whole history.
#[derive(Default)]
pub(crate) struct Hashing {
    members: Mutex<()>,
    non_members: Mutex<()>,
}

impl Hashing {
    /// Waits until the caller's hash may begin; `None` if the caller has gone meanwhile.
    fn turn(&self, caller: Caller<'_>) -> Option<MutexGuard<'_, ()>> {
        let turn = if caller.is_member { &self.members } else { &self.non_members };
        while (caller.waits)() {
            match turn.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            }
        }
        None
    }
}

fn hash_kv(node: &Node, request: &Request<Vec<u8>>, caller: Caller<'_>, hashing: &Hashing) -> Answer {
    let mismatch = || text(StatusCode::PRECONDITION_FAILED, "cluster ID mismatch");
    let theirs = request.headers().get("x-etcd-cluster-id").and_then(|id| id.to_str().ok());
    if theirs.is_some_and(|theirs| u64::from_str_radix(theirs, 16) != Ok(node.cluster_id)) {
        return mismatch();
    }
    let Ok(wanted) = serde_json::from_slice::<HashRequest>(request.body()) else {
        return text(StatusCode::BAD_REQUEST, "error unmarshalling request");
    };
    // Every member sends its cluster id.
    if theirs.is_none() {
        return mismatch();
    }
    let gone = || text(StatusCode::REQUEST_TIMEOUT, "the caller has gone");
    let Some(_turn) = hashing.turn(caller) else { return gone() };
    // This thread serves one peer connection only, so it can let the threads that serve clients go first.
    yield_to_others();
    match node.store.hash_kv_while(wanted.revision, caller.waits) {
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
        // The peer protocol omits the prefix that clients see.
        Err(Unread::Refused(error)) => {
            text(StatusCode::BAD_REQUEST, error.message().trim_start_matches("etcdserver: "))
        }
        Err(Unread::Unwanted | Unread::TooMuch) => gone(),
    }
}

/// The answer to a request about a lease that failed before the lease was looked up.
fn not_level(error: Error) -> Answer {
    match error {
        Error::NotPrimaryLessor => text(StatusCode::INTERNAL_SERVER_ERROR, remote::NOT_PRIMARY),
        Error::Timeout => {
            text(StatusCode::REQUEST_TIMEOUT, "waiting for node to catch up its applied index has timed out")
        }
        error => text(StatusCode::INTERNAL_SERVER_ERROR, error.message()),
    }
}

/// An index that covers everything that was acknowledged before the question came.
fn read_index(node: &Arc<Node>) -> Answer {
    match node.wait_read_index(LEVEL_MAX) {
        Ok(index) => text(StatusCode::OK, &index.to_string()),
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, error.message()),
    }
}

/// A renewal. Members know who leads, and ask there; for an observer it is asked from here.
fn keep_alive(node: &Arc<Node>, body: &[u8], is_of_observer: bool) -> Answer {
    let Ok(request) = unread::decode::<LeaseKeepAliveRequest>(body) else {
        return text(StatusCode::BAD_REQUEST, "error unmarshalling request");
    };
    let term = node.status.term();
    if let Err(error) = node.wait_linearized(LEVEL_MAX) {
        return not_level(error);
    }
    failpoint::point!(BEFORE_SERVE_HTTP_LEASE_RENEW);
    failpoint::point!(BEFORE_CHECKPOINT_IN_LEASE_RENEW);
    match leases::renew_here(node, &[request.id]).as_deref() {
        None if is_of_observer => match leases::renew_elsewhere(node, request.id) {
            Ok(Some(ttl)) => renewed(request.id, ttl),
            Ok(None) => text(StatusCode::NOT_FOUND, remote::LEASE_NOT_FOUND),
            Err(error) => not_level(error),
        },
        None => text(StatusCode::BAD_REQUEST, remote::NOT_PRIMARY),
        Some([ttl]) if *ttl > 0 => {
            if let Err(error) = checkpoints::forget_and_wait(node, request.id, term) {
                return not_level(error);
            }
            renewed(request.id, *ttl)
        }
        Some(_) => text(StatusCode::NOT_FOUND, remote::LEASE_NOT_FOUND),
    }
}

fn renewed(id: i64, ttl: i64) -> Answer {
    let renewed = LeaseKeepAliveResponse { header: None, id, ttl };
    answer(StatusCode::OK, "application/protobuf", renewed.encode_to_vec())
}

fn time_to_live(node: &Arc<Node>, body: &[u8], is_of_observer: bool) -> Answer {
    let decoded = unread::decode::<LeaseInternalRequest>(body).map(|request| request.lease_time_to_live_request);
    let Ok(Some(request)) = decoded else {
        return text(StatusCode::BAD_REQUEST, "error unmarshalling request");
    };
    if let Err(error) = node.wait_linearized(LEVEL_MAX) {
        return not_level(error);
    }
    failpoint::point!(BEFORE_LOOKUP_WHEN_FORWARD_LEASE_TIME_TO_LIVE);
    let found = match leases::time_to_live_here(node, &request) {
        Err(Error::NotPrimaryLessor) if is_of_observer => leases::time_to_live_elsewhere(node, &request),
        found => found,
    };
    match found {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Outcome, Weight};
    use crate::overload::Class;
    use crate::test_support::Rig;
    use api::RaftRequest;
    use api::etcdserverpb::PutRequest;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_hash_is_made_at_a_time_and_none_for_who_has_gone() {
        let hashing = Hashing::default();
        let stays = || true;
        let (non_member, member) =
            (Caller { is_member: false, waits: &stays }, Caller { is_member: true, waits: &stays });
        let turn = hashing.turn(non_member).expect("nobody else");
        // It goes after a few looks.
        let looks = AtomicUsize::new(0);
        let goes = || looks.fetch_add(1, Ordering::Relaxed) < 3;
        assert!(hashing.turn(Caller { is_member: false, waits: &goes }).is_none());
        assert!(hashing.turn(member).is_some(), "non-members do not keep members waiting");
        drop(turn);
        assert!(hashing.turn(non_member).is_some());
    }

    #[test]
    fn a_read_index_covers_what_is_answered_in_the_middle_of_a_batch() {
        const WRITES: u64 = 200;
        // As many as are answered together.
        const ANSWERED: u64 = 64;
        let rig = Rig::start(&[]);
        let (held, holds) = sync_channel(1);
        let (release, released) = sync_channel::<()>(1);
        let node = rig.node().clone();
        // No turn is taken meanwhile: all of it is one batch.
        rig.node().linearize_by_turn(Weight::NONE, move |allowed| {
            assert!(allowed.is_ok());
            let before = node.status.applied();
            let put = PutRequest { key: "k".into(), ..PutRequest::default() }.encode_to_vec();
            let first = move |_: Outcome| {
                let _ = held.send(before);
                let _ = released.recv();
            };
            node.propose(node.as_member(), RaftRequest::Put, &put, Box::new(first));
            (1..WRITES).for_each(|_| node.propose(node.as_member(), RaftRequest::Put, &put, Box::new(drop::<Outcome>)));
        });
        let before = holds.recv().expect("an answer");
        let node = rig.node().clone();
        let asking = std::thread::spawn(move || {
            let mut request = Request::new(Vec::new());
            *request.method_mut() = Method::POST;
            *request.uri_mut() = READ_INDEX.parse().expect("a path");
            loop {
                let answer = call(&node, &request, Caller { is_member: true, waits: &|| true }, &Hashing::default());
                if answer.status() == StatusCode::OK {
                    let index = String::from_utf8(answer.into_body()).expect("text");
                    return index.trim().parse::<u64>().expect("an index");
                }
            }
        });
        rig.wait_for("the question", || asking.is_finished() || rig.node().depth(Class::Read) > 0);
        release.send(()).expect("it waits");
        let index = asking.join().expect("no panic");
        assert!(index >= before + ANSWERED, "{ANSWERED} writes behind {before} are answered, and {index} is told");
    }

    #[test]
    fn hashes_are_for_those_who_name_the_cluster_and_wait() {
        let rig = Rig::start(&[]);
        let ask = |cluster: Option<u64>, waits: &dyn Fn() -> bool| {
            let mut request = Request::new(b"{\"revision\":0}".to_vec());
            *request.uri_mut() = "/members/hashkv".parse().expect("a path");
            if let Some(id) = cluster {
                let id = HeaderValue::from_str(&format!("{id:x}")).expect("text");
                request.headers_mut().insert("x-etcd-cluster-id", id);
            }
            let caller = Caller { is_member: false, waits };
            call(rig.node(), &request, caller, &Hashing::default()).status()
        };
        let own = rig.node().cluster_id;
        assert_eq!(ask(Some(own), &|| true), StatusCode::OK);
        assert_eq!(ask(None, &|| true), StatusCode::PRECONDITION_FAILED);
        assert_eq!(ask(Some(own + 1), &|| true), StatusCode::PRECONDITION_FAILED);
        assert_eq!(ask(Some(own), &|| false), StatusCode::REQUEST_TIMEOUT);
    }
}
