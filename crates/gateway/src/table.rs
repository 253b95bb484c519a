//! The table of paths and methods. A row whose method the server does not have is not found.

use api::schema::Message;
use rpc::{Kind, Method};
use std::collections::HashMap;

/// Path, method, and the names of its messages.
type Row = (&'static str, &'static str, &'static str, &'static str);

macro_rules! rows {
    ($($package:literal $service:literal { $($path:literal $method:literal $request:literal $response:literal)* })*) => {
        const ROWS: &[Row] = &[$($((
            concat!("/v3/", $path),
            concat!("/", $package, ".", $service, "/", $method),
            concat!($package, ".", $request),
            concat!($package, ".", $response),
        ),)*)*];
    };
}

rows! {
    "etcdserverpb" "KV" {
        "kv/range" "Range" "RangeRequest" "RangeResponse"
        "kv/put" "Put" "PutRequest" "PutResponse"
        "kv/deleterange" "DeleteRange" "DeleteRangeRequest" "DeleteRangeResponse"
        "kv/txn" "Txn" "TxnRequest" "TxnResponse"
        "kv/compaction" "Compact" "CompactionRequest" "CompactionResponse"
    }
    "etcdserverpb" "Watch" {
        "watch" "Watch" "WatchRequest" "WatchResponse"
    }
    "etcdserverpb" "Lease" {
        "lease/grant" "LeaseGrant" "LeaseGrantRequest" "LeaseGrantResponse"
        "lease/revoke" "LeaseRevoke" "LeaseRevokeRequest" "LeaseRevokeResponse"
        "kv/lease/revoke" "LeaseRevoke" "LeaseRevokeRequest" "LeaseRevokeResponse"
        "lease/keepalive" "LeaseKeepAlive" "LeaseKeepAliveRequest" "LeaseKeepAliveResponse"
        "lease/timetolive" "LeaseTimeToLive" "LeaseTimeToLiveRequest" "LeaseTimeToLiveResponse"
        "kv/lease/timetolive" "LeaseTimeToLive" "LeaseTimeToLiveRequest" "LeaseTimeToLiveResponse"
        "lease/leases" "LeaseLeases" "LeaseLeasesRequest" "LeaseLeasesResponse"
        "kv/lease/leases" "LeaseLeases" "LeaseLeasesRequest" "LeaseLeasesResponse"
    }
    "etcdserverpb" "Cluster" {
        "cluster/member/add" "MemberAdd" "MemberAddRequest" "MemberAddResponse"
        "cluster/member/remove" "MemberRemove" "MemberRemoveRequest" "MemberRemoveResponse"
        "cluster/member/update" "MemberUpdate" "MemberUpdateRequest" "MemberUpdateResponse"
        "cluster/member/list" "MemberList" "MemberListRequest" "MemberListResponse"
        "cluster/member/promote" "MemberPromote" "MemberPromoteRequest" "MemberPromoteResponse"
    }
    "etcdserverpb" "Maintenance" {
        "maintenance/alarm" "Alarm" "AlarmRequest" "AlarmResponse"
        "maintenance/status" "Status" "StatusRequest" "StatusResponse"
        "maintenance/defragment" "Defragment" "DefragmentRequest" "DefragmentResponse"
        "maintenance/hash" "Hash" "HashRequest" "HashResponse"
        "maintenance/hashkv" "HashKV" "HashKVRequest" "HashKVResponse"
        "maintenance/snapshot" "Snapshot" "SnapshotRequest" "SnapshotResponse"
        "maintenance/transfer-leadership" "MoveLeader" "MoveLeaderRequest" "MoveLeaderResponse"
        "maintenance/downgrade" "Downgrade" "DowngradeRequest" "DowngradeResponse"
    }
    "etcdserverpb" "Auth" {
        "auth/enable" "AuthEnable" "AuthEnableRequest" "AuthEnableResponse"
        "auth/disable" "AuthDisable" "AuthDisableRequest" "AuthDisableResponse"
        "auth/status" "AuthStatus" "AuthStatusRequest" "AuthStatusResponse"
        "auth/authenticate" "Authenticate" "AuthenticateRequest" "AuthenticateResponse"
        "auth/user/add" "UserAdd" "AuthUserAddRequest" "AuthUserAddResponse"
        "auth/user/get" "UserGet" "AuthUserGetRequest" "AuthUserGetResponse"
        "auth/user/list" "UserList" "AuthUserListRequest" "AuthUserListResponse"
        "auth/user/delete" "UserDelete" "AuthUserDeleteRequest" "AuthUserDeleteResponse"
        "auth/user/changepw" "UserChangePassword" "AuthUserChangePasswordRequest" "AuthUserChangePasswordResponse"
        "auth/user/grant" "UserGrantRole" "AuthUserGrantRoleRequest" "AuthUserGrantRoleResponse"
        "auth/user/revoke" "UserRevokeRole" "AuthUserRevokeRoleRequest" "AuthUserRevokeRoleResponse"
        "auth/role/add" "RoleAdd" "AuthRoleAddRequest" "AuthRoleAddResponse"
        "auth/role/get" "RoleGet" "AuthRoleGetRequest" "AuthRoleGetResponse"
        "auth/role/list" "RoleList" "AuthRoleListRequest" "AuthRoleListResponse"
        "auth/role/delete" "RoleDelete" "AuthRoleDeleteRequest" "AuthRoleDeleteResponse"
        "auth/role/grant" "RoleGrantPermission" "AuthRoleGrantPermissionRequest" "AuthRoleGrantPermissionResponse"
        "auth/role/revoke" "RoleRevokePermission" "AuthRoleRevokePermissionRequest" "AuthRoleRevokePermissionResponse"
    }
    "v3electionpb" "Election" {
        "election/campaign" "Campaign" "CampaignRequest" "CampaignResponse"
        "election/proclaim" "Proclaim" "ProclaimRequest" "ProclaimResponse"
        "election/leader" "Leader" "LeaderRequest" "LeaderResponse"
        "election/observe" "Observe" "LeaderRequest" "LeaderResponse"
        "election/resign" "Resign" "ResignRequest" "ResignResponse"
    }
    "v3lockpb" "Lock" {
        "lock/lock" "Lock" "LockRequest" "LockResponse"
        "lock/unlock" "Unlock" "UnlockRequest" "UnlockResponse"
    }
}

