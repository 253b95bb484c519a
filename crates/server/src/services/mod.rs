//! The gRPC services, from method to handler. One file per service; no generated service code.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod archive;
mod audited;
mod auth;
mod auth_retry;
mod cluster;
mod downgrade;
mod early;
mod election;
mod fair;
mod health;
mod kv;
mod leaderless;
mod lease;
mod local_client;
mod lock;
mod lock_queue;
mod maintenance;
mod methods;
mod observe;
mod parts;
mod progress;
mod reply;
mod requests;
mod rooms;
mod shares;
mod snapshot;
mod snapshot_places;
mod stream;
#[cfg(test)]
mod tests;
mod timed;
mod token_wait;
mod traced;
mod watch;
mod within;

pub(crate) use methods::METHODS;
pub(crate) use progress::ProgressStreams;
pub(crate) use rooms::LateRooms;
pub(crate) use shares::Shares;
pub(crate) use snapshot::ClientSnapshots;
pub(crate) use watch::run_progress;

use crate::door::Door;
use crate::http::Http;
use crate::node::Node;
use crate::tracing;
use api::Code;
use api::etcdserverpb::RangeRequest;
use api::unread;
use bytes::Bytes;
use lock_queue::LockQueue;
use methods::{Rpc, begin, find, serve};
use rpc::{Address, Call, HttpResponder, Method, RequestBody, Responder, Service, Status, StreamCall, StreamHandler};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The error for an index that is not in the table. That is a bug: the transport takes its indexes from the table.
fn no_such_method() -> Status {
    Status::new(Code::Internal, "there is no such method")
}

/// Whether the client asked for a refusal if the member knows no leader.
fn needs_leader(metadata: &rpc::Metadata) -> bool {
    metadata.get("hasleader").is_some_and(|value| value == b"true")
}

/// Whether a learner answers this call: the calls of operators, and serializable reads.
fn is_for_learners(rpc: Rpc, message: &Bytes) -> bool {
    match rpc {
        Rpc::Status | Rpc::Snapshot | Rpc::Entries | Rpc::HealthCheck | Rpc::HealthList => true,
        Rpc::Range => unread::decode::<RangeRequest>(message.clone()).is_ok_and(|request| request.serializable),
        _ => false,
    }
}

/// Everything that the client port serves.
pub(crate) struct Services {
    /// This object itself, for calls that come by HTTP.
    own: Weak<Services>,
    http: Http,
    node: Arc<Node>,
    stats: OnceLock<Arc<rpc::Stats>>,
    door: Door,
    /// Calls that wait for a lock or an election.
    lock_queue: Arc<LockQueue>,
}

impl Services {
    pub(crate) fn new(node: Arc<Node>) -> Arc<Services> {
        let (http, door) = (Http::new(node.clone()), Door::default());
        let lock_queue = Arc::default();
        Arc::new_cyclic(|own| Services { own: own.clone(), http, node, stats: OnceLock::new(), door, lock_queue })
    }

    /// The transport's counters, known once it runs.
    pub(crate) fn set_stats(&self, stats: Arc<rpc::Stats>) {
        // Set once, after the transport has started.
        let _ = self.stats.set(stats);
    }

    /// Serves the calls that wait for a lock or an election, until [`Services::close_lock_queue`]. Runs on a thread of
    /// its own.
    pub(crate) fn run_lock_queue(&self) {
        lock_queue::run(&self.lock_queue);
    }

    /// Ends the calls that wait for a lock or an election with the error that the server has stopped.
    pub(crate) fn close_lock_queue(&self) {
        self.lock_queue.close();
    }

    /// Refuses a call by its metadata, before its handler is called.
    fn admit(&self, metadata: &rpc::Metadata) -> Result<(), Status> {
        if metadata.get("client-api-version").is_some_and(|version| std::str::from_utf8(version).is_err()) {
            return Err(api::Error::InvalidClientApiVersion.into());
        }
        if needs_leader(metadata) && self.node.status.leader() == 0 {
            return Err(api::Error::NoLeader.into());
        }
        Ok(())
    }

