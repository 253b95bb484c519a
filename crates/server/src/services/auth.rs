//! `etcdserverpb.Auth`.
//!
//! Passwords end here: what goes on is a bcrypt hash, so none is ever in the Raft log.

use super::kv::{propose, still};
use super::reply::{decode, encode, refuse};
use crate::auth::rules::{Anyone, Own, Root};
use crate::auth::{HashError, Permitted, hand_over, log_in};
use crate::node::Node;
use api::etcdserverpb::{
    AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleDeleteRequest, AuthRoleGetRequest,
    AuthRoleGetResponse, AuthRoleGrantPermissionRequest, AuthRoleListRequest, AuthRoleListResponse,
    AuthRoleRevokePermissionRequest, AuthStatusRequest, AuthStatusResponse, AuthUserAddRequest,
    AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthUserGetRequest, AuthUserGetResponse,
    AuthUserGrantRoleRequest, AuthUserListRequest, AuthUserListResponse, AuthUserRevokeRoleRequest,
    AuthenticateRequest, AuthenticateResponse, ResponseHeader,
};
use api::limits::{AUTH_NAME_BYTES_MAX, ROLE_BYTES_MAX};
use api::{Code, Error, Message, RaftRequest};
use rpc::{Call, Responder, Status};
use std::sync::Arc;

/// A change of users or roles that goes through the log unchanged.
pub(super) trait Change: Message + Default {
    const KIND: RaftRequest;
}

macro_rules! changes {
    ($($request:ident $kind:ident;)*) => {$(
        impl Change for $request {
            const KIND: RaftRequest = RaftRequest::$kind;
        }
    )*};
}

changes! {
    AuthEnableRequest AuthEnable;
    AuthDisableRequest AuthDisable;
    AuthUserDeleteRequest AuthUserDelete;
    AuthUserGrantRoleRequest AuthUserGrantRole;
    AuthUserRevokeRoleRequest AuthUserRevokeRole;
    AuthRoleAddRequest AuthRoleAdd;
    AuthRoleDeleteRequest AuthRoleDelete;
    AuthRoleRevokePermissionRequest AuthRoleRevokePermission;
}

/// Sends a change that carries no password through the log.
pub(super) fn change<R: Change>(node: &Arc<Node>, call: Call, request: Permitted<Root, R>, responder: Responder) {
    propose(node, request.author(), R::KIND, &call.message, call.is_alone, responder);
}

/// Limits the size of a role: the permissions of its users are merged in memory, and a snapshot has the role as one
/// record.
pub(super) fn role_grant_permission(
    node: &Arc<Node>,
    call: Call,
    request: Permitted<Root, AuthRoleGrantPermissionRequest>,
    responder: Responder,
) {
    if is_too_large(node, &request) {
        return refuse(responder, Error::RequestTooLarge);
    }
    propose(node, request.author(), RaftRequest::AuthRoleGrantPermission, &call.message, call.is_alone, responder);
}

fn is_too_large(node: &Node, request: &AuthRoleGrantPermissionRequest) -> bool {
    let bytes_with = |permission| node.store.auth().role_bytes_with(&request.name, permission);
    request.perm.as_ref().is_some_and(|permission| bytes_with(permission) > ROLE_BYTES_MAX)
}

pub(super) fn user_add(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, AuthUserAddRequest>,
    responder: Responder,
) {
    let (mut request, author) = request.into_parts();
    let password = std::mem::take(&mut request.password);
    request.hashed_password.clear();
    if request.name.len() > AUTH_NAME_BYTES_MAX {
        return refuse(responder, Error::RequestTooLarge);
    }
    if request.options.is_some_and(|options| options.no_password) {
        return propose(node, author, RaftRequest::AuthUserAdd, &request.encode_to_vec(), false, responder);
    }
    hash(node, password, responder, move |node, hashed, responder| {
        request.hashed_password = hashed;
        propose(node, author, RaftRequest::AuthUserAdd, &request.encode_to_vec(), false, responder);
    });
}

pub(super) fn user_change_password(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, AuthUserChangePasswordRequest>,
    responder: Responder,
) {
    let (mut request, author) = request.into_parts();
    let password = std::mem::take(&mut request.password);
    hash(node, password, responder, move |node, hashed, responder| {
        request.hashed_password = hashed;
        propose(node, author, RaftRequest::AuthUserChangePassword, &request.encode_to_vec(), false, responder);
    });
}

fn hash(
    node: &Arc<Node>,
    password: String,
    responder: Responder,
    then: impl FnOnce(&Arc<Node>, String, Responder) + Send + 'static,
) {
    let own = node.clone();
    node.auth.hash(password, move |hashed| match hashed {
        Ok(hashed) => hand_over(&own.clone(), move || then(&own, hashed, responder)),
        Err(HashError::Busy) => refuse(responder, Error::TooManyRequests),
        // The error is that of Go's library.
        Err(error) => refuse(responder, Status::new(Code::Unknown, error.to_string())),
    });
}

pub(super) fn authenticate(node: &Arc<Node>, call: Call, responder: Responder) {
    let client = call.peer.address;
    let AuthenticateRequest { name, password } = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let own = node.clone();
    log_in(node, name, &password, client, move |token| {
        let header = Some(own.header(own.store.revision()));
        responder.send(token.and_then(|token| encode(&AuthenticateResponse { header, token })));
    });
}

/// Anyone may ask whether authentication is enabled.
pub(super) fn status(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Anyone, AuthStatusRequest>,
    responder: Responder,
) {
    let users = node.store.auth();
    let (enabled, auth_revision) = (users.is_enabled(), users.revision());
    let answer = AuthStatusResponse { header: header(node), enabled, auth_revision };
    responder.send(still(node, &request, encode(&answer)));
}

pub(super) fn user_list(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, AuthUserListRequest>,
    responder: Responder,
) {
    let answer = AuthUserListResponse { header: header(node), users: node.store.auth().users() };
    responder.send(still(node, &request, encode(&answer)));
}

pub(super) fn role_list(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, AuthRoleListRequest>,
    responder: Responder,
) {
    let answer = AuthRoleListResponse { header: header(node), roles: node.store.auth().roles() };
    responder.send(still(node, &request, encode(&answer)));
}

pub(super) fn user_get(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Own, AuthUserGetRequest>,
    responder: Responder,
) {
    let roles = node.store.auth().user(&request.name).map_err(Status::from);
    let answer = roles.and_then(|roles| encode(&AuthUserGetResponse { header: header(node), roles }));
    responder.send(still(node, &request, answer));
}

pub(super) fn role_get(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Own, AuthRoleGetRequest>,
    responder: Responder,
) {
    let perm = node.store.auth().role(&request.role).map_err(Status::from);
    let answer = perm.and_then(|perm| encode(&AuthRoleGetResponse { header: header(node), perm }));
    responder.send(still(node, &request, answer));
}

fn header(node: &Node) -> Option<ResponseHeader> {
    Some(node.header(node.store.revision()))
}
