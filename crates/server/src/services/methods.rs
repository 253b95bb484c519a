//! The methods of all services: how many messages they have, who may call them, and what answers.

use super::lock_queue::LockQueue;
use super::{
    archive, auth, cluster, downgrade, election, health, kv, lease, lock, maintenance, observe, snapshot, stream, watch,
};
use crate::auth::rules::{Alarms, Anyone, Keys, Open, Own, Parts, Root, User};
use crate::auth::{Handler, Opens};
use crate::node::Node;
use api::Code;
use api::etcdserverpb::{
    AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleDeleteRequest, AuthRoleRevokePermissionRequest,
    AuthUserDeleteRequest, AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest,
};
use rpc::{Call, Kind, Method, Responder, Status, StreamCall, StreamHandler};
use std::sync::Arc;

/// Begins a stream.
pub(super) type Begin = fn(&Arc<Node>, StreamCall) -> Box<dyn StreamHandler>;

macro_rules! methods {
    ($($name:ident $kind:ident $path:literal $rule:ident $handler:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Rpc { $($name,)* }

        pub(super) const RPCS: &[Rpc] = &[$(Rpc::$name,)*];
        /// Every method; the transport refers to a method by its index here.
        pub(crate) const METHODS: &[Method] = &[$(Method { path: $path, kind: Kind::$kind },)*];
        /// The name of each method's rule.
        #[cfg(test)]
        pub(super) const RULES: &[&str] = &[$(stringify!($rule),)*];

        /// Passes a unary call to its handler, through the method's rule.
        pub(super) fn serve(
            queue: &Arc<LockQueue>,
            node: &Arc<Node>,
            rpc: Rpc,
            call: Call,
            responder: Responder,
        ) {
            match rpc {
                $(Rpc::$name => methods!(@serve $kind $rule $handler, queue, node, call, responder),)*
            }
        }

        /// The function that begins a stream of a method, through the method's rule; `None` if the method is unary.
        pub(super) fn begin(rpc: Rpc) -> Option<Begin> {
            match rpc {
                $(Rpc::$name => methods!(@begin $kind $rule $handler),)*
            }
        }
    };
    (@serve Unary $rule:ident $handler:expr, $queue:ident, $node:ident, $call:ident, $responder:ident) => {
        Handler::<_, $rule, _>::serve($handler, $queue, $node, $call, $responder)
    };
    (@serve $kind:ident $rule:ident $handler:expr, $queue:ident, $node:ident, $call:ident, $responder:ident) => {
        $responder.send(Err(Status::new(Code::Internal, "a stream was called as a unary method")))
    };
    (@begin Unary $rule:ident $handler:expr) => {
        None
    };
    (@begin $kind:ident $rule:ident $handler:expr) => {
        Some(|node, call| Opens::<$rule, _>::open($handler, node, call))
    };
}

methods! {
    Range Unary "/etcdserverpb.KV/Range" Keys kv::range;
    RangeStream ServerStream "/etcdserverpb.KV/RangeStream" Keys stream::RangeStream::new;
    Put Unary "/etcdserverpb.KV/Put" Keys kv::put;
    DeleteRange Unary "/etcdserverpb.KV/DeleteRange" Keys kv::delete_range;
    Txn Unary "/etcdserverpb.KV/Txn" Keys kv::txn;
    Compact Unary "/etcdserverpb.KV/Compact" Root kv::compact;
    Watch Bidi "/etcdserverpb.Watch/Watch" Keys watch::Watch::new;
    LeaseGrant Unary "/etcdserverpb.Lease/LeaseGrant" User lease::grant;
    LeaseRevoke Unary "/etcdserverpb.Lease/LeaseRevoke" Keys lease::revoke;
    LeaseKeepAlive Bidi "/etcdserverpb.Lease/LeaseKeepAlive" Keys lease::KeepAlive::new;
    LeaseTimeToLive Unary "/etcdserverpb.Lease/LeaseTimeToLive" Keys lease::time_to_live;
    LeaseLeases Unary "/etcdserverpb.Lease/LeaseLeases" Keys lease::leases;
    MemberAdd Unary "/etcdserverpb.Cluster/MemberAdd" Root cluster::member_add;
    MemberRemove Unary "/etcdserverpb.Cluster/MemberRemove" Root cluster::member_remove;
    MemberUpdate Unary "/etcdserverpb.Cluster/MemberUpdate" Root cluster::member_update;
    MemberList Unary "/etcdserverpb.Cluster/MemberList" User cluster::member_list;
    MemberPromote Unary "/etcdserverpb.Cluster/MemberPromote" Root cluster::member_promote;
    Alarm Unary "/etcdserverpb.Maintenance/Alarm" Alarms maintenance::alarm;
    Status Unary "/etcdserverpb.Maintenance/Status" User maintenance::status;
    Defragment Unary "/etcdserverpb.Maintenance/Defragment" Root maintenance::defragment;
    Hash Unary "/etcdserverpb.Maintenance/Hash" Root maintenance::hash;
    HashKv Unary "/etcdserverpb.Maintenance/HashKV" Root maintenance::hash_kv;
    Snapshot ServerStream "/etcdserverpb.Maintenance/Snapshot" Root snapshot::Snapshot::begin;
    MoveLeader Unary "/etcdserverpb.Maintenance/MoveLeader" Root maintenance::move_leader;
    Downgrade Unary "/etcdserverpb.Maintenance/Downgrade" Root downgrade::downgrade;
    AuthEnable Unary "/etcdserverpb.Auth/AuthEnable" Root auth::change::<AuthEnableRequest>;
    AuthDisable Unary "/etcdserverpb.Auth/AuthDisable" Root auth::change::<AuthDisableRequest>;
    AuthStatus Unary "/etcdserverpb.Auth/AuthStatus" Anyone auth::status;
    Authenticate Unary "/etcdserverpb.Auth/Authenticate" Open auth::authenticate;
    UserAdd Unary "/etcdserverpb.Auth/UserAdd" Root auth::user_add;
    UserGet Unary "/etcdserverpb.Auth/UserGet" Own auth::user_get;
    UserList Unary "/etcdserverpb.Auth/UserList" Root auth::user_list;
    UserDelete Unary "/etcdserverpb.Auth/UserDelete" Root auth::change::<AuthUserDeleteRequest>;
    UserChangePassword Unary "/etcdserverpb.Auth/UserChangePassword" Root auth::user_change_password;
    UserGrantRole Unary "/etcdserverpb.Auth/UserGrantRole" Root auth::change::<AuthUserGrantRoleRequest>;
    UserRevokeRole Unary "/etcdserverpb.Auth/UserRevokeRole" Root auth::change::<AuthUserRevokeRoleRequest>;
    RoleAdd Unary "/etcdserverpb.Auth/RoleAdd" Root auth::change::<AuthRoleAddRequest>;
    RoleGet Unary "/etcdserverpb.Auth/RoleGet" Own auth::role_get;
    RoleList Unary "/etcdserverpb.Auth/RoleList" Root auth::role_list;
    RoleDelete Unary "/etcdserverpb.Auth/RoleDelete" Root auth::change::<AuthRoleDeleteRequest>;
    RoleGrantPermission Unary "/etcdserverpb.Auth/RoleGrantPermission" Root auth::role_grant_permission;
    RoleRevokePermission Unary "/etcdserverpb.Auth/RoleRevokePermission" Root auth::change::<AuthRoleRevokePermissionRequest>;
    Lock Unary "/v3lockpb.Lock/Lock" Parts lock::lock;
    Unlock Unary "/v3lockpb.Lock/Unlock" Parts lock::unlock;
    Campaign Unary "/v3electionpb.Election/Campaign" Parts election::campaign;
    Proclaim Unary "/v3electionpb.Election/Proclaim" Parts election::proclaim;
    Leader Unary "/v3electionpb.Election/Leader" Parts election::leader;
    Observe ServerStream "/v3electionpb.Election/Observe" Parts observe::Observe::new;
    Resign Unary "/v3electionpb.Election/Resign" Parts election::resign;
    Entries Unary "/cairnpb.Archive/Entries" Root archive::entries;
    HealthCheck Unary "/grpc.health.v1.Health/Check" Open health::check;
    HealthList Unary "/grpc.health.v1.Health/List" Open health::list;
    HealthWatch ServerStream "/grpc.health.v1.Health/Watch" Open health::Watch::new;
}

/// The method with this index, and its path.
pub(super) fn find(method: usize) -> Option<(Rpc, &'static str)> {
    RPCS.get(method).copied().zip(METHODS.get(method).map(|method| method.path))
}
