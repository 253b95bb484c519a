//! `etcdserverpb.Cluster`.

use super::reply::{decode, encode, refuse};
use crate::auth::{Identity, admit};
use crate::cluster::change;
use crate::config;
use crate::node::{For, Node, Weight};
use api::Error;
use api::etcdserverpb::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse, MemberPromoteRequest,
    MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse, MemberUpdateRequest, MemberUpdateResponse,
    ResponseHeader,
};
use rpc::{Call, Reply, Responder, Status};
use std::sync::Arc;
use store::Ask;

pub(super) fn member_list(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let request: MemberListRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    admit(
        node,
        identity,
        request,
        |_| Ask::Login,
        move |node, request, pass| match pass {
            Ok(_) if !request.linearizable => responder.send(answer(node)),
            Ok(_) => {
                let own = node.clone();
                node.linearize_call(Weight::NONE, responder, move |allowed, responder| match allowed {
                    Ok(()) => responder.send(answer(&own)),
                    Err(error) => refuse(responder, error),
                });
            }
            Err(error) => refuse(responder, error),
        },
    );
}

fn answer(node: &Node) -> Result<Reply, Status> {
    encode(&MemberListResponse { header: header(node), members: shown(change::members(node)) })
}

/// The cluster API answers no revision.
fn header(node: &Node) -> Option<ResponseHeader> {
    Some(node.header(0))
}

fn shown(members: Vec<store::Member>) -> Vec<Member> {
    members.into_iter().map(show).collect()
}

fn show(member: store::Member) -> Member {
    Member {
        id: member.id,
        name: member.name,
        peer_ur_ls: member.peer_urls,
        client_ur_ls: member.client_urls,
        is_learner: member.is_learner,
    }
}

pub(super) fn member_add(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let request: MemberAddRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let Some(urls) = config::peer_urls(&request.peer_ur_ls) else {
        return refuse(responder, Error::MemberBadUrls);
    };
    admit(
        node,
        identity,
        (urls, request.is_learner),
        |_| Ask::Root,
        move |node, (urls, is_learner), pass| {
            if let Err(error) = pass {
                return refuse(responder, error);
            }
            let own = node.clone();
            let done = move |responder: Responder, added: change::Added| match added {
                Ok((member, members)) => responder.send(encode(&MemberAddResponse {
                    header: header(&own),
                    member: Some(show(member)),
                    members: shown(members),
                })),
                Err(error) => refuse(responder, error),
            };
            change::add(node, urls, is_learner, For::new(responder, done));
        },
    );
}

pub(super) fn member_remove(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let request: MemberRemoveRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    admit(
        node,
        identity,
        request.id,
        |_| Ask::Root,
        move |node, id, pass| {
            if let Err(error) = pass {
                return refuse(responder, error);
            }
            let own = node.clone();
            let done = move |responder: Responder, changed: change::Changed| match changed {
                Ok(members) => {
                    responder.send(encode(&MemberRemoveResponse { header: header(&own), members: shown(members) }))
                }
                Err(error) => refuse(responder, error),
            };
            change::remove(node, id, For::new(responder, done));
        },
    );
}

pub(super) fn member_update(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let request: MemberUpdateRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    // etcd takes any text here; then the member can never be reached again.
    let Some(urls) = config::peer_urls(&request.peer_ur_ls) else {
        return refuse(responder, Error::MemberBadUrls);
    };
    admit(
        node,
        identity,
        (request.id, urls),
        |_| Ask::Root,
        move |node, (id, urls), pass| {
            if let Err(error) = pass {
                return refuse(responder, error);
            }
            let own = node.clone();
            let done = move |responder: Responder, changed: change::Changed| match changed {
                Ok(members) => {
                    responder.send(encode(&MemberUpdateResponse { header: header(&own), members: shown(members) }))
                }
                Err(error) => refuse(responder, error),
            };
            change::update(node, id, urls, For::new(responder, done));
        },
    );
}

pub(super) fn member_promote(node: &Arc<Node>, call: Call, responder: Responder) {
    let identity = Identity::of(&call);
    let request: MemberPromoteRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    admit(
        node,
        identity,
        request.id,
        |_| Ask::Root,
        move |node, id, pass| {
            if let Err(error) = pass {
                return refuse(responder, error);
            }
            let own = node.clone();
            let done = move |responder: Responder, changed: change::Changed| match changed {
                Ok(members) => {
                    responder.send(encode(&MemberPromoteResponse { header: header(&own), members: shown(members) }))
                }
                Err(error) => refuse(responder, error),
            };
            change::promote(node, id, For::new(responder, done));
        },
    );
}
