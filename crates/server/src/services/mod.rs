//! The gRPC services, from method to handler. One file per service; no generated service code.

mod cluster;
mod health;
mod kv;
mod lease;
mod maintenance;
mod reply;
mod snapshot;
mod stream;
mod watch;

pub(crate) use watch::{Progress, run_progress};

use crate::http;
use crate::node::Node;
use api::Code;
use bytes::Bytes;
use rpc::{Call, HttpResponder, Kind, Method, Responder, Service, Status, StreamCall, StreamHandler};
use std::sync::{Arc, OnceLock};

macro_rules! methods {
    ($($name:ident $kind:ident $path:literal)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Rpc { $($name,)* }

        const RPCS: &[Rpc] = &[$(Rpc::$name,)*];
        /// Every method, in the order the transport counts them.
        pub(crate) const METHODS: &[Method] = &[$(Method { path: $path, kind: Kind::$kind },)*];
    };
}

methods! {
    Range Unary "/etcdserverpb.KV/Range"
    RangeStream ServerStream "/etcdserverpb.KV/RangeStream"
    Put Unary "/etcdserverpb.KV/Put"
    DeleteRange Unary "/etcdserverpb.KV/DeleteRange"
    Txn Unary "/etcdserverpb.KV/Txn"
    Compact Unary "/etcdserverpb.KV/Compact"
    Watch Bidi "/etcdserverpb.Watch/Watch"
    LeaseGrant Unary "/etcdserverpb.Lease/LeaseGrant"
    LeaseRevoke Unary "/etcdserverpb.Lease/LeaseRevoke"
    LeaseKeepAlive Bidi "/etcdserverpb.Lease/LeaseKeepAlive"
    LeaseTimeToLive Unary "/etcdserverpb.Lease/LeaseTimeToLive"
    LeaseLeases Unary "/etcdserverpb.Lease/LeaseLeases"
    MemberList Unary "/etcdserverpb.Cluster/MemberList"
    Alarm Unary "/etcdserverpb.Maintenance/Alarm"
    Status Unary "/etcdserverpb.Maintenance/Status"
    Defragment Unary "/etcdserverpb.Maintenance/Defragment"
    Hash Unary "/etcdserverpb.Maintenance/Hash"
    HashKv Unary "/etcdserverpb.Maintenance/HashKV"
    Snapshot ServerStream "/etcdserverpb.Maintenance/Snapshot"
    HealthCheck Unary "/grpc.health.v1.Health/Check"
    HealthList Unary "/grpc.health.v1.Health/List"
    HealthWatch ServerStream "/grpc.health.v1.Health/Watch"
}

/// Everything the client port answers.
pub(crate) struct Services {
    node: Arc<Node>,
    stats: OnceLock<Arc<rpc::Stats>>,
}

impl Services {
    pub(crate) fn new(node: Arc<Node>) -> Services {
        Services { node, stats: OnceLock::new() }
    }

    /// The transport's counters, known once it runs.
    pub(crate) fn set_stats(&self, stats: Arc<rpc::Stats>) {
        // Set once, by whoever started the transport.
        let _ = self.stats.set(stats);
    }

    /// Metadata that decides before any service does.
    fn admit(&self, metadata: &rpc::Metadata) -> Result<(), Status> {
        if metadata.get("client-api-version").is_some_and(|version| std::str::from_utf8(version).is_err()) {
            return Err(api::Error::InvalidClientApiVersion.into());
        }
        let needs_leader = metadata.get("hasleader").is_some_and(|value| value == b"true");
        if needs_leader && self.node.status.leader() == 0 {
            return Err(api::Error::NoLeader.into());
        }
        Ok(())
    }
}

impl Service for Services {
    fn methods(&self) -> &'static [Method] {
        METHODS
    }

    fn unary(&self, method: usize, call: Call, responder: Responder) {
        let node = &self.node;
        node.metrics.count_client(&call.metadata, "unary");
        if let Err(status) = self.admit(&call.metadata) {
            return responder.send(Err(status));
        }
        match RPCS[method] {
            Rpc::Range => kv::range(node, call, responder),
            Rpc::Put => kv::put(node, call, responder),
            Rpc::DeleteRange => kv::delete_range(node, call, responder),
            Rpc::Txn => kv::txn(node, call, responder),
            Rpc::Compact => kv::compact(node, call, responder),
            Rpc::LeaseGrant => lease::grant(node, call, responder),
            Rpc::LeaseRevoke => lease::revoke(node, call, responder),
            Rpc::LeaseTimeToLive => lease::time_to_live(node, call, responder),
            Rpc::LeaseLeases => lease::leases(node, call, responder),
            Rpc::MemberList => cluster::member_list(node, call, responder),
            Rpc::Alarm => maintenance::alarm(node, call, responder),
            Rpc::Status => maintenance::status(node, call, responder),
            Rpc::Defragment => maintenance::defragment(node, responder),
            Rpc::Hash => maintenance::hash(node, responder),
            Rpc::HashKv => maintenance::hash_kv(node, call, responder),
            Rpc::HealthCheck => health::check(call, responder),
            Rpc::HealthList => health::list(responder),
            Rpc::RangeStream | Rpc::Watch | Rpc::LeaseKeepAlive | Rpc::Snapshot | Rpc::HealthWatch => {
                responder.send(Err(Status::new(Code::Internal, "a stream was called as a unary method")));
            }
        }
    }

    fn stream(&self, method: usize, call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        self.node.metrics.count_client(&call.metadata, "stream");
        self.admit(&call.metadata)?;
        match RPCS[method] {
            Rpc::Watch => Ok(Box::new(watch::Watch::new(&self.node, call))),
            Rpc::LeaseKeepAlive => Ok(Box::new(lease::KeepAlive::new(&self.node, call))),
            Rpc::RangeStream => Ok(Box::new(stream::RangeStream::new(&self.node, call))),
            Rpc::Snapshot => Ok(Box::new(snapshot::Snapshot::new(&self.node, call))),
            Rpc::HealthWatch => Ok(Box::new(health::Watch)),
            _ => Err(Status::new(Code::Internal, "a unary method was called as a stream")),
        }
    }

    fn http(&self, request: ::http::Request<Bytes>, responder: HttpResponder) {
        http::handle(&self.node, self.stats.get(), request, responder);
    }
}
