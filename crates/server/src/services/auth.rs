//! `etcdserverpb.Auth`.
//!
//! Passwords end here: what goes on is a bcrypt hash, so none is ever in the Raft log.

use super::kv::{propose_holding, still};
use super::reply::{decode, encode, refuse};
use super::within::{self, Order, Stop, encode_within};
use crate::auth::rules::{Anyone, Own, Root};
use crate::auth::{HashError, Permitted, Rule, hand_over, log_in};
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
use rpc::{Address, Call, Responder, Status};
use std::sync::Arc;
use store::Author;

/// A change of users or roles that goes through the log unchanged.
pub(super) trait Change: Message + Default {
    const KIND: RaftRequest;
    /// Whether there may be more to store afterwards.
    const ADDS: bool;
}

macro_rules! changes {
    ($($request:ident $kind:ident $adds:literal;)*) => {$(
        impl Change for $request {
            const KIND: RaftRequest = RaftRequest::$kind;
            const ADDS: bool = $adds;
        }
    )*};
}

changes! {
    AuthEnableRequest AuthEnable false;
    AuthDisableRequest AuthDisable false;
    AuthUserDeleteRequest AuthUserDelete false;
    AuthUserGrantRoleRequest AuthUserGrantRole true;
    AuthUserRevokeRoleRequest AuthUserRevokeRole false;
    AuthRoleAddRequest AuthRoleAdd true;
    AuthRoleDeleteRequest AuthRoleDelete false;
    AuthRoleRevokePermissionRequest AuthRoleRevokePermission false;
}

/// What a change may add besides its own bytes: the place of a new record.
const PLACE_BYTES: u64 = 128;

/// Sends a change that carries no password through the log.
pub(super) fn change<R: Change>(node: &Arc<Node>, call: Call, request: Permitted<Root, R>, responder: Responder) {
    send(node, request.author(), R::KIND, R::ADDS, &call.message, call.is_alone, responder);
}

/// Sends a change through the log, if there is room for what it adds.
fn send(
    node: &Arc<Node>,
    author: Author,
    kind: RaftRequest,
    adds: bool,
    request: &[u8],
    is_alone: bool,
    responder: Responder,
) {
    let cost = if adds { PLACE_BYTES.saturating_add(request.len() as u64) } else { 0 };
    match node.store.claim_users(cost) {
        Ok(room) => propose_holding(room, node, author, kind, request, is_alone, responder),
        Err(error) => refuse(responder, error),
    }
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
    let kind = RaftRequest::AuthRoleGrantPermission;
    send(node, request.author(), kind, true, &call.message, call.is_alone, responder);
}

fn is_too_large(node: &Node, request: &AuthRoleGrantPermissionRequest) -> bool {
    let bytes_with = |permission| node.store.auth().role_bytes_with(&request.name, permission);
    request.perm.as_ref().is_some_and(|permission| bytes_with(permission) > ROLE_BYTES_MAX)
}

pub(super) fn user_add(
    node: &Arc<Node>,
    call: Call,
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
        return send(node, author, RaftRequest::AuthUserAdd, true, &request.encode_to_vec(), false, responder);
    }
    hash(node, call.peer.address, password, responder, move |node, hashed, responder| {
        request.hashed_password = hashed;
        send(node, author, RaftRequest::AuthUserAdd, true, &request.encode_to_vec(), false, responder);
    });
}

pub(super) fn user_change_password(
    node: &Arc<Node>,
    call: Call,
    request: Permitted<Root, AuthUserChangePasswordRequest>,
    responder: Responder,
) {
    let (mut request, author) = request.into_parts();
    let password = std::mem::take(&mut request.password);
    hash(node, call.peer.address, password, responder, move |node, hashed, responder| {
        request.hashed_password = hashed;
        send(node, author, RaftRequest::AuthUserChangePassword, false, &request.encode_to_vec(), false, responder);
    });
}

fn hash(
    node: &Arc<Node>,
    client: Address,
    password: String,
    responder: Responder,
    then: impl FnOnce(&Arc<Node>, String, Responder) + Send + 'static,
) {
    let own = node.clone();
    node.auth.hash(password, move |hashed| match hashed {
        Ok(hashed) => hand_over(&own.clone(), Some(client), move || then(&own, hashed, responder)),
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
    call: Call,
    request: Permitted<Root, AuthUserListRequest>,
    responder: Responder,
) {
    list(node, call, request, responder, |node, _| {
        Ok(AuthUserListResponse { header: header(node), users: node.store.auth().users() })
    });
}

pub(super) fn role_list(
    node: &Arc<Node>,
    call: Call,
    request: Permitted<Root, AuthRoleListRequest>,
    responder: Responder,
) {
    list(node, call, request, responder, |node, _| {
        Ok(AuthRoleListResponse { header: header(node), roles: node.store.auth().roles() })
    });
}

pub(super) fn user_get(
    node: &Arc<Node>,
    call: Call,
    request: Permitted<Own, AuthUserGetRequest>,
    responder: Responder,
) {
    list(node, call, request, responder, |node, request| {
        let roles = node.store.auth().user(&request.name)?;
        Ok(AuthUserGetResponse { header: header(node), roles })
    });
}

pub(super) fn role_get(
    node: &Arc<Node>,
    call: Call,
    request: Permitted<Own, AuthRoleGetRequest>,
    responder: Responder,
) {
    list(node, call, request, responder, |node, request| {
        let perm = node.store.auth().role(&request.role)?;
        Ok(AuthRoleGetResponse { header: header(node), perm })
    });
}

/// Answers with a list, which may be long, within the budget.
fn list<R, M, A>(
    node: &Arc<Node>,
    call: Call,
    request: Permitted<R, M>,
    responder: Responder,
    find: impl Fn(&Node, &M) -> Result<A, Error> + Send + 'static,
) where
    R: Rule<M> + Send + 'static,
    M: Send + 'static,
    A: Message,
{
    let order =
        Order { client: call.peer.address, is_heavy: false, likely_bytes: 0, request_bytes: call.message.len() };
    within::answer(node, order, responder, move |terms| {
        let answer = find(terms.node, &request).map_err(Stop::from).and_then(|found| encode_within(terms, &found));
        if !matches!(answer, Err(Stop::Needs(_))) {
            request.check_unchanged(&terms.node.store)?;
        }
        answer
    });
}

fn header(node: &Node) -> Option<ResponseHeader> {
    Some(node.header(node.store.revision()))
}
