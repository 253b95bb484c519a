//! The gRPC services, from method to handler. One file per service; no generated service code.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod again;
mod arrival;
mod auth;
mod caller;
mod cluster;
mod downgrade;
mod election;
mod health;
mod kv;
mod leaderless;
mod lease;
mod lock;
mod maintenance;
mod observe;
mod reply;
mod shares;
mod snapshot;
mod stream;
#[cfg(test)]
mod tests;
mod traced;
mod turns;
mod watch;
mod within;

pub(crate) use shares::Shares;
pub(crate) use turns::{Turns, run as run_turns};
pub(crate) use watch::{Progress, run_progress};

use crate::door::Door;
use crate::http::Http;
use crate::node::Node;
use crate::node::{
    AUTH_DISABLE, AUTH_ENABLE, AUTH_ROLE_ADD, AUTH_ROLE_DELETE, AUTH_ROLE_GRANT_PERMISSION,
    AUTH_ROLE_REVOKE_PERMISSION, AUTH_USER_DELETE, AUTH_USER_GRANT_ROLE, AUTH_USER_REVOKE_ROLE,
};
use crate::tracing;
use api::Code;
use api::etcdserverpb::{
    AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleDeleteRequest, AuthRoleGrantPermissionRequest,
    AuthRoleRevokePermissionRequest, AuthUserDeleteRequest, AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest,
    RangeRequest,
};
use api::unread;
use bytes::Bytes;
use rpc::{Call, HttpResponder, Kind, Method, RequestBody, Responder, Service, Status, StreamCall, StreamHandler};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

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
    MemberAdd Unary "/etcdserverpb.Cluster/MemberAdd"
    MemberRemove Unary "/etcdserverpb.Cluster/MemberRemove"
    MemberUpdate Unary "/etcdserverpb.Cluster/MemberUpdate"
    MemberList Unary "/etcdserverpb.Cluster/MemberList"
    MemberPromote Unary "/etcdserverpb.Cluster/MemberPromote"
    Alarm Unary "/etcdserverpb.Maintenance/Alarm"
    Status Unary "/etcdserverpb.Maintenance/Status"
    Defragment Unary "/etcdserverpb.Maintenance/Defragment"
    Hash Unary "/etcdserverpb.Maintenance/Hash"
    HashKv Unary "/etcdserverpb.Maintenance/HashKV"
    Snapshot ServerStream "/etcdserverpb.Maintenance/Snapshot"
    MoveLeader Unary "/etcdserverpb.Maintenance/MoveLeader"
    Downgrade Unary "/etcdserverpb.Maintenance/Downgrade"
    AuthEnable Unary "/etcdserverpb.Auth/AuthEnable"
    AuthDisable Unary "/etcdserverpb.Auth/AuthDisable"
    AuthStatus Unary "/etcdserverpb.Auth/AuthStatus"
    Authenticate Unary "/etcdserverpb.Auth/Authenticate"
    UserAdd Unary "/etcdserverpb.Auth/UserAdd"
    UserGet Unary "/etcdserverpb.Auth/UserGet"
    UserList Unary "/etcdserverpb.Auth/UserList"
    UserDelete Unary "/etcdserverpb.Auth/UserDelete"
    UserChangePassword Unary "/etcdserverpb.Auth/UserChangePassword"
    UserGrantRole Unary "/etcdserverpb.Auth/UserGrantRole"
    UserRevokeRole Unary "/etcdserverpb.Auth/UserRevokeRole"
    RoleAdd Unary "/etcdserverpb.Auth/RoleAdd"
    RoleGet Unary "/etcdserverpb.Auth/RoleGet"
    RoleList Unary "/etcdserverpb.Auth/RoleList"
    RoleDelete Unary "/etcdserverpb.Auth/RoleDelete"
    RoleGrantPermission Unary "/etcdserverpb.Auth/RoleGrantPermission"
    RoleRevokePermission Unary "/etcdserverpb.Auth/RoleRevokePermission"
    Lock Unary "/v3lockpb.Lock/Lock"
    Unlock Unary "/v3lockpb.Lock/Unlock"
    Campaign Unary "/v3electionpb.Election/Campaign"
    Proclaim Unary "/v3electionpb.Election/Proclaim"
    Leader Unary "/v3electionpb.Election/Leader"
    Observe ServerStream "/v3electionpb.Election/Observe"
    Resign Unary "/v3electionpb.Election/Resign"
    HealthCheck Unary "/grpc.health.v1.Health/Check"
    HealthList Unary "/grpc.health.v1.Health/List"
    HealthWatch ServerStream "/grpc.health.v1.Health/Watch"
}

