//! What requests are before they are permitted: how they are decoded, what is refused to everybody, and what the member catches up for.

use super::reply::decode;
use crate::auth::{CatchUp, Request};
use crate::config;
use crate::node::Node;
use api::cairnpb::EntriesRequest;
use api::etcdserverpb::{
    AlarmRequest, AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleDeleteRequest, AuthRoleGetRequest,
    AuthRoleGrantPermissionRequest, AuthRoleListRequest, AuthRoleRevokePermissionRequest, AuthStatusRequest,
    AuthUserAddRequest, AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthUserGetRequest,
    AuthUserGrantRoleRequest, AuthUserListRequest, AuthUserRevokeRoleRequest, CompactionRequest, DefragmentRequest,
    DeleteRangeRequest, DowngradeRequest, HashKvRequest, HashRequest, LeaseGrantRequest, LeaseLeasesRequest,
    LeaseRevokeRequest, LeaseTimeToLiveRequest, MemberAddRequest, MemberListRequest, MemberPromoteRequest,
    MemberRemoveRequest, MemberUpdateRequest, MoveLeaderRequest, PutRequest, SnapshotRequest, StatusRequest,
};
use api::{Error, check};
use bytes::Bytes;
use rpc::Status;

/// Requests that are decoded, and checked if a check is given. Empty requests are not decoded.
macro_rules! requests {
    ($($message:ident $catch_up:ident $(, $how:ident $($check:expr)?)?;)*) => {$(
        impl Request for $message {
            fn read(_: &Node, message: Bytes) -> Result<$message, Status> {
                requests!(@read $message message $($how $($check)?)?)
            }

            fn catch_up(&self) -> CatchUp {
                CatchUp::$catch_up
            }
        }
    )*};
    (@read $type:ident $message:ident) => { decode($message) };
    (@read $type:ident $message:ident empty) => {{
        drop($message);
        Ok($type::default())
    }};
    (@read $type:ident $message:ident check $check:expr) => {{
        let mut request: $type = decode($message)?;
        let check: fn(&mut $type) -> Result<(), Error> = $check;
        check(&mut request)?;
        Ok(request)
    }};
}

requests! {
    PutRequest Refusal, check |put| check::put(put);
    DeleteRangeRequest Refusal, check |delete| check::delete_range(delete);
    CompactionRequest Refusal;
    LeaseGrantRequest Refusal;
    LeaseRevokeRequest Refusal;
    LeaseTimeToLiveRequest Refusal;
    LeaseLeasesRequest Read, empty;
    MemberAddRequest Refusal, check |add| check_urls(&mut add.peer_ur_ls);
    MemberRemoveRequest Refusal;
    // etcd accepts any text here, which can make the member unreachable for good.
    MemberUpdateRequest Refusal, check |update| check_urls(&mut update.peer_ur_ls);
    MemberListRequest Refusal;
    MemberPromoteRequest Refusal;
    AlarmRequest Refusal;
    // A status request must work on a member that cannot catch up: that may be the reason for the request.
    StatusRequest Token, empty;
    DefragmentRequest Refusal, empty;
    HashRequest Refusal, empty;
    HashKvRequest Refusal;
    SnapshotRequest Token;
    EntriesRequest Token;
    MoveLeaderRequest Refusal;
    DowngradeRequest Refusal;
    AuthEnableRequest Refusal;
    AuthDisableRequest Refusal;
    AuthStatusRequest Read, empty;
    AuthUserAddRequest Refusal;
    AuthUserGetRequest Read;
    AuthUserListRequest Read, empty;
    AuthUserDeleteRequest Refusal;
    AuthUserChangePasswordRequest Refusal;
    AuthUserGrantRoleRequest Refusal;
    AuthUserRevokeRoleRequest Refusal;
    AuthRoleAddRequest Refusal;
    AuthRoleGetRequest Read;
    AuthRoleListRequest Read, empty;
    AuthRoleDeleteRequest Refusal;
    AuthRoleGrantPermissionRequest Refusal;
    AuthRoleRevokePermissionRequest Refusal;
}

/// Checks and normalizes the URLs of a member.
fn check_urls(urls: &mut Vec<String>) -> Result<(), Error> {
    *urls = config::peer_urls(urls).ok_or(Error::MemberBadUrls)?;
    Ok(())
}
