//! The methods of all services.

use rpc::{Kind, Method};

macro_rules! methods {
    ($($name:ident $kind:ident $path:literal)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Rpc { $($name,)* }

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
pub(super) fn find(method: usize) -> Option<(Rpc, &'static str)> {
    RPCS.get(method).copied().zip(METHODS.get(method).map(|method| method.path))
}