/// The method with this index, and its path.
fn find(method: usize) -> Option<(Rpc, &'static str)> {
    RPCS.get(method).copied().zip(METHODS.get(method).map(|method| method.path))
}

/// An index that is not in the table: a bug here, since the transport takes its indexes from it.
fn no_such_method() -> Status {
    Status::new(Code::Internal, "there is no such method")
}

/// Whether a client wants to be refused by a member that knows of no leader.
fn needs_leader(metadata: &rpc::Metadata) -> bool {
    metadata.get("hasleader").is_some_and(|value| value == b"true")
}

/// Whether a learner answers this call: what its operator needs, and reads that may be old.
fn is_for_learners(rpc: Rpc, message: &Bytes) -> bool {
    match rpc {
        Rpc::Status | Rpc::Snapshot | Rpc::HealthCheck | Rpc::HealthList => true,
        Rpc::Range => unread::decode::<RangeRequest>(message.clone()).is_ok_and(|request| request.serializable),
        _ => false,
    }
}

/// Everything the client port answers.
pub(crate) struct Services {
    /// Itself, for calls that come by HTTP.
    own: Weak<Services>,
    http: Http,
    node: Arc<Node>,
    stats: OnceLock<Arc<rpc::Stats>>,
    door: Door,
}

impl Services {
    pub(crate) fn new(node: Arc<Node>) -> Arc<Services> {
        let (http, door) = (Http::new(node.clone()), Door::default());
        Arc::new_cyclic(|own| Services { own: own.clone(), http, node, stats: OnceLock::new(), door })
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
        if needs_leader(metadata) && self.node.status.leader() == 0 {
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
        let Some((rpc, path)) = find(method) else { return responder.send(Err(no_such_method())) };
        let responder = match &node.tracer {
            Some(tracer) => tracing::unary(tracer, path, &call, responder),
            None => responder,
        };
        if node.status.is_learner() && !is_for_learners(rpc, &call.message) {
            return responder.send(Err(api::Error::NotSupportedForLearner.into()));
        }
        if let Err(status) = self.admit(&call.metadata) {
            return responder.send(Err(status));
        }
        // These two try again by themselves.
        let tries = matches!(rpc, Rpc::Authenticate | Rpc::Range);
        if node.store.auth().is_enabled() && !tries {
            again::serve(node, rpc, call, responder);
        } else {
            serve(node, rpc, call, responder);
        }
    }

    fn stream(&self, method: usize, call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        self.node.metrics.count_client(&call.metadata, "stream");
        let node = &self.node;
        let (rpc, path) = find(method).ok_or_else(no_such_method)?;
        if node.status.is_learner() && !is_for_learners(rpc, &Bytes::new()) {
            return Err(api::Error::NotSupportedForLearner.into());
        }
        self.admit(&call.metadata)?;
        let make: fn(&Arc<Node>, StreamCall) -> Box<dyn StreamHandler> = match rpc {
            Rpc::Watch => |node, call| Box::new(watch::Watch::new(node, call)),
            Rpc::LeaseKeepAlive => |node, call| Box::new(lease::KeepAlive::new(node, call)),
            Rpc::RangeStream => |node, call| Box::new(stream::RangeStream::new(node, call)),
            Rpc::Snapshot => |node, call| Box::new(snapshot::Snapshot::new(node, call)),
            Rpc::Observe => |node, call| Box::new(observe::Observe::new(node, call)),
            Rpc::HealthWatch => |_, _| Box::new(health::Watch),
            _ => return Err(Status::new(Code::Internal, "a unary method was called as a stream")),
        };
        let span = node.tracer.as_ref().and_then(|tracer| tracing::stream(tracer, path, &call));
        let handler = leaderless::guard(node, call, |call| arrival::hold(node, call, |call| make(node, call)));
        Ok(match span {
            Some(span) => Box::new(traced::Traced::new(handler, span)),
            None => handler,
        })
    }

    fn http(&self, request: ::http::Request<Bytes>, responder: HttpResponder) {
        // It is called, so it is there.
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

    fn turned_away(&self, why: &dyn fmt::Display) {
        self.door.turned_away(why);
    }
}

/// Answers a unary call.
fn serve(node: &Arc<Node>, rpc: Rpc, call: Call, responder: Responder) {
    match rpc {
        Rpc::Range => kv::range(node, call, responder),
        Rpc::Put => kv::put(node, call, responder),
        Rpc::DeleteRange => kv::delete_range(node, call, responder),
        Rpc::Txn => kv::txn(node, call, responder),
        Rpc::Compact => kv::compact(node, call, responder),
        Rpc::LeaseGrant => lease::grant(node, call, responder),
        Rpc::LeaseRevoke => lease::revoke(node, call, responder),
        Rpc::LeaseTimeToLive => lease::time_to_live(node, call, responder),
        Rpc::LeaseLeases => lease::leases(node, call, responder),
        Rpc::MemberAdd => cluster::member_add(node, call, responder),
        Rpc::MemberRemove => cluster::member_remove(node, call, responder),
        Rpc::MemberUpdate => cluster::member_update(node, call, responder),
        Rpc::MemberList => cluster::member_list(node, call, responder),
        Rpc::MemberPromote => cluster::member_promote(node, call, responder),
        Rpc::Alarm => maintenance::alarm(node, call, responder),
        Rpc::Status => maintenance::status(node, call, responder),
        Rpc::Defragment => maintenance::defragment(node, call, responder),
        Rpc::Hash => maintenance::hash(node, call, responder),
        Rpc::HashKv => maintenance::hash_kv(node, call, responder),
        Rpc::MoveLeader => maintenance::move_leader(node, call, responder),
        Rpc::Downgrade => downgrade::downgrade(node, call, responder),
        Rpc::AuthEnable => auth::change::<AuthEnableRequest>(node, call, AUTH_ENABLE, responder),
        Rpc::AuthDisable => auth::change::<AuthDisableRequest>(node, call, AUTH_DISABLE, responder),
        Rpc::AuthStatus => auth::status(node, call, responder),
        Rpc::Authenticate => auth::authenticate(node, call, responder),
        Rpc::UserAdd => auth::user_add(node, call, responder),
        Rpc::UserGet => auth::user_get(node, call, responder),
        Rpc::UserList => auth::user_list(node, call, responder),
        Rpc::UserDelete => auth::change::<AuthUserDeleteRequest>(node, call, AUTH_USER_DELETE, responder),
        Rpc::UserChangePassword => auth::user_change_password(node, call, responder),
        Rpc::UserGrantRole => auth::change::<AuthUserGrantRoleRequest>(node, call, AUTH_USER_GRANT_ROLE, responder),
        Rpc::UserRevokeRole => {
            auth::change::<AuthUserRevokeRoleRequest>(node, call, AUTH_USER_REVOKE_ROLE, responder);
        }
        Rpc::RoleAdd => auth::change::<AuthRoleAddRequest>(node, call, AUTH_ROLE_ADD, responder),
        Rpc::RoleGet => auth::role_get(node, call, responder),
        Rpc::RoleList => auth::role_list(node, call, responder),
        Rpc::RoleDelete => auth::change::<AuthRoleDeleteRequest>(node, call, AUTH_ROLE_DELETE, responder),
        Rpc::RoleGrantPermission => {
            auth::change::<AuthRoleGrantPermissionRequest>(node, call, AUTH_ROLE_GRANT_PERMISSION, responder);
        }
        Rpc::RoleRevokePermission => {
            auth::change::<AuthRoleRevokePermissionRequest>(node, call, AUTH_ROLE_REVOKE_PERMISSION, responder);
        }
        Rpc::Lock => lock::lock(node, call, responder),
        Rpc::Unlock => lock::unlock(node, call, responder),
        Rpc::Campaign => election::campaign(node, call, responder),
        Rpc::Proclaim => election::proclaim(node, call, responder),
        Rpc::Leader => election::leader(node, call, responder),
        Rpc::Resign => election::resign(node, call, responder),
        Rpc::HealthCheck => health::check(call, responder),
        Rpc::HealthList => health::list(responder),
        Rpc::RangeStream | Rpc::Watch | Rpc::LeaseKeepAlive | Rpc::Snapshot | Rpc::Observe | Rpc::HealthWatch => {
            responder.send(Err(Status::new(Code::Internal, "a stream was called as a unary method")));
        }
    }
}