/// The paths of a method, each with what a request is made of.
pub fn rows_of(method: &str) -> impl Iterator<Item = (&'static str, Option<&'static Message>)> {
    ROWS.iter().filter(move |row| row.1 == method).map(|row| (row.0, Message::find(row.2)))
}

/// What stands after a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Index of the method.
    pub method: usize,
    pub kind: Kind,
    pub request: &'static Message,
    pub response: &'static Message,
}

/// The paths of a table of methods.
#[derive(Debug)]
pub(crate) struct Table {
    paths: HashMap<&'static str, Target>,
}

impl Table {
    pub(crate) fn new(methods: &[Method]) -> Table {
        let mut paths = HashMap::new();
        for &(path, method, request, response) in ROWS {
            let found = methods.iter().enumerate().find(|(_, row)| row.path == method);
            let Some((index, row)) = found else { continue };
            let (Some(request), Some(response)) = (Message::find(request), Message::find(response)) else {
                panic!("the messages of `{method}` are not in the schema");
            };
            paths.insert(path, Target { method: index, kind: row.kind, request, response });
        }
        Table { paths }
    }

    pub(crate) fn find(&self, path: &str) -> Option<Target> {
        self.paths.get(path).copied()
    }
}

#[cfg(test)]
impl Table {
    /// The paths of one method.
    pub(crate) fn of(path: &'static str, kind: Kind) -> Table {
        Table::new(&[Method { path, kind }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_messages_are_known() {
        for (_, method, request, response) in ROWS {
            assert!(Message::find(request).is_some() && Message::find(response).is_some(), "{method}");
        }
    }

    #[test]
    fn paths_are_those_of_the_methods_there_are() {
        let methods: Vec<Method> = ["Range", "Lease/LeaseLeases", "/etcdserverpb.Lease/LeaseLeases"]
            .map(|path| Method { path, kind: Kind::Unary })
            .into();
        let table = Table::new(&methods);
        for path in ["/v3/lease/leases", "/v3/kv/lease/leases"] {
            assert_eq!(table.find(path).map(|target| target.method), Some(2));
        }
        assert!(table.find("/v3/kv/range").is_none() && table.find("/v3/lease/leases/").is_none());
    }
}
