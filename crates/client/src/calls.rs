//! Every method of the API that has one answer: requests and answers are its messages.

use api::cairnpb::{EntriesRequest, EntriesResponse};
use api::etcdserverpb::*;

use crate::call::to_member;
use crate::client::Client;
use crate::retry::Repeat;
use crate::{Endpoint, EndpointError, Error};

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident $request:ident $answer:ident $repeat:ident $path:literal;)*) => {
        impl Client {
            $(
                $(#[$doc])*
                pub async fn $name(&self, request: $request) -> Result<$answer, Error> {
                    self.call($path, &request, Repeat::$repeat).await
                }
            )*
        }
    };
}

calls! {
    /// Reads keys.
    range RangeRequest RangeResponse Always "/etcdserverpb.KV/Range";
    /// Writes a key.
    put PutRequest PutResponse Unsent "/etcdserverpb.KV/Put";
    /// Deletes keys.
    delete_range DeleteRangeRequest DeleteRangeResponse Unsent "/etcdserverpb.KV/DeleteRange";
    /// Compares, and does one of two lists of operations.
    txn TxnRequest TxnResponse Unsent "/etcdserverpb.KV/Txn";
    /// Drops history.
    compact CompactionRequest CompactionResponse Unsent "/etcdserverpb.KV/Compact";
    /// Makes a lease.
    lease_grant LeaseGrantRequest LeaseGrantResponse Always "/etcdserverpb.Lease/LeaseGrant";
    /// Ends a lease, and deletes the keys that hang on it.
    lease_revoke LeaseRevokeRequest LeaseRevokeResponse Always "/etcdserverpb.Lease/LeaseRevoke";
    /// What is left of a lease.
    lease_time_to_live LeaseTimeToLiveRequest LeaseTimeToLiveResponse Always "/etcdserverpb.Lease/LeaseTimeToLive";
    /// All leases.
    lease_leases LeaseLeasesRequest LeaseLeasesResponse Always "/etcdserverpb.Lease/LeaseLeases";
    /// Adds a member.
    member_add MemberAddRequest MemberAddResponse Unsent "/etcdserverpb.Cluster/MemberAdd";
    /// Removes a member.
    member_remove MemberRemoveRequest MemberRemoveResponse Unsent "/etcdserverpb.Cluster/MemberRemove";
    /// Changes a member's peer URLs.
    member_update MemberUpdateRequest MemberUpdateResponse Unsent "/etcdserverpb.Cluster/MemberUpdate";
    /// All members.
    member_list MemberListRequest MemberListResponse Always "/etcdserverpb.Cluster/MemberList";
    /// Makes a learner a voter.
    member_promote MemberPromoteRequest MemberPromoteResponse Unsent "/etcdserverpb.Cluster/MemberPromote";
    /// Alarms: asks for them, raises them, ends them.
    alarm AlarmRequest AlarmResponse Always "/etcdserverpb.Maintenance/Alarm";
    /// Hands leadership over.
    move_leader MoveLeaderRequest MoveLeaderResponse Always "/etcdserverpb.Maintenance/MoveLeader";
    /// Prepares the cluster for an older version.
    downgrade DowngradeRequest DowngradeResponse Unsent "/etcdserverpb.Maintenance/Downgrade";
    /// Turns authentication on.
    auth_enable AuthEnableRequest AuthEnableResponse Unsent "/etcdserverpb.Auth/AuthEnable";
    /// Turns authentication off.
    auth_disable AuthDisableRequest AuthDisableResponse Unsent "/etcdserverpb.Auth/AuthDisable";
    /// Whether authentication is on.
    auth_status AuthStatusRequest AuthStatusResponse Always "/etcdserverpb.Auth/AuthStatus";
    /// Adds a user.
    user_add AuthUserAddRequest AuthUserAddResponse Unsent "/etcdserverpb.Auth/UserAdd";
    /// A user's roles.
    user_get AuthUserGetRequest AuthUserGetResponse Always "/etcdserverpb.Auth/UserGet";
    /// All users.
    user_list AuthUserListRequest AuthUserListResponse Always "/etcdserverpb.Auth/UserList";
    /// Deletes a user.
    user_delete AuthUserDeleteRequest AuthUserDeleteResponse Unsent "/etcdserverpb.Auth/UserDelete";
    /// Changes a password.
    user_change_password AuthUserChangePasswordRequest AuthUserChangePasswordResponse Unsent
        "/etcdserverpb.Auth/UserChangePassword";
    /// Gives a user a role.
    user_grant_role AuthUserGrantRoleRequest AuthUserGrantRoleResponse Unsent "/etcdserverpb.Auth/UserGrantRole";
    /// Takes a role from a user.
    user_revoke_role AuthUserRevokeRoleRequest AuthUserRevokeRoleResponse Unsent "/etcdserverpb.Auth/UserRevokeRole";
    /// Adds a role.
    role_add AuthRoleAddRequest AuthRoleAddResponse Unsent "/etcdserverpb.Auth/RoleAdd";
    /// What a role permits.
    role_get AuthRoleGetRequest AuthRoleGetResponse Always "/etcdserverpb.Auth/RoleGet";
    /// All roles.
    role_list AuthRoleListRequest AuthRoleListResponse Always "/etcdserverpb.Auth/RoleList";
    /// Deletes a role.
    role_delete AuthRoleDeleteRequest AuthRoleDeleteResponse Unsent "/etcdserverpb.Auth/RoleDelete";
    /// Adds to what a role permits.
    role_grant_permission AuthRoleGrantPermissionRequest AuthRoleGrantPermissionResponse Unsent
        "/etcdserverpb.Auth/RoleGrantPermission";
    /// Takes from what a role permits.
    role_revoke_permission AuthRoleRevokePermissionRequest AuthRoleRevokePermissionResponse Unsent
        "/etcdserverpb.Auth/RoleRevokePermission";
}

