//! Publishing a member's name and client URLs to the cluster. Until that is in the log, the member is not ready: one that was started
//! without a quorum waits, and serves what needs none (`services::early`).

use crate::node::{self, Node};
use api::membershippb::{Attributes, ClusterMemberAttrSetRequest, ClusterVersionSetRequest};
use api::{Error, Message, RaftRequest};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// Pause before the next attempt.
const RETRY: Duration = Duration::from_millis(10);
/// How long a member that is otherwise ready waits for the leader to decide the cluster's version.
const VERSION: Duration = Duration::from_secs(1);
/// Time between warnings while publishing fails.
const WARN: Duration = Duration::from_secs(7);

/// How often a wait checks whether the member stops.
const STOP_CHECK: Duration = Duration::from_millis(200);

/// Publishes the member. Retries until that succeeds or the member stops.
pub(crate) fn publish(node: &Arc<Node>) -> Result<(), Error> {
    if node.is_observer() {
        return become_level(node);
    }
    failpoint::point!(BEFORE_PUBLISHING);
    let attributes = Attributes {
        name: node.config.name.clone(),
        client_urls: node.config.advertise_client_urls.clone(),
        zone: node.config.zone.clone(),
    };
    let request = ClusterMemberAttrSetRequest { member_id: node.member_id, member_attributes: Some(attributes) };
    let request = request.encode_to_vec();
    let mut warned = Instant::now();
    while let Err(error) = propose_and_wait(node, RaftRequest::ClusterMemberAttrSet, &request) {
        if node.stopping.load(Ordering::Relaxed) || error == Error::Stopped {
            return Err(Error::Stopped);
        }
        if warned.elapsed() >= WARN {
            warned = Instant::now();
            logging::warn(
                "failed to publish local member to cluster through raft; trying again",
                &[("error", error.message().into())],
            );
        }
        std::thread::sleep(RETRY);
    }
    logging::info(
        "published local member to cluster through raft",
        &[("local-member-id", Value::Id(node.member_id)), ("cluster-id", Value::Id(node.cluster_id))],
    );
    if node.status.serves_local_reads() && node.store.cluster_version().is_empty() {
        decide_alone(node)?;
    }
    node.opening.publish();
    logging::info("grpc service status changed", &[("service", "".into()), ("status", "SERVING".into())]);
    await_version(node);
    Ok(())
}

/// Waits until an observer has what was acknowledged before. It is nobody's member, and publishes nothing.
fn become_level(node: &Arc<Node>) -> Result<(), Error> {
    let mut warned = Instant::now();
    while let Err(error) = node.wait_linearized(STOP_CHECK) {
        if node.stopping.load(Ordering::Relaxed) || error == Error::Stopped {
            return Err(Error::Stopped);
        }
        if warned.elapsed() >= WARN {
            warned = Instant::now();
            logging::warn(
                "this observer has not caught up with what it follows yet",
                &[
                    ("error", error.message().into()),
                    ("applied-index", node.status.applied().into()),
                    ("is-following", node.way().is_some().into()),
                ],
            );
        }
        std::thread::sleep(RETRY);
    }
    node.note_level();
    node.opening.publish();
    logging::info("grpc service status changed", &[("service", "".into()), ("status", "SERVING".into())]);
    Ok(())
}

/// Waits a while for the cluster's version, because clients of a ready member should see it. No other code relies on
/// the wait.
fn await_version(node: &Node) {
    let deadline = Instant::now() + VERSION;
    while node.store.cluster_version().is_empty() && Instant::now() < deadline && !node.stopping.load(Ordering::Relaxed)
    {
        std::thread::sleep(RETRY);
    }
}

/// A member alone decides the cluster's version before it serves; with others, the leader's monitor does.
fn decide_alone(node: &Arc<Node>) -> Result<(), Error> {
    let request = ClusterVersionSetRequest { ver: api::version::CLUSTER.into() };
    propose_and_wait(node, RaftRequest::ClusterVersionSet, &request.encode_to_vec())?;
    logging::info("set initial cluster version", &[("cluster-version", "3.7".into())]);
    Ok(())
}

/// Sends a request through the log and waits for the outcome.
pub(super) fn propose_and_wait(node: &Arc<Node>, kind: RaftRequest, request: &[u8]) -> Result<(), Error> {
    let (done, told) = told();
    node.propose(node.as_member(), kind, request, done);
    wait(node, &told)
}

/// A callback for a proposal, and the receiver of its result.
pub(super) fn told() -> (node::Done, Receiver<Result<(), Error>>) {
    let (tell, told) = sync_channel(1);
    let done = move |outcome: node::Outcome| {
        // The waiting thread may have given up.
        let _ = tell.send(outcome.map(|_| ()));
    };
    (Box::new(done), told)
}

/// Waits for the outcome of a proposal.
pub(super) fn wait(node: &Node, told: &Receiver<Result<(), Error>>) -> Result<(), Error> {
    loop {
        match told.recv_timeout(STOP_CHECK) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Disconnected) => return Err(Error::Stopped),
            // Once the member stops, no thread ends requests that are late.
            Err(RecvTimeoutError::Timeout) if node.stopping.load(Ordering::Relaxed) => return Err(Error::Stopped),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
