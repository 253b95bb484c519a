//! `etcdserverpb.Cluster`.

use super::reply::{decode, encode, refuse};
use crate::cluster::change;
use crate::config;
use crate::node::Node;
use api::Error;
use api::etcdserverpb::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse, MemberPromoteRequest,
    MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse, MemberUpdateRequest, MemberUpdateResponse,
    ResponseHeader,
};
use rpc::{Call, Reply, Responder, Status};
use std::sync::Arc;

pub(super) fn member_list(node: &Arc<Node>, call: Call, responder: Responder) {
    let request: MemberListRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    if !request.linearizable {
        return responder.send(answer(node));
    }
    let own = node.clone();
    node.linearize(move |allowed| match allowed {
        Ok(()) => responder.send(answer(&own)),
        Err(error) => refuse(responder, error),
    });
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
    let request: MemberAddRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let Some(urls) = config::peer_urls(&request.peer_ur_ls) else {
        return refuse(responder, Error::MemberBadUrls);
    };
    let own = node.clone();
    change::add(node, urls, request.is_learner, move |added| match added {
        Ok((member, members)) => responder.send(encode(&MemberAddResponse {
            header: header(&own),
            member: Some(show(member)),
            members: shown(members),
        })),
        Err(error) => refuse(responder, error),
    });
}

pub(super) fn member_remove(node: &Arc<Node>, call: Call, responder: Responder) {
    let request: MemberRemoveRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let own = node.clone();
    let done = move |changed: change::Changed| match changed {
        Ok(members) => responder.send(encode(&MemberRemoveResponse { header: header(&own), members: shown(members) })),
        Err(error) => refuse(responder, error),
    };
    change::remove(node, request.id, Box::new(done));
}

pub(super) fn member_update(node: &Arc<Node>, call: Call, responder: Responder) {
    let request: MemberUpdateRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    // etcd takes any text here; then the member can never be reached again.
    let Some(urls) = config::peer_urls(&request.peer_ur_ls) else {
        return refuse(responder, Error::MemberBadUrls);
    };
    let own = node.clone();
    let done = move |changed: change::Changed| match changed {
        Ok(members) => responder.send(encode(&MemberUpdateResponse { header: header(&own), members: shown(members) })),
        Err(error) => refuse(responder, error),
    };
    change::update(node, request.id, urls, Box::new(done));
}

pub(super) fn member_promote(node: &Arc<Node>, call: Call, responder: Responder) {
    let request: MemberPromoteRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    let own = node.clone();
    let done = move |changed: change::Changed| match changed {
        Ok(members) => responder.send(encode(&MemberPromoteResponse { header: header(&own), members: shown(members) })),
        Err(error) => refuse(responder, error),
    };
    change::promote(node, request.id, Box::new(done));
}
