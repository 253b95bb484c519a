//! `etcdserverpb.Cluster`.

use super::reply::{encode, refuse};
use crate::auth::Permitted;
use crate::auth::rules::{Root, User};
use crate::cluster::change;
use crate::node::{For, Node, Weight};
use api::etcdserverpb::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse, MemberPromoteRequest,
    MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse, MemberUpdateRequest, MemberUpdateResponse,
    ResponseHeader,
};
use rpc::{Call, Reply, Responder, Status};
use std::sync::Arc;

pub(super) fn member_list(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<User, MemberListRequest>,
    responder: Responder,
) {
    if !request.linearizable {
        return responder.send(answer(node));
    }
    let own = node.clone();
    node.linearize_call(Weight::NONE, responder, move |allowed, responder| match allowed {
        Ok(()) => responder.send(answer(&own)),
        Err(error) => refuse(responder, error),
    });
}

fn answer(node: &Node) -> Result<Reply, Status> {
    encode(&MemberListResponse { header: header(node), members: shown(change::members(node)) })
}

/// The header of answers of the cluster API, which has no revision.
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
        zone: member.zone,
    }
}

pub(super) fn member_add(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, MemberAddRequest>,
    responder: Responder,
) {
    let own = node.clone();
    let done = move |responder: Responder, added: change::Added| match added {
        Ok((member, members)) => responder.send(encode(&MemberAddResponse {
            header: header(&own),
            member: Some(show(member)),
            members: shown(members),
        })),
        Err(error) => refuse(responder, error),
    };
    let (MemberAddRequest { peer_ur_ls, is_learner }, _) = request.into_parts();
    change::add(node, peer_ur_ls, is_learner, For::new(responder, done));
}

pub(super) fn member_remove(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, MemberRemoveRequest>,
    responder: Responder,
) {
    let own = node.clone();
    let done = move |responder: Responder, changed: change::Changed| match changed {
        Ok(members) => responder.send(encode(&MemberRemoveResponse { header: header(&own), members: shown(members) })),
        Err(error) => refuse(responder, error),
    };
    change::remove(node, request.id, For::new(responder, done));
}

pub(super) fn member_update(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, MemberUpdateRequest>,
    responder: Responder,
) {
    let own = node.clone();
    let done = move |responder: Responder, changed: change::Changed| match changed {
        Ok(members) => responder.send(encode(&MemberUpdateResponse { header: header(&own), members: shown(members) })),
        Err(error) => refuse(responder, error),
    };
    let (MemberUpdateRequest { id, peer_ur_ls }, _) = request.into_parts();
    change::update(node, id, peer_ur_ls, For::new(responder, done));
}

pub(super) fn member_promote(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, MemberPromoteRequest>,
    responder: Responder,
) {
    let own = node.clone();
    let done = move |responder: Responder, changed: change::Changed| match changed {
        Ok(members) => responder.send(encode(&MemberPromoteResponse { header: header(&own), members: shown(members) })),
        Err(error) => refuse(responder, error),
    };
    change::promote(node, request.id, For::new(responder, done));
}
