//! `etcdserverpb.Auth`.
//!
//! Passwords end here: what goes on is a bcrypt hash, so none is ever in the Raft log.

use super::kv::{propose, still};
use super::reply::{decode, encode, refuse};
use crate::auth::{HashError, Identity, Principal, admit, hand_over, log_in};
use crate::node::{self, Node};
use api::etcdserverpb::{
    AuthRoleGetRequest, AuthRoleGetResponse, AuthRoleGrantPermissionRequest, AuthRoleListResponse, AuthStatusResponse,
    AuthUserAddRequest, AuthUserChangePasswordRequest, AuthUserGetRequest, AuthUserGetResponse, AuthUserListResponse,
    AuthenticateRequest, AuthenticateResponse,
};
use api::limits::{AUTH_NAME_BYTES_MAX, ROLE_BYTES_MAX};
use api::{Code, Error, Message};
use rpc::{Call, Reply, Responder, Status};
use std::sync::Arc;
use store::Ask;

/// Sends a change that carries no password through the log, for who has the role `root`.
pub(super) fn change<R: Message + Default + 'static>(node: &Arc<Node>, call: Call, field: u32, responder: Responder) {
    let request: R = match decode(call.message.clone()) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    admit(
        node,
        Identity::of(&call),
        request,
        |_| Ask::Root,
        move |node, _, pass| match pass {
            Ok(pass) => propose(node, pass.author(), field, &call.message, call.is_alone, responder),
            Err(error) => refuse(responder, error),
        },
    );
}

/// A role must not grow without bound: what its users may do is merged in memory, and a snapshot has it as one record.
pub(super) fn role_grant_permission(node: &Arc<Node>, call: Call, responder: Responder) {
    let request: AuthRoleGrantPermissionRequest = match decode(call.message.clone()) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    admit(
        node,
        Identity::of(&call),
        request,
        |_| Ask::Root,
        move |node, request, pass| match pass {
            Ok(_) if is_too_large(node, &request) => refuse(responder, Error::RequestTooLarge),
            Ok(pass) => {
                let field = node::AUTH_ROLE_GRANT_PERMISSION;
                propose(node, pass.author(), field, &call.message, call.is_alone, responder);
            }
            Err(error) => refuse(responder, error),
        },
    );
}

fn is_too_large(node: &Node, request: &AuthRoleGrantPermissionRequest) -> bool {
    let bytes_with = |permission| node.store.auth().role_bytes_with(&request.name, permission);
    request.perm.as_ref().is_some_and(|permission| bytes_with(permission) > ROLE_BYTES_MAX)
}

pub(super) fn user_add(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let mut request: AuthUserAddRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let password = std::mem::take(&mut request.password);
    request.hashed_password.clear();
    admit(
        node,
        identity,
        request,
        |_| Ask::Root,
        move |node, mut request, pass| {
            let pass = match pass {
                Ok(_) if request.name.len() > AUTH_NAME_BYTES_MAX => return refuse(responder, Error::RequestTooLarge),
                Ok(pass) => pass,
                Err(error) => return refuse(responder, error),
            };
            if request.options.is_some_and(|options| options.no_password) {
                return propose(node, pass.author(), node::AUTH_USER_ADD, &request.encode_to_vec(), false, responder);
            }
            hash(node, password, responder, move |node, hashed, responder| {
                request.hashed_password = hashed;
                propose(node, pass.author(), node::AUTH_USER_ADD, &request.encode_to_vec(), false, responder);
            });
        },
    );
}

pub(super) fn user_change_password(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let mut request: AuthUserChangePasswordRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let password = std::mem::take(&mut request.password);
    admit(
        node,
        identity,
        request,
        |_| Ask::Root,
        move |node, mut request, pass| match pass {
            Ok(pass) => hash(node, password, responder, move |node, hashed, responder| {
                request.hashed_password = hashed;
                let (author, request) = (pass.author(), request.encode_to_vec());
                propose(node, author, node::AUTH_USER_CHANGE_PASSWORD, &request, false, responder);
            }),
            Err(error) => refuse(responder, error),
        },
    );
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
        // What Go's library says of it.
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

/// Answers what is asked about users once this member has caught up, if `ask` is permitted.
fn read<R: Send + 'static>(
    node: &Arc<Node>,
    identity: Identity,
    request: R,
    responder: Responder,
    permit: impl Fn(&Node, &Principal, &R) -> Result<(), Error> + Send + 'static,
    answer: impl FnOnce(&Node, &R) -> Result<Reply, Status> + Send + 'static,
) {
    let own = node.clone();
    node.linearize_call(identity.weight(), responder, move |allowed, responder| {
        let pass = allowed.and_then(|()| own.pass_now(&identity));
        match pass.and_then(|pass| permit(&own, &pass, &request).map(|()| pass)) {
            Ok(pass) => responder.send(still(&own, &pass, answer(&own, &request))),
            Err(error) => refuse(responder, error),
        }
    });
}

/// Everybody may know whether to log in, but not with a token that is worth nothing.
pub(super) fn status(node: &Arc<Node>, call: Call, responder: Responder) {
    read(
        node,
        Identity::of(&call),
        (),
        responder,
        |_, _, ()| Ok(()),
        |node, ()| {
            let users = node.store.auth();
            let (enabled, auth_revision) = (users.is_enabled(), users.revision());
            encode(&AuthStatusResponse { header: Some(node.header(node.store.revision())), enabled, auth_revision })
        },
    );
}

fn as_root<R>(node: &Node, pass: &Principal, _request: &R) -> Result<(), Error> {
    pass.decide(Ask::Root, &node.store)
}

pub(super) fn user_list(node: &Arc<Node>, call: Call, responder: Responder) {
    read(node, Identity::of(&call), (), responder, as_root, |node, ()| {
        let header = Some(node.header(node.store.revision()));
        encode(&AuthUserListResponse { header, users: node.store.auth().users() })
    });
}

pub(super) fn role_list(node: &Arc<Node>, call: Call, responder: Responder) {
    read(node, Identity::of(&call), (), responder, as_root, |node, ()| {
        let header = Some(node.header(node.store.revision()));
        encode(&AuthRoleListResponse { header, roles: node.store.auth().roles() })
    });
}

pub(super) fn user_get(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let request: AuthUserGetRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let permit = |node: &Node, pass: &Principal, request: &AuthUserGetRequest| {
        pass.decide(Ask::User(&request.name), &node.store)
    };
    read(node, identity, request, responder, permit, |node, request| {
        let roles = node.store.auth().user(&request.name)?;
        encode(&AuthUserGetResponse { header: Some(node.header(node.store.revision())), roles })
    });
}

pub(super) fn role_get(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let request: AuthRoleGetRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let permit = |node: &Node, pass: &Principal, request: &AuthRoleGetRequest| {
        pass.decide(Ask::Role(&request.role), &node.store)
    };
    read(node, identity, request, responder, permit, |node, request| {
        let perm = node.store.auth().role(&request.role)?;
        encode(&AuthRoleGetResponse { header: Some(node.header(node.store.revision())), perm })
    });
}
