//! The methods that the proxy serves, and what it does with each.

use rpc::{Kind, Method};

/// How a method is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Passed on as it is, and asked again elsewhere if a member is unavailable.
    Read,
    /// Passed on as it is, once.
    Write,
    /// The same, with keys in the namespace.
    KeysRead,
    /// The same for what changes keys.
    KeysWrite,
    /// All messages are passed on, both ways.
    Stream,
    /// The same, with keys in the namespace.
    KeysStream,
    /// The proxy itself answers: clients that look for members shall find it.
    Members,
    /// Watches, which are shared.
    Watch,
    /// Keep-alives of leases, which share a stream.
    KeepAlive,
}

macro_rules! methods {
    ($($kind:ident $way:ident $path:literal;)*) => {
        /// Every method; the transport refers to a method by its index here.
        pub(crate) const METHODS: &[Method] = &[$(Method { path: $path, kind: Kind::$kind },)*];
        /// How each is served.
        pub(crate) const WAYS: &[Way] = &[$(Way::$way,)*];
    };
}

methods! {
    Unary KeysRead "/etcdserverpb.KV/Range";
    ServerStream KeysStream "/etcdserverpb.KV/RangeStream";
    Unary KeysWrite "/etcdserverpb.KV/Put";
    Unary KeysWrite "/etcdserverpb.KV/DeleteRange";
    Unary KeysWrite "/etcdserverpb.KV/Txn";
    Unary Write "/etcdserverpb.KV/Compact";
    Bidi Watch "/etcdserverpb.Watch/Watch";
    Unary Write "/etcdserverpb.Lease/LeaseGrant";
    Unary Write "/etcdserverpb.Lease/LeaseRevoke";
    Bidi KeepAlive "/etcdserverpb.Lease/LeaseKeepAlive";
    Unary KeysRead "/etcdserverpb.Lease/LeaseTimeToLive";
    Unary Read "/etcdserverpb.Lease/LeaseLeases";
    Unary Write "/etcdserverpb.Cluster/MemberAdd";
    Unary Write "/etcdserverpb.Cluster/MemberRemove";
    Unary Write "/etcdserverpb.Cluster/MemberUpdate";
    Unary Members "/etcdserverpb.Cluster/MemberList";
    Unary Write "/etcdserverpb.Cluster/MemberPromote";
    Unary Write "/etcdserverpb.Maintenance/Alarm";
    Unary Read "/etcdserverpb.Maintenance/Status";
    Unary Write "/etcdserverpb.Maintenance/Defragment";
    Unary Read "/etcdserverpb.Maintenance/Hash";
    Unary Read "/etcdserverpb.Maintenance/HashKV";
    ServerStream Stream "/etcdserverpb.Maintenance/Snapshot";
    Unary Write "/etcdserverpb.Maintenance/MoveLeader";
    Unary Write "/etcdserverpb.Maintenance/Downgrade";
    Unary Write "/etcdserverpb.Auth/AuthEnable";
    Unary Write "/etcdserverpb.Auth/AuthDisable";
    Unary Read "/etcdserverpb.Auth/AuthStatus";
    Unary Read "/etcdserverpb.Auth/Authenticate";
    Unary Write "/etcdserverpb.Auth/UserAdd";
    Unary Read "/etcdserverpb.Auth/UserGet";
    Unary Read "/etcdserverpb.Auth/UserList";
    Unary Write "/etcdserverpb.Auth/UserDelete";
    Unary Write "/etcdserverpb.Auth/UserChangePassword";
    Unary Write "/etcdserverpb.Auth/UserGrantRole";
    Unary Write "/etcdserverpb.Auth/UserRevokeRole";
    Unary Write "/etcdserverpb.Auth/RoleAdd";
    Unary Read "/etcdserverpb.Auth/RoleGet";
    Unary Read "/etcdserverpb.Auth/RoleList";
    Unary Write "/etcdserverpb.Auth/RoleDelete";
    Unary Write "/etcdserverpb.Auth/RoleGrantPermission";
    Unary Write "/etcdserverpb.Auth/RoleRevokePermission";
    Unary Write "/v3lockpb.Lock/Lock";
    Unary Write "/v3lockpb.Lock/Unlock";
    Unary Write "/v3electionpb.Election/Campaign";
    Unary Write "/v3electionpb.Election/Proclaim";
    Unary Read "/v3electionpb.Election/Leader";
    ServerStream Stream "/v3electionpb.Election/Observe";
    Unary Write "/v3electionpb.Election/Resign";
}