    fn begin_stream(&self, rpc: Rpc, path: &'static str, call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        let node = &self.node;
        if node.status.is_learner() && !is_for_learners(rpc, &Bytes::new()) {
            return Err(api::Error::NotSupportedForLearner.into());
        }
        early::admit(node, rpc, &Bytes::new()).map_err(|error| early::refusal(error, needs_leader(&call.metadata)))?;
        self.admit(&call.metadata)?;
        let begin = begin(rpc).ok_or_else(|| Status::new(Code::Internal, "a unary method was called as a stream"))?;
        let span = node.tracer.as_ref().and_then(|tracer| tracing::stream(tracer, path, &call));
        let handler = leaderless::guard(node, call, |call| token_wait::hold(node, call, |call| begin(node, call)));
        Ok(match span {
            Some(span) => Box::new(traced::Traced::new(handler, span)),
            None => handler,
        })
    }
}

/// Passes a unary call on to its handler, again where users changed on the way.
fn permit(queue: &Arc<LockQueue>, node: &Arc<Node>, rpc: Rpc, call: Call, responder: Responder) {
    // The handlers of these two methods retry by themselves.
    let tries = matches!(rpc, Rpc::Authenticate | Rpc::Range);
    if node.store.auth().is_enabled() && !tries {
        let queue = queue.clone();
        auth_retry::serve(node, call, responder, move |node, call, responder| {
            serve(&queue, node, rpc, call, responder);
        });
    } else {
        serve(queue, node, rpc, call, responder);
    }
}

impl Service for Services {
    fn methods(&self) -> &'static [Method] {
        METHODS
    }

    fn unary(&self, method: usize, call: Call, responder: Responder) {
        let node = &self.node;
        node.metrics.count_client(&call.metadata, "unary");
        let Some((rpc, path)) = find(method) else { return responder.send(Err(no_such_method())) };
        let responder = match &node.tracer {
            Some(tracer) => tracing::unary(tracer, node.config.max_txn_ops, path, &call, responder),
            None => responder,
        };
        let Some(responder) = audited::unary(node, path, &call, responder) else { return };
        if node.status.is_learner() && !is_for_learners(rpc, &call.message) {
            return responder.send(Err(api::Error::NotSupportedForLearner.into()));
        }
        if let Err(error) = early::admit(node, rpc, &call.message) {
            return responder.send(Err(error.into()));
        }
        if let Err(status) = self.admit(&call.metadata) {
            return responder.send(Err(status));
        }
        if node.client_shares.is_none() {
            return permit(&self.lock_queue, node, rpc, call, responder);
        }
        let (queue, own) = (self.lock_queue.clone(), node.clone());
        fair::unary(node, rpc, call, responder, move |call, responder| permit(&queue, &own, rpc, call, responder));
    }

    fn stream(&self, method: usize, call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        self.node.metrics.count_client(&call.metadata, "stream");
        let node = &self.node;
        let (rpc, path) = find(method).ok_or_else(no_such_method)?;
        let record = audited::stream(node, path, &call);
        match self.begin_stream(rpc, path, call) {
            Ok(inner) => Ok(match record {
                Some(stream) => Box::new(audited::Audited { inner, stream }),
                None => inner,
            }),
            Err(status) => {
                if let Some(record) = record {
                    record.refused(status.code);
                }
                Err(status)
            }
        }
    }

    fn http(&self, request: ::http::Request<Bytes>, responder: HttpResponder) {
        // The upgrade cannot fail while `self` is borrowed.
        let Some(own) = self.own.upgrade() else { return };
        self.http.handle(own, self.stats.get(), request, responder);
    }

    fn takes_pieces(&self, head: &::http::request::Parts) -> bool {
        self.http.takes_pieces(head)
    }

    fn http_in_pieces(&self, request: ::http::Request<RequestBody>, responder: HttpResponder) {
        let Some(own) = self.own.upgrade() else { return };
        self.http.handle_pieces(own, request, responder);
    }

    fn sent(&self, answers: u64, took: Duration) {
        self.node.metrics.stages.send.observe_many(took, answers);
    }

    fn is_short_of_memory(&self, client: Address) -> bool {
        self.node.budget.is_waited_for(client)
    }

    fn turned_away(&self, why: &dyn fmt::Display) {
        self.door.turned_away(why);
    }
}