macro_rules! calls_of_members {
    ($($(#[$doc:meta])* $name:ident $request:ident $answer:ident $path:literal;)*) => {
        /// What is said to one member rather than to the cluster. `endpoint` is one of the client's.
        impl Client {
            $(
                $(#[$doc])*
                pub async fn $name(&self, endpoint: &Endpoint, request: $request) -> Result<$answer, Error> {
                    self.call_member(endpoint, $path, &request).await
                }
            )*
        }
    };
}

calls_of_members! {
    /// How a member is.
    status StatusRequest StatusResponse "/etcdserverpb.Maintenance/Status";
    /// Has a member give back unused space.
    defragment DefragmentRequest DefragmentResponse "/etcdserverpb.Maintenance/Defragment";
    /// A checksum of a member's whole database.
    hash HashRequest HashResponse "/etcdserverpb.Maintenance/Hash";
    /// A checksum of all keys of a member up to a revision.
    hash_kv HashKvRequest HashKvResponse "/etcdserverpb.Maintenance/HashKV";
    /// The entries that a member has applied, for an archive. Only Cairn's members have the method.
    entries EntriesRequest EntriesResponse "/cairnpb.Archive/Entries";
}

impl Client {
    async fn call_member<A: api::Message + Default>(
        &self,
        endpoint: &Endpoint,
        path: &str,
        request: &impl api::Message,
    ) -> Result<A, Error> {
        let Some(member) = self.inner.balancer.members().iter().find(|member| member.endpoint == *endpoint) else {
            let none = EndpointError::Authority(endpoint.to_string());
            return Err(rpc::Status::new(api::Code::InvalidArgument, none.to_string()).into());
        };
        to_member(self, member, path, request, &self.inner.options).await
    }
}

/// The path of the method that streams a range.
const RANGE_STREAM: &str = "/etcdserverpb.KV/RangeStream";

impl Client {
    /// Reads keys that come in many messages, put together again.
    ///
    /// # Errors
    /// As [`Client::range`]; nothing is tried again once it has begun.
    pub async fn range_stream(&self, request: RangeRequest) -> Result<RangeResponse, Error> {
        let work = async {
            let ticket = self.ticket(None).await?;
            let (_member, mut call) = self.open(RANGE_STREAM, &ticket).await.map_err(|failure| failure.status)?;
            call.send(api::Message::encode_to_vec(&request).into()).await?;
            call.finish();
            let mut whole = RangeResponse::default();
            while let Some(piece) = call.next().await? {
                let read = <RangeStreamResponse as api::Message>::decode(piece);
                let piece = read.map_err(|error| rpc::Status::new(api::Code::Internal, error.to_string()))?;
                let Some(RangeResponse { header, kvs, more, count }) = piece.range_response else { continue };
                whole.header = header.or(whole.header);
                whole.kvs.extend(kvs);
                whole.more |= more;
                whole.count = if count == 0 { whole.count } else { count };
            }
            Ok(whole)
        };
        Ok(self.within(self.inner.options.call_timeout, work).await?)
    }
}

/// The path of the method that streams a snapshot.
const SNAPSHOT: &str = "/etcdserverpb.Maintenance/Snapshot";

impl Client {
    /// Begins a copy of a member's database: the messages of the answer are `SnapshotResponse`s.
    ///
    /// # Errors
    /// If no member can be reached.
    pub async fn snapshot(&self) -> Result<rpc::client::StreamingCall, Error> {
        self.snapshot_since(None).await
    }

    /// The same, or only what the member's state has more than an earlier one. A member that does not know of such requests sends all, and
    /// leaves `increment` out of its messages.
    ///
    /// # Errors
    /// If no member can be reached.
    pub async fn snapshot_since(&self, since: Option<SnapshotSince>) -> Result<rpc::client::StreamingCall, Error> {
        let ticket = self.ticket(None).await?;
        let (_, mut call) = self.open(SNAPSHOT, &ticket).await.map_err(|failure| failure.status)?;
        call.send(api::Message::encode_to_vec(&SnapshotRequest { since }).into()).await?;
        call.finish();
        Ok(call)
    }
}
